"""Follow an experiment by polling the service about once a second; no connection stays open after an interrupt."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernel_backend.client import Client
from kernel_backend.model.record import Record
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.stream import Message
from kernel_backend.model.views.overview import Overview
from kernel_backend.retry import RetryPolicy, exponential
from kernel_backend.text import message_line

LOOKS = RetryPolicy(exponential(0.2, 1.0, factor=1.5))  # intervals between polls


@dataclass(frozen=True)
class Look:
    """Result of one poll of an experiment: the overview, that of the previous poll, and the validations in between."""

    before: Overview
    overview: Overview
    validations: tuple[StoredReport, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Return what has changed since the previous poll, as lines of a log.

        There are lines for attempts that have changed, the experiment's state, new validations and new notes.
        """
        found = [message_line(message, self.before, self.overview) for message in self._messages()]
        return [line for line in found if line]

    def _messages(self) -> Iterator[Message]:
        for attempt in self.overview.attempts:
            if attempt not in self.before.attempts:
                yield self._message("attempt", attempt)
        if not self.overview.at_rest:
            yield self._message("experiment", self.overview.experiment)
        for report in self.validations:
            yield self._message("report", report)
        for text in self.overview.warnings:
            if text not in self.before.warnings:
                yield self._message("note", text)

    def _message(self, type: str, data: Record | str) -> Message:
        body = {"text": data} if isinstance(data, str) else data.to_json()
        fields = {"seq": self.overview.seq, "at": 0.0, "experiment": self.overview.experiment.number}
        return Message.model_validate({**fields, "type": type, "data": body})


def follow(client: Client, overview: Overview, timeout: float | None = None) -> Iterator[Look]:
    """Poll an experiment and yield the result of each poll, until it has ended or needs an action by the user.

    `overview` is the experiment's state before the first poll. Ends also after `timeout` seconds. Raises errors of the
    service, but waits for a service that restarts.
    """
    number, seen = overview.experiment.number, 0
    waits = replace(LOOKS, limit=math.inf if timeout is None else timeout).waits()
    while True:
        now = client.experiment(number)
        new = client.reports(number, kind="validation", after=seen)
        seen = new[-1].seq if new else seen
        yield Look(overview, now, tuple(new))
        overview = now
        pause = None if now.at_rest else next(waits, None)
        if pause is None:
            return
        time.sleep(pause)
