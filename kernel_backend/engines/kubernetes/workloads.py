"""Read from Kueue why it does not admit the gangs that wait in its queues."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.admission import WORKLOADS, queue_text
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.discovery import Discovery
from kernel_backend.engines.kubernetes.refusals import Refused

EVERY_S = 10.0


class QueuedWorkloads:
    """Cache of Kueue's reasons why gangs wait, by pod name; it stays empty if the service may not list Workloads."""

    def __init__(self, api: Api, discovery: Discovery) -> None:
        self._api, self._discovery, self.texts = api, discovery, dict[str, str]()
        self._asked_at = 0.0

    async def look(self, waiting: Sequence[str]) -> None:
        """Update the reasons why the gangs of the waiting pods are not admitted by Kueue, at most every 10 s.

        `waiting` are the names of these pods; the reasons for all other pods are dropped.
        """
        if not waiting or time.monotonic() < self._asked_at + EVERY_S:
            self.texts = {name: text for name, text in self.texts.items() if name in waiting}
            return
        self._asked_at = time.monotonic()
        told = await self._all()
        self.texts = {name: text for name in waiting if (text := told.get(name.rpartition("-")[0], ""))}

    async def _all(self) -> dict[str, str]:
        """Return why Kueue does not admit each gang ("" if it does), by name of the gang's pod group.

        Empty if the cluster has no Kueue, or the API server does not answer.
        """
        try:
            if not (version := (await self._discovery.newest()).workloads):
                return {}
            listed = await self._api.get(await self._api.of(WORKLOADS, version=version))
        except (EngineUnavailable, Refused):
            return {}
        return {each["metadata"]["name"]: queue_text(each) for each in listed["items"]}
