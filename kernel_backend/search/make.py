"""Make the searcher of a method, and tell what it will do."""

from __future__ import annotations

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.registry import function_of, method_of
from kernel_backend.model.search.space import Space
from kernel_backend.search.base import Plan, Searcher
from kernel_backend.search.custom import SearchProcess


def make(settings: Settings, space: Space, asker: SearchProcess | None = None) -> Searcher:
    """The searcher of these settings, at its beginning; the same settings make the same one.

    `asker` is the class of the cell, for the method custom. Raises InvalidRequest where the method cannot search this
    space, or a library of its sampler or the package of the method is missing.
    """
    method = method_of(settings.method)
    factory = function_of(method, method.factory)
    full = settings.model_copy(update={"options": method.own_options(settings.options)})
    if not method.own_class:
        searcher: Searcher = factory(full, space)
        return searcher
    if asker is None:
        raise InvalidRequest(f"a custom search needs the process of its class {settings.source}")
    own: Searcher = factory(full, space, asker)
    return own


def plan(settings: Settings, space: Space) -> Plan:
    """Return how much a search trains at most; raises InvalidRequest as `make` does."""
    method = method_of(settings.method)
    if method.plan:
        found: Plan = function_of(method, method.plan)(settings, space)
        return found
    judged = 1 if method.judged == "end" else settings.units
    return Plan(settings.limit, settings.units if judged == 1 else 1, judged * (settings.limit or 0))
