"""Create the searcher of a method, and plan what it will train."""

from __future__ import annotations

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.registry import function_of, method_of
from kernel_backend.model.search.space import Space
from kernel_backend.search.base import Plan, Searcher
from kernel_backend.search.custom import SearchProcess


def make(settings: Settings, space: Space, search_process: SearchProcess | None = None) -> Searcher:
    """Make the searcher of a method, at its beginning.

    The same settings make the same searcher.

    Parameters
    ----------
    settings : Settings
        Method, its options, and the length of a training.
    space : Space
        Search space.
    search_process : SearchProcess, optional
        Process of the user's class, for the method ``custom`` alone.

    Returns
    -------
    Searcher
        The searcher, with no trial yet.

    Raises
    ------
    InvalidRequest
        There is no such method, it cannot search this space, or its package or a library of its sampler is missing.

    Examples
    --------
    >>> from daylight.search import Parameter, Range, Settings, Space, make
    >>> lr = Parameter(name="lr", domain=Range(low=1e-4, high=0.1, scale="log"))
    >>> searcher = make(Settings(method="asha", units=16, trials=8), Space(parameters=(lr,)))
    >>> searcher.on_slot().until
    1
    """
    method = method_of(settings.method)
    factory = function_of(method, method.factory)
    full = settings.model_copy(update={"options": method.own_options(settings.options)})
    if not method.own_class:
        searcher: Searcher = factory(full, space)
        return searcher
    if search_process is None:
        raise InvalidRequest(f"a custom search needs the process of its class {settings.source}")
    own: Searcher = factory(full, space, search_process)
    return own


def plan(settings: Settings, space: Space) -> Plan:
    """Return an upper bound of a search's training; raises InvalidRequest like `make`."""
    method = method_of(settings.method)
    if method.plan:
        found: Plan = function_of(method, method.plan)(settings, space)
        return found
    judged = 1 if method.judged == "end" else settings.units
    return Plan(settings.limit, settings.units if judged == 1 else 1, judged * (settings.limit or 0))
