"""Read from the events of pods why they wait, where their own state does not tell: a volume, an autoscaler."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.quantities import seconds
from kernel_backend.engines.kubernetes.refusals import Refused

EVERY_S = 10.0
MOST = 10  # gangs whose events are read at once
_TELLING = frozenset({"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "NotTriggerScaleUp"})
_GROWS = "TriggeredScaleUp"


class PodEvents:
    """Cache of what the events of waiting pods tell, by name of the pod; the right to list events is not needed."""

    def __init__(self, api: Api) -> None:
        self._api, self.texts = api, dict[str, str]()
        self._asked_at = 0.0

    async def look(self, waiting: Sequence[str]) -> None:
        """Read the events of these pods, at most every ten seconds; drop what is known of others."""
        if not waiting or time.monotonic() < self._asked_at + EVERY_S:
            self.texts = {name: text for name, text in self.texts.items() if name in waiting}
            return
        self._asked_at = time.monotonic()
        self.texts = {name: await self._text(name) for name in waiting[:MOST]}

    async def _text(self, name: str) -> str:
        try:
            listed = await self._api.get(await self._api.of("events"), {"fieldSelector": f"involvedObject.name={name}"})
        except (EngineUnavailable, Refused):
            return ""
        return event_text(listed["items"])


def event_text(events: Sequence[Mapping[str, Any]]) -> str:
    """Return what the newest telling event says; "" if there is none.

    Examples
    --------
    >>> event_text([{"reason": "TriggeredScaleUp", "message": "pod triggered scale-up: [{gpu 0->1 (max: 4)}]"}])
    'the autoscaler adds nodes (pod triggered scale-up: [{gpu 0->1 (max: 4)}])'
    """
    telling = [each for each in events if each.get("reason") in _TELLING | {_GROWS}]
    newest = max(telling, key=_at, default=None)
    if newest is None:
        return ""
    message = str(newest.get("message", ""))
    return f"the autoscaler adds nodes ({message})" if newest["reason"] == _GROWS else f"{newest['reason']}: {message}"


def _at(event: Mapping[str, Any]) -> float:
    return seconds(event.get("lastTimestamp") or event.get("eventTime")) or 0.0
