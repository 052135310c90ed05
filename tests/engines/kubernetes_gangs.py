"""Provide engines for Kubernetes whose launchers only sleep, to test what the cluster does to pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.model.cluster.pools import read_pool


def sleeping_engine(folder: Path, service: str = "5f", **settings: Any) -> KubernetesEngine:
    """Return an engine, as of a restarted service."""
    sleeper = folder / "sleeper"
    if not sleeper.exists():
        sleeper.write_text("#!/bin/sh\nexec sleep 600\n")
        sleeper.chmod(0o755)
    shared = {"engine": "kubernetes", "image": "test", "shared": True, "gpus": False, "python": str(sleeper)}
    volumes = [{"claim": "home", "at": str(folder)}]
    pool = read_pool("cloud", {**shared, "volumes": volumes, **settings})
    return KubernetesEngine(folder / "home", pool, service)
