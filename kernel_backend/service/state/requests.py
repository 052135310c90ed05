"""Who asks for slots, and how: from the records of trials and searches to the asks of the scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from kernel_backend.lifecycle.backoff import rest
from kernel_backend.model.experiment import Config, Experiment, ScheduledExperiment
from kernel_backend.model.resources import Node
from kernel_backend.model.trial import ScheduledTrial
from kernel_backend.scheduler.requests import ANY_TRIAL, SlotRequest
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.checkpoint_copies import CheckpointCopies
from kernel_backend.service.environments import Preparation
from kernel_backend.service.isolation import RETRY
from kernel_backend.service.search.runner import Searches
from kernel_backend.store.base import Store


class StartError(NamedTuple):
    """Why a trial could not be started, and when it is tried again: until then it holds nobody up."""

    text: str
    failures: int  # in a row
    again: float  # as time.monotonic() tells it

    @classmethod
    def after(cls, before: StartError | None, text: str) -> StartError:
        """The trouble of one more try in vain, which is tried again later and later."""
        failures = 1 + (before.failures if before is not None else 0)
        return cls(text, failures, time.monotonic() + RETRY.pause(failures))

    @property
    def reason(self) -> str:
        """Why it waits; "" once it may be tried again."""
        return f"cannot be started just now, and is tried again: {self.text}" if time.monotonic() < self.again else ""


class RequestBuilder:
    """Makes asks; what it is asked may read the store, and belongs in a thread. Users' files it never waits for."""

    def __init__(
        self, store: Store, searches: Searches, preparation: Preparation, beginnings: CheckpointCopies
    ) -> None:
        self._store, self._searches = store, searches
        self._preparation, self._beginnings = preparation, beginnings
        self.troubles: dict[tuple[int, int], StartError] = {}  # what kept trials from being started, the last time
        self._granted: dict[int, float] = {}  # when each search got a gang, the last time

    @property
    def unsettled(self) -> bool:
        """Return whether users' files were asked anything for the first time since `settle`."""
        return self._preparation.lookups.unsettled or self._beginnings.lookups.unsettled

    async def settle(self) -> None:
        """Wait a moment for what users' files are asked for the first time."""
        await asyncio.gather(self._preparation.lookups.settle(), self._beginnings.lookups.settle())

    def for_trial(self, experiment: ScheduledExperiment, trial: ScheduledTrial, pool: str) -> SlotRequest:
        """The ask of a trial that is queued."""
        preparing = self._preparation.wait(experiment) or self._beginnings.wait(
            experiment.owner, trial, trial.begins_from, or_newer=experiment.config.search is not None
        )
        ask = plain_ask(experiment, trial, pool)
        if preparing:
            ask = replace(ask, preparing=preparing)
        trouble = self.troubles.get((trial.experiment, trial.index))
        if trouble is not None:
            ask = replace(ask, trouble=trouble.text, preparing=preparing or trouble.reason)
        if trial.attempt < 2:  # nobody rests after the first
            return ask
        attempts = self._store.attempts(trial.experiment, trial.index)
        return replace(ask, failed_at=attempts[-1].ended_at or 0.0, rest=rest(trial, attempts))

    def for_search(self, experiment: Experiment, in_hand: int, nodes: Iterable[Node], pool: str) -> list[SlotRequest]:
        """A search's asks: which trial gets a gang is decided when it is granted, so that no promotion goes stale.

        One that no node could hold asks once, to be told so.
        """
        search, slots = experiment.config.search, experiment.config.slots
        room = max(1, sum(node.slots for node in nodes if node.pool == pool) // slots)
        if search is not None and search.parallel is not None:
            room = min(room, search.parallel - in_hand)
        wanted = min(room, self._searches.wants(experiment)) if room > 0 else 0
        trouble = self.troubles.get((experiment.number, ANY_TRIAL))
        first = replace(
            _ask(experiment, ANY_TRIAL, self._granted.get(experiment.number, experiment.created_at), pool),
            trouble=trouble.text if trouble is not None else "",
            preparing=self._preparation.wait(experiment) or (trouble.reason if trouble is not None else ""),
        )
        return [first, *(replace(first, nth=nth) for nth in range(1, wanted))] if wanted else []

    def got(self, experiment: int, at: float) -> None:
        """A gang was granted to one of its trials: a search asks for the next from then on."""
        self._granted[experiment] = max(at, self._granted.get(experiment, at))

    def may_change(self, experiment: ScheduledExperiment, trial: ScheduledTrial) -> bool:
        """Whether an ask may become another by itself, without a word of the store."""
        return (
            experiment.config.env == "locked"
            or (trial.begins_from is not None and trial.attempt == 0)
            or (trial.experiment, trial.index) in self.troubles
        )


def plain_ask(experiment: ScheduledExperiment, trial: ScheduledTrial, pool: str) -> SlotRequest:
    """What a trial asks for, whether it may ask just now or not."""
    return _ask(experiment, trial.index, trial.queued_at, pool, trial.excluded)


def draft_ask(config: Config, owner: str, group: str, pool: str) -> SlotRequest:
    """What an experiment would ask for that has no number yet."""
    return SlotRequest(0, 1, config.slots, 0.0, owner=owner, group=group, pool=pool, one_node=config.one_node)


def _ask(
    experiment: ScheduledExperiment, trial: int, queued_at: float, pool: str, excluded: Collection[str] = frozenset()
) -> SlotRequest:
    config = experiment.config
    return SlotRequest(
        experiment.number,
        trial,
        config.slots,
        queued_at,
        frozenset(excluded),
        owner=experiment.owner,
        group=experiment.group,
        pool=pool,
        priority=config.priority if experiment.priority is None else experiment.priority,
        by_admin=experiment.priority is not None,
        one_node=config.one_node,
        preemptible=config.preemptible,
        max_time=config.max_time,
    )


def pool_of(config: Config, picture: ClusterState) -> str:
    """Return the pool in which an experiment requests slots."""
    return picture.usual_pool if config.pool is None else config.pool
