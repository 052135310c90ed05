"""Test that the engine for Kubernetes fulfils the contract on a stub of the API server with pods as processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.model.states import Outcome
from tests.engines.contract import begun, ended
from tests.engines.kubernetes_contract import KubernetesContract
from tests.support.kubernetes_stub import Stub, node
from tests.support.process_kubelet import ProcessKubelet


class StubSite:
    """Stub with two nodes, and its kubelet."""

    def __init__(self, folder: Path) -> None:
        self.stub = Stub(folder)
        self.kubelet = ProcessKubelet(self.stub.cluster, folder)
        self.stub.cluster.nodes = [node("n1"), node("n2")]

    def objects(self) -> list[str]:
        """Return the names of all objects."""
        return list(self.stub.do(lambda cluster: [name for _, name in cluster.objects]))


class TestKubernetesEngine(KubernetesContract):
    def test_a_gang_that_kubernetes_asks_to_leave_is_released_and_tells_who_has_asked(self, engine, job, site):
        async def go():
            await engine.submit(job(seconds=300), "secret")
            await begun(engine, job().id)
            (pod,) = site.stub.pods()
            name = pod["metadata"]["name"]
            said = {"reason": "TaintManagerEviction", "message": f"Marking for deletion Pod ml/{name}"}
            site.stub.do(lambda cluster: cluster.events.update({name: [said]}))
            site.stub.do(lambda cluster: cluster.delete("pods", name, {}))
            found = await ended(engine, job().id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.RELEASED, (85, 85))
            assert found.result.failure.consequence
            assert f"TaintManagerEviction: Marking for deletion Pod ml/{name}" in found.result.failure.message

        asyncio.run(go())

    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubSite]:
        found = StubSite(tmp_path)
        with found.stub.serving():
            monkeypatch.setenv("KUBECONFIG", str(found.stub.config))
            found.stub.begin(found.kubelet.run)
            yield found
