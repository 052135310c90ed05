"""Read from Kubernetes' events why pods wait or were deleted, for pods whose own status does not say so."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.quantities import seconds
from kernel_backend.engines.kubernetes.refusals import Refused

EVERY_S = 10.0
MOST = 10  # gangs whose events are read at once
_GROWS = "TriggeredScaleUp"
_TELLING = frozenset({"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "NotTriggerScaleUp", _GROWS})
# Of pods that are deleted: who has done it. Older versions of Kubernetes (before 1.26) tell it in events alone.
_TAKEN = frozenset({"Preempted", "Evicted", "TaintManagerEviction", "NodeControllerEviction", "Disrupted"})
SOON_S, LATE_S = 1.0, 10.0  # between looks at events of a pod that is deleted, and in which they come


class PodEvents:
    """Cache of texts for users on why pods wait or were deleted, by pod name, from Kubernetes' events.

    It stays empty if the service may not list events.
    """

    def __init__(self, api: Api) -> None:
        self._api, self.texts = api, dict[str, str]()
        self._asked_at = 0.0
        self._taken: dict[str, tuple[float, float]] = {}  # first and last look at pods that are deleted, by name

    async def look(self, waiting: Sequence[str], taken: Sequence[str] = ()) -> None:
        """Update the texts of pods that wait (`waiting`, at most every 10 s) and of pods that were deleted (`taken`).

        The texts of all other pods are dropped.
        """
        self.texts = {name: text for name, text in self.texts.items() if name in waiting or name in taken}
        await self._look_at_taken(taken)
        if waiting and time.monotonic() >= self._asked_at + EVERY_S:
            self._asked_at = time.monotonic()
            self.texts |= {name: await self._text(name, _TELLING) for name in waiting[:MOST]}

    async def _look_at_taken(self, taken: Sequence[str]) -> None:
        now = time.monotonic()
        self._taken = {name: self._taken.get(name, (now, 0.0)) for name in taken}
        due = [
            name
            for name, (first, last) in self._taken.items()
            if not self.texts.get(name) and now < first + LATE_S and now >= last + SOON_S
        ]
        for name in due[:MOST]:
            self.texts[name] = await self._text(name, _TAKEN)
            self._taken[name] = self._taken[name][0], now

    async def _text(self, name: str, telling: Collection[str]) -> str:
        try:
            listed = await self._api.get(await self._api.of("events"), {"fieldSelector": f"involvedObject.name={name}"})
        except (EngineUnavailable, Refused):
            return ""
        return event_text(listed["items"], telling)


def event_text(events: Sequence[Mapping[str, Any]], reasons: Collection[str] = _TELLING) -> str:
    """Return a text for users from the newest of a pod's events with one of these reasons; "" if there is none.

    Examples
    --------
    >>> event_text([{"reason": "TriggeredScaleUp", "message": "pod triggered scale-up: [{gpu 0->1 (max: 4)}]"}])
    'the autoscaler adds nodes (pod triggered scale-up: [{gpu 0->1 (max: 4)}])'
    """
    telling = [each for each in events if each.get("reason") in reasons]
    newest = max(telling, key=_at, default=None)
    if newest is None:
        return ""
    message = str(newest.get("message", ""))
    return f"the autoscaler adds nodes ({message})" if newest["reason"] == _GROWS else f"{newest['reason']}: {message}"


def _at(event: Mapping[str, Any]) -> float:
    return seconds(event.get("lastTimestamp") or event.get("eventTime")) or 0.0
