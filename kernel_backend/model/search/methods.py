"""Search methods: what is known of each before it runs, and those that are built in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat, model_validator

from kernel_backend.model.record import Record, Value

Sampler = Literal["kde", "random", "sobol", "tpe", "gp", "cmaes"]

NAME = r"^[a-z][a-z0-9_-]{0,63}$"
COMMON = ("trials", "parallel", "budget", "max_time", "warm")  # fields of `Search` that every search may have


class MethodOption(Record):
    """One option of a method's own, given as `--search-option NAME=VALUE`."""

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
        """Return what is wrong with a value (`must be at least 1`); empty where it may be given."""
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
    """One method of searching: validation, help, dry runs, the service and the views read this record.

    `factory` names a function `(settings, space) -> Searcher` as `package.module:function`. It is imported when a
    search is made, so that a kernel, which only needs the record, imports nothing else.
    """

    name: str = Field(pattern=NAME)
    summary: str
    factory: str = Field(pattern=r"^[\w.]+:\w+$")
    uses: tuple[str, ...] = ()  # fields of `Search` that mean something to it, besides COMMON
    options: tuple[MethodOption, ...] = ()  # its own
    trials: int | None = None  # where neither trials nor a budget or time are given; None: as the factory has it
    sampler: Sampler = "random"  # what gives new trials their values, unless it uses `sampler` and another is given
    learns: bool = False  # whether earlier results make a difference to its new trials, whatever the sampler
    space: Literal["none", "any", "ranges", "counted"] = "ranges"  # what must be searched; counted: a finite number
    # When it decides about a trial. `rungs`: the searcher has ladders of them (`brackets`), which the views draw.
    judged: Literal["end", "midway", "rungs"] = "end"
    own_class: bool = False  # it is a class of the user's, `--search NAME:CLASS`, in a process of its own
    plan: str = Field("", pattern=r"^([\w.]+:\w+)?$")  # `(settings, space) -> Plan`, for a dry run
    package: str = ""  # the distribution that adds it; empty: it is built in

    @property
    def slow(self) -> bool:
        """Whether nobody else may wait for its searcher: code that is not ours may take its time, and fail."""
        return self.own_class or bool(self.package)

    def may_use(self, field: str) -> bool:
        """Whether a field of `Search` means something to it."""
        return field in self.uses or (field in COMMON and self.space != "none")

    def own_options(self, given: dict[str, Value]) -> dict[str, Value]:
        """Return all options of its own, with defaults for those that are not given."""
        return {option.name: given.get(option.name, option.default) for option in self.options}


class SearchMethods(Record):
    """All methods that can be used where the service runs, and what keeps others from it."""

    methods: tuple[SearchMethod, ...]
    problems: tuple[str, ...] = ()


_RUNGS = ("sampler", "stopping", "eta", "first_rung")
_PLAIN = "kernel_backend.search.asha:plain_searcher"

# In the order of help and documentation. A method of another package is a record like these, see CONTRIBUTING.md.
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
