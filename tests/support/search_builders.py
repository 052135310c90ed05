"""Create searches for tests, to be driven by hand or logged."""

from __future__ import annotations

from typing import Any

from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.records import (
    Closed,
    Complete,
    Continue,
    Create,
    Exited,
    Extended,
    Happening,
    LogEntry,
    ParamsAssigned,
    Pause,
    Promoted,
    Prune,
    Reason,
    Reported,
    Resume,
    Settings,
    Vacancy,
)
from kernel_backend.model.search.space import Parameter, Space, When
from kernel_backend.search import make
from kernel_backend.search.base import Searcher
from kernel_backend.search.log import apply_event

SPACE = Space(
    parameters=(
        Parameter(name="lr", domain=Range(low=1e-4, high=1e-1, scale="log")),
        Parameter(name="width", domain=Choices(values=(32, 64, 128))),
        Parameter(name="opt", domain=Choices(values=("sgd", "adam"))),
        Parameter(name="momentum", domain=Range(low=0, high=0.99), when=When(name="opt", values=("sgd",))),
    )
)


def settings(**asked: Any) -> Settings:
    """Return settings of an ASHA search with 16 units (rungs 1, 4, 16) and 64 trials, changed by the arguments."""
    return Settings.model_validate({"method": "asha", "units": 16, "trials": 64, "sampler": "random"} | asked)


def searcher(**asked: Any) -> Searcher:
    """Return the searcher for these settings in `SPACE`."""
    return make(settings(**asked), SPACE)


def create(search: Searcher, count: int) -> list[int]:
    """Create this many new trials."""
    found = [search.on_slot() for _ in range(count)]
    assert all(isinstance(each, Create) for each in found)
    return [each.trial for each in found if each is not None]


class Logged:
    """Searcher that writes its log, like the service does."""

    def __init__(self, inner: Searcher) -> None:
        self.inner = inner
        self.log: list[LogEntry] = []

    def _happen(self, event: Happening) -> Any:
        decision = apply_event(self.inner, event)
        self.log.append(LogEntry(number=len(self.log) + 1, at=0.0, event=event, decision=decision))
        return decision

    def wants(self) -> int:
        return self.inner.wants()

    def on_slot(self) -> Create | Resume | None:
        found: Create | Resume | None = self._happen(Vacancy())
        return found

    def granted(self, decision: Create | Resume) -> None:
        raise AssertionError("a log is written once")

    def on_report(self, trial: int, unit: int, value: float) -> Continue | Pause | Prune | Complete:
        found: Continue | Pause | Prune | Complete = self._happen(Reported(trial=trial, unit=unit, value=value))
        return found

    def on_exit(self, trial: int, reason: Reason) -> None:
        self._happen(Exited(trial=trial, reason=reason))

    def told(self, trial: int, params: dict[str, Value]) -> None:
        self._happen(ParamsAssigned(trial=trial, params=params))

    def promote(self, trial: int) -> None:
        self._happen(Promoted(trial=trial))

    def extend(self, trials: int | None) -> None:
        self._happen(Extended(trials=trials))

    def close(self) -> None:
        self._happen(Closed(limit="budget"))

    def over(self) -> bool:
        return self.inner.over()
