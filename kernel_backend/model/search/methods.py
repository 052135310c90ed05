"""Describe search methods for validation and help, and list the built-in ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat, model_validator

from kernel_backend.model.record import Record, Value

Sampler = Literal["kde", "random", "sobol", "tpe", "gp", "cmaes"]

NAME = r"^[a-z][a-z0-9_-]{0,63}$"
COMMON = (
    "trials",
    "parallel",
    "budget",
    "max_time",
    "keep_allocation",
    "warm",
)  # fields of `Search` that apply to every search


class MethodOption(Record):
    """One option of a search method, given as `--search-option NAME=VALUE`.

    Parameters
    ----------
    name : str
        Lower case letters, digits, ``-`` and ``_``, beginning with a letter.
    type : {"int", "float", "bool", "str"}
        Type of its values.
    default : bool, int, float or str
        Value if the user gives none; it must be valid by `type`, `least`, `most` and `choices`.
    summary : str
        Description, for help and documentation.
    least : float, optional
        Smallest valid number.
    most : float, optional
        Largest valid number.
    choices : tuple, optional
        The valid values; by default all values of the type.

    Examples
    --------
    >>> from daylight.search import MethodOption
    >>> option = MethodOption(name="temperature", type="float", default=0.5, least=0.01, most=1.0)
    >>> option.refuse(2.0)
    'must be at most 1'
    """

    name: str = Field(pattern=NAME)
    type: Literal["int", "float", "bool", "str"]
    default: Value
    summary: str = ""
    least: FiniteFloat | None = None
    most: FiniteFloat | None = None
    choices: tuple[Value, ...] = ()

    @model_validator(mode="after")
    def _default_is_allowed(self) -> MethodOption:
        if reason := self.refuse(self.default):
            raise ValueError(f"the default {self.default!r} of {self.name} {reason}")
        return self

    def refuse(self, value: Value) -> str:
        """Return why a value is invalid for this option.

        Parameters
        ----------
        value : Any
            Value that a user has given.

        Returns
        -------
        str
            The reason, such as ``must be at least 1``; empty if the value is valid.
        """
        kinds = {"int": int, "float": int | float, "bool": bool, "str": str}
        names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
        if not isinstance(value, kinds[self.type]) or (self.type != "bool" and isinstance(value, bool)):
            return f"must be {names[self.type]}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(str, self.choices))}"
        if isinstance(value, int | float):
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                return "must fit into 64 bits"
            if self.least is not None and not value >= self.least:
                return f"must be at least {self.least:g}"
            if self.most is not None and not value <= self.most:
                return f"must be at most {self.most:g}"
        return ""


class SearchMethod(Record):
    """Description of a search method for validation, help, dry runs, the service and the views.

    The code of the method is imported only when a search is made, by the path in `factory`. A process that only reads
    this description, such as a notebook kernel, does not import it.

    Parameters
    ----------
    name : str
        Name for `--search`. The entry point of another package must have the same name.
    summary : str
        Description, for help and documentation.
    factory : str
        ``package.module:function`` of a function ``(settings, space) -> Searcher``.
    uses : tuple of str
        Fields of `Settings` that users may set with this method, besides those common to all methods.
    options : tuple of MethodOption
        Options of its own. The factory finds their values in ``settings.options``.
    trials : int, optional
        Number of trials without `--trials`, `--budget` and `--max-time`; None if the factory decides.
    sampler : str, default "random"
        Sampler that proposes new trials. Users may choose another one if `uses` has ``"sampler"``.
    learns : bool, default False
        True if earlier results change its proposals, whatever the sampler.
    space : {"none", "any", "ranges", "counted"}, default "ranges"
        Search space that the method requires: none, any, one with at least one range or list of choices, or one with a
        finite number of points.
    judged : {"end", "midway", "rungs"}, default "end"
        When the method decides about a trial: at the end of its training, during it, or at rungs (fixed training
        lengths at which trials are compared). With ``rungs``, the searcher must have `brackets`, which are displayed.
    own_class : bool, default False
        Reserved for the method ``custom``, which runs a class of the user.
    follows : bool, default False
        Reserved for the method ``checkpoints``, whose trials measure the checkpoints of a training.
    plan : str, optional
        ``package.module:function`` of a function ``(settings, space) -> Plan``, for dry runs.
    package : str
        Distribution that adds it, set by the registry; empty for a built-in method.

    Examples
    --------
    >>> from daylight.search import MethodOption, SearchMethod
    >>> METHOD = SearchMethod(
    ...     name="annealing",
    ...     summary="steps around the best trial, shorter and shorter ones",
    ...     factory="annealing.searcher:make",
    ...     options=(MethodOption(name="temperature", type="float", default=0.5),),
    ...     trials=12,
    ... )
    >>> METHOD.own_options({})
    {'temperature': 0.5}
    """

    name: str = Field(pattern=NAME)
    summary: str
    factory: str = Field(pattern=r"^[\w.]+:\w+$")
    uses: tuple[str, ...] = ()  # fields of `Search` that apply to it, besides COMMON
    options: tuple[MethodOption, ...] = ()  # options of this method only
    trials: int | None = None  # default number of trials without budget or time limit; None: computed by the factory
    sampler: Sampler = "random"  # default sampler of new trials
    learns: bool = False  # earlier results change its proposals, with any sampler
    space: Literal["none", "any", "ranges", "counted"] = "ranges"  # required kind of space; counted: finite
    # When it decides about a trial. `rungs`: the searcher has `brackets` of rungs, which the views draw.
    judged: Literal["end", "midway", "rungs"] = "end"
    own_class: bool = False  # it is a user's class, `--search NAME:CLASS`, in a separate process
    follows: bool = False  # its trials are the checkpoints of a training, which an evaluation measures
    plan: str = Field("", pattern=r"^([\w.]+:\w+)?$")  # `module:function` of `(settings, space) -> Plan`, for a dry run
    package: str = ""  # distribution that provides it; empty: built in

    @property
    def slow(self) -> bool:
        """Return whether the searcher runs in a thread of its own, because it may be slow or fail.

        This is so for a method of another package, a class of the user, and a search that reads checkpoints.
        """
        return self.own_class or self.follows or bool(self.package)

    def may_use(self, field: str) -> bool:
        """Return whether this method supports a setting, such as ``eta``.

        Parameters
        ----------
        field : str
            Name of a field of `Settings`, such as ``eta``.

        Returns
        -------
        bool
            True if users may set it with this method.
        """
        return field in self.uses or (field in COMMON and self.space != "none")

    def own_options(self, given: dict[str, Value]) -> dict[str, Value]:
        """Return the values of all options of the method, with defaults for options that are not given.

        Parameters
        ----------
        given : dict of str to Any
            Values that the user has given, by name.

        Returns
        -------
        dict of str to Any
            A value for each option.
        """
        return {option.name: given.get(option.name, option.default) for option in self.options}


class SearchMethods(Record):
    """Search methods that the service can use, and the problems of packages whose methods it cannot use."""

    methods: tuple[SearchMethod, ...]
    problems: tuple[str, ...] = ()


_RUNGS = ("sampler", "stopping", "eta", "first_rung")
_PLAIN = "kernel_backend.search.asha:plain_searcher"

# In the order of help and documentation. CONTRIBUTING.md says how packages add methods.
BUILT_IN: tuple[SearchMethod, ...] = (
    SearchMethod(
        name="single",
        summary="no search: one trial",
        factory=_PLAIN,
        trials=1,
        space="none",
    ),
    SearchMethod(name="random", summary="each point is equally likely", factory=_PLAIN, trials=16),
    SearchMethod(
        name="grid",
        summary="every combination of the values",
        factory="kernel_backend.search.grid:grid_searcher",
        plan="kernel_backend.search.grid:grid_plan",
        space="counted",
    ),
    SearchMethod(
        name="sobol",
        summary="points spread evenly over the space (a Sobol sequence)",
        factory=_PLAIN,
        trials=16,
        sampler="sobol",
    ),
    SearchMethod(
        name="asha",
        summary="asynchronous successive halving: many trials train a little, the best of them go on",
        factory="kernel_backend.search.asha:asha_searcher",
        plan="kernel_backend.search.asha:asha_plan",
        uses=(*_RUNGS, "brackets"),
        trials=64,
        sampler="kde",
        judged="rungs",
    ),
    SearchMethod(
        name="hyperband",
        summary="all of Hyperband's brackets side by side, from many short trials to a few whole ones",
        factory="kernel_backend.search.asha:hyperband_searcher",
        plan="kernel_backend.search.asha:hyperband_plan",
        uses=_RUNGS,
        judged="rungs",
    ),
    SearchMethod(
        name="pbt",
        summary="population-based training: copies of the best, a little changed, replace the worst",
        factory="kernel_backend.search.pbt:pbt_searcher",
        plan="kernel_backend.search.pbt:pbt_plan",
        uses=("sampler", "population", "interval"),
        judged="midway",
    ),
    SearchMethod(name="tpe", summary="Optuna's TPE sampler", factory=_PLAIN, trials=16, sampler="tpe"),
    SearchMethod(name="gp", summary="Optuna's Gaussian process", factory=_PLAIN, trials=16, sampler="gp"),
    SearchMethod(name="cmaes", summary="CMA-ES, for many numbers", factory=_PLAIN, trials=16, sampler="cmaes"),
    SearchMethod(
        name="custom",
        summary="a class in the cell",
        factory="kernel_backend.search.custom:Custom",
        uses=("source",),
        trials=16,
        learns=True,
        space="any",
        own_class=True,
    ),
)

# Not offered to users: `daylight evaluate` chooses it. Its trials are the checkpoints of what `--from` names.
CHECKPOINTS = SearchMethod(
    name="checkpoints",
    summary="each checkpoint of a training is measured by an evaluation",
    factory="kernel_backend.search.follower:follower",
    uses=("parallel",),
    options=(
        MethodOption(
            name="follow", type="bool", default=False, summary="also those to come, with values that its training gets"
        ),
    ),
    space="none",
    follows=True,
)
