"""Request traces (recordings by torch.profiler) of a running training."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.trace import Trace, TraceRequest
from kernel_backend.model.states import TrialState
from kernel_backend.model.trial import Attempt
from kernel_backend.model.views.overview import Overview
from kernel_backend.service.access import changeable
from kernel_backend.store.base import Store


class TraceVerbs:
    """Operations on requests for traces; the requests are stored, so that a restart of the service loses none."""

    def __init__(
        self, store: Store, overview: Callable[[Person, int], Awaitable[Overview]], changed: Callable[[], None]
    ) -> None:
        self._store, self._overview, self._changed = store, overview, changed
        self._pending: set[AttemptId] | None = None  # None: not read yet
        self._lock = asyncio.Lock()  # a request that is being stored must not be taken for an answered one

    async def request(self, who: Person, number: int, wanted: TraceRequest) -> Overview:
        """Request that ranks of a running trial record some steps; its launchers receive this with the next heartbeat.

        Raises Conflict if the trial does not run, or records a trace already. Raises InvalidRequest for a rank that the
        trial does not have, and for an experiment that runs a command, which cannot be traced.
        """
        experiment = await changeable(self._store, who, number)
        if experiment.config.form == "command":
            raise InvalidRequest("a command has processes of its own, whose steps cannot be traced from outside")
        index = wanted.trial or await self._front(who, number)
        trial = await asyncio.to_thread(self._store.trial, number, index)
        if trial.state is not TrialState.RUNNING:
            raise Conflict(f"trial {trial.id} is {trial.state}: a trace is recorded while it is running")
        attempt = await asyncio.to_thread(self._store.attempt, AttemptId(number, index, trial.attempt))
        if attempt.trace is not None:
            raise Conflict(f"attempt {attempt.id} is recording a trace already: a note reports its end")
        _check(wanted, attempt)
        trace = Trace(id=secrets.token_hex(4), steps=wanted.steps, ranks=tuple(sorted(set(wanted.ranks))))
        async with self._lock:
            await asyncio.to_thread(self._store.set_trace, attempt.id, trace, time.time())
            (await self._known()).add(attempt.id)
        self._changed()
        return await self._overview(who, number)

    async def pending(self, key: AttemptId) -> Trace | None:
        """Return the trace that was requested of an attempt and is not recorded yet; None if there is none."""
        known = await self._known()
        if key not in known:
            return None
        async with self._lock:
            attempt = await asyncio.to_thread(self._store.attempt, key)
            if attempt.trace is None:
                known.discard(key)
        return attempt.trace

    async def _front(self, who: Person, number: int) -> int:
        front = (await self._overview(who, number)).front
        return front.index if front is not None else 1

    async def _known(self) -> set[AttemptId]:
        if self._pending is None:
            attempts = await asyncio.to_thread(self._store.open_attempts)
            if self._pending is None:  # else a concurrent call has read them
                self._pending = {each.id for each in attempts if each.trace is not None}
        return self._pending


def _check(wanted: TraceRequest, attempt: Attempt) -> None:
    """Raise InvalidRequest if a requested rank does not exist in the gang."""
    size = sum(len(share.slots) for share in attempt.actual)
    wrong = [rank for rank in wanted.ranks if not 0 <= rank < size]
    if wrong:
        ranks = "rank 0 alone" if size == 1 else f"ranks 0 to {size - 1}"
        raise InvalidRequest(f"there is no rank {wrong[0]} in attempt {attempt.id}: it has {ranks}")
