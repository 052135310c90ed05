"""Test that no submission is lost or duplicated, whether the service, its requests or the answers are cut off."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes import api
from kernel_backend.engines.kubernetes.api import Api, Query
from kernel_backend.engines.kubernetes.manifests import GangName, Identity, Manifest, gang
from kernel_backend.engines.kubernetes.objects import GangObjects
from kernel_backend.engines.kubernetes.refusals import Refused
from kernel_backend.model.cluster.pools import read_pool
from kernel_backend.model.ids import AttemptId
from tests.support.builders import share
from tests.support.kubernetes_stub import Cluster, Refusal
from tests.unit.engines.test_slurm_script import job

COUNT = 1000
POOL = read_pool("cloud", {"engine": "kubernetes", "image": "i"})
GANG = job(2).model_copy(update={"placement": (share(), share((0, 1), "n2")), "staged": True})


def made(name: GangName) -> tuple[Manifest, list[Manifest]]:
    """Return the objects of a gang."""
    return gang(name, GANG, "secret", POOL, Path("/home/attempt"), Identity(1000, 1000))


class Died(Exception):
    """Error: the service dies at this point."""


class FaultyApi(Api):
    """API server in memory that fails, refuses, loses answers, or raises Died."""

    def __init__(self, seed: int) -> None:
        super().__init__(None, "ml")
        self.cluster, self._draws = Cluster(), random.Random(seed)

    async def _once(self, method: str, path: str, query: Query, body: dict[str, Any] | None) -> dict[str, Any]:
        draw = self._draws.random()
        if draw < 0.1:
            raise Refused(self._draws.choice([429, 500, 503]), "", "try again")
        if draw < 0.15:
            raise EngineUnavailable("no answer")
        if draw < 0.2:
            raise Died
        try:
            found = self._carried_out(method, *path.split("/")[5:], body=body or {})
        except Refusal as error:
            raise Refused(error.status, error.reason, str(error)) from None
        if draw > 0.9:
            raise EngineUnavailable("the answer is lost")
        if draw > 0.85:
            raise Died
        return found

    def _carried_out(self, method: str, kind: str, name: str = "", *, body: dict[str, Any]) -> dict[str, Any]:
        if method == "POST":
            return self.cluster.create(kind, body)
        return self.cluster.delete(kind, name, body) if method == "DELETE" else self.cluster.get(kind, name)


def test_a_thousand_gangs_of_two_pods_are_each_made_once(monkeypatch):
    monkeypatch.setattr(api, "PAUSES_S", (0.0, 0.0))
    server, tries = FaultyApi(1), Counter[int]()

    async def submit(number: int) -> None:
        name = GangName("5f", "cloud", AttemptId(number, 1, 1), f"token {number}")
        while True:
            tries[number] += 1
            try:
                await GangObjects(server).create(*made(name))
            except (EngineUnavailable, Died):
                continue
            return

    async def go() -> None:
        for number in range(COUNT):
            await submit(number)

    asyncio.run(go())
    kinds = Counter(kind for kind, _ in server.cluster.objects)
    assert kinds == {"configmaps": COUNT, "secrets": COUNT, "pods": 2 * COUNT}
    assert set(server.cluster.created.values()) == {1, 2}  # an owner and its Secret have one name
    assert max(tries.values()) > 3


def test_a_gang_that_is_refused_midway_leaves_nothing_however_often_it_is_tried(monkeypatch):
    monkeypatch.setattr(api, "PAUSES_S", (0.0, 0.0))
    server = FaultyApi(2)
    server.cluster.quota = {"pods": 1}
    name, objects = GangName("5f", "cloud", AttemptId(1, 1, 1), "digest"), GangObjects(server)

    async def refused() -> None:
        while True:
            try:
                await objects.create(*made(name))
            except (EngineUnavailable, Died):
                continue

    for _ in range(50):
        with pytest.raises(Refused, match="exceeded quota"):
            asyncio.run(refused())
        assert server.cluster.objects == {}
