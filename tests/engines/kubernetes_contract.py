"""Contract of the engine for Kubernetes, for a stub of the API server as well as a real control plane."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Protocol

import pytest

from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.model.cluster.pools import Pool, read_pool
from kernel_backend.model.states import Outcome
from tests.engines.contract import EngineContract, begun, ended, log, until
from tests.engines.join_service import Joined, Joins
from tests.support.builders import share

TWO_NODES = (share((0, 1), "n1"), share((0, 1), "n2"))


class JoinedKubernetes(Joined, KubernetesEngine):
    """Kubernetes engine whose gangs' launchers can join."""


class Site(Protocol):
    """Cluster with the nodes n1 and n2, which the variable KUBECONFIG selects."""

    def objects(self) -> list[str]:
        """Return the names of Daylight's objects in the namespace."""


def pool(folder: Path, **settings: object) -> Pool:
    volumes = [{"claim": "home", "at": str(folder)}]
    shared = {"engine": "kubernetes", "image": "test", "shared": True, "volumes": volumes, "gpus": False}
    return read_pool("cloud", {**shared, "python": str(folder / "python"), **settings})


class KubernetesContract(EngineContract):
    """Tests to be inherited with a fixture `site`."""

    pool = "cloud"
    placements = (["n1", "n2"],)  # nodes of the first and the second pod that its scheduler may choose

    @pytest.fixture
    def engine(self, site: Site, tmp_path: Path, joins: Joins) -> JoinedKubernetes:
        return JoinedKubernetes(tmp_path / "home", pool(tmp_path), "tests")

    @pytest.fixture
    def again(self, site: Site, tmp_path: Path, joins: Joins) -> JoinedKubernetes:
        return JoinedKubernetes(tmp_path / "home", pool(tmp_path), "tests")

    def test_two_nodes_are_one_world(self, engine, job, joins):
        async def go():
            gang = job().model_copy(update={"placement": TWO_NODES})
            await engine.submit(gang, "secret")
            found = await ended(engine, gang.id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.OK, (0, 0, 0, 0)), found
            said = [json.loads((await log(engine, gang.id, rank)).decode().splitlines()[0]) for rank in range(4)]
            assert {each["WORLD_SIZE"] for each in said} == {"4"}
            assert [node.name for node in joins.nodes(gang.id)] in self.placements

        asyncio.run(go())

    def test_a_released_gang_of_two_nodes_leaves_by_itself(self, engine, job):
        async def go():
            gang = job(seconds=300).model_copy(update={"placement": TWO_NODES})
            await engine.submit(gang, "secret")
            await begun(engine, gang.id, ranks=4)
            await engine.release(gang.id)
            found = await ended(engine, gang.id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.RELEASED, (85, 85, 85, 85))

        asyncio.run(go())

    def test_a_forgotten_gang_leaves_no_objects(self, engine, job, site):
        async def go():
            await engine.submit(job(), "secret")
            await ended(engine, job().id)
            await engine.forget(job().id)

            async def empty():
                return not site.objects()

            await until(empty, "the garbage collector deletes what the owner owned")

        asyncio.run(go())
