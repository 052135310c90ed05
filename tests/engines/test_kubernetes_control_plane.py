"""The engine for Kubernetes keeps the contract on a real control plane, with no more rights than the guide grants."""

from __future__ import annotations

import pytest

from tests.engines.kubernetes_contract import KubernetesContract

pytestmark = pytest.mark.kubernetes


class TestKubernetesEngineOnAControlPlane(KubernetesContract):
    placements = (["n1", "n2"], ["n2", "n1"])

    @pytest.fixture
    def site(self, kubernetes_site):
        return kubernetes_site
