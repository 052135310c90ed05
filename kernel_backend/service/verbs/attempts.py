"""Receive the records that attempts' launchers send, and answer with instructions for their ranks."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter

from kernel_backend.errors import Fenced, NotFound, Unauthenticated
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import token_digest
from kernel_backend.model.reports import Delivery, Instruction, Report
from kernel_backend.model.states import TrialState
from kernel_backend.service.context import Context
from kernel_backend.service.loop.loop import Loop
from kernel_backend.service.state.start_phases import StartPhases
from kernel_backend.service.verbs.traces import TraceVerbs

LATE_S = 86_400.0  # after its end, in which an attempt's token is still valid
MOST_NOTES = 1000  # of the launchers of an attempt


class AttemptVerbs:
    """Operations that the launchers of attempts call, each with the token of its attempt."""

    def __init__(self, context: Context, loop: Loop, traces: TraceVerbs, phases: StartPhases) -> None:
        self._store, self._bus, self._loop, self._traces = context.store, context.bus, loop, traces
        self._phases = phases
        self._notes = Counter[AttemptId]()

    async def check(self, key: AttemptId, token: str) -> None:
        """Raise Unauthenticated unless the token was issued for this attempt, and Fenced a day after its end.

        What a lost gang has done before its end is taken for a day, should its network come back.
        """
        try:
            known = await asyncio.to_thread(self._store.token_digest, key)
        except NotFound:
            raise Unauthenticated("this token is no attempt's") from None
        if not hmac.compare_digest(known, token_digest(token)):
            raise Unauthenticated("this token is no attempt's")
        ended = (await asyncio.to_thread(self._store.attempt, key)).ended_at
        if ended is not None and time.time() - ended > LATE_S:
            raise Fenced(f"attempt {key} is over: exit")

    async def deliver(self, key: AttemptId, token: str, delivery: Delivery) -> Instruction:
        """Store records, such as metrics, that an attempt's launcher sends.

        Return the number of the last stored record, and an instruction for the ranks. Raises Unauthenticated for a
        wrong token. If there is a newer attempt, only records up to the step from which that one resumed are stored,
        and Fenced is raised.
        """
        await self.check(key, token)
        accepted = 0
        if delivery.records:
            accepted = await asyncio.to_thread(self._store.accept, key, delivery.records, time.time())
            if any(isinstance(record, Report) and record.kind == "validation" for record in delivery.records):
                await self._decide(key.experiment)
            self._bus.notify()
        await asyncio.to_thread(self._store.keep_measured, key, delivery, time.time())
        self._phases.take(key, delivery, time.time())
        for text in delivery.notes[: MOST_NOTES - self._notes[key]]:
            self._notes[key] += 1
            await asyncio.to_thread(self._store.note, key, text, time.time())
            self._bus.notify()
        trial = await asyncio.to_thread(self._store.trial, key.experiment, key.trial)
        if trial.attempt != key.number:
            raise Fenced(f"attempt {key} was followed by attempt {trial.attempt}: exit", accepted=accepted)
        instruct = {TrialState.RELEASING: "release", TrialState.STOPPING: "stop"}.get(trial.state, "continue")
        trace = await self._traces.pending(key)
        return Instruction.model_validate(
            {"accepted": accepted, "instruct": instruct, "until": trial.until, "trace": trace}
        )

    async def _decide(self, number: int) -> None:
        """Let the search of experiment `number` decide about new validation reports, for which ranks may be waiting.

        Does nothing if the experiment is no search.
        """
        experiment = await asyncio.to_thread(self._store.experiment, number)
        if experiment.config.search is not None and await asyncio.to_thread(self._loop.searches.take_news, experiment):
            self._loop.wake()
