"""The engine for Kubernetes keeps the contract on a stub of an API server, whose pods are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.kubernetes_contract import KubernetesContract
from tests.support.kubernetes_stub import Stub, node
from tests.support.process_kubelet import ProcessKubelet


class StubSite:
    """A stub with two nodes, and its kubelet."""

    def __init__(self, folder: Path) -> None:
        self.stub = Stub(folder)
        self.kubelet = ProcessKubelet(self.stub.cluster, folder)
        self.stub.cluster.nodes = [node("n1"), node("n2")]

    def objects(self) -> list[str]:
        """The names of all objects."""
        return list(self.stub.do(lambda cluster: [name for _, name in cluster.objects]))


class TestKubernetesEngine(KubernetesContract):
    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubSite]:
        found = StubSite(tmp_path)
        with found.stub.serving():
            monkeypatch.setenv("KUBECONFIG", str(found.stub.config))
            found.stub.begin(found.kubelet.run)
            yield found
