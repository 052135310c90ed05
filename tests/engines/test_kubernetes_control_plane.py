"""Test that the engine for Kubernetes fulfils the contract on a real control plane, with only the guide's rights."""

from __future__ import annotations

import pytest

from tests.engines.kubernetes_contract import KubernetesContract

pytestmark = pytest.mark.kubernetes


class TestKubernetesEngineOnAControlPlane(KubernetesContract):
    placements = (["n1", "n2"], ["n2", "n1"])

    @pytest.fixture
    def site(self, kubernetes_site):
        return kubernetes_site
