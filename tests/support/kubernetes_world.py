"""Run a real service on Kubernetes whose pods see the home, on a real control plane or on the stub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.kubernetes_control_plane import control_plane
from tests.support.kubernetes_site import KubernetesSite, kubernetes_site
from tests.support.kubernetes_stub import Stub, node
from tests.support.process_kubelet import ProcessKubelet
from tests.support.world import World, until

POOL: dict[str, Any] = {"engine": "kubernetes", "image": "test", "gpus": False, "shared": True}


@contextmanager
def cluster(folder: Path, nodes: int = 3, cpus: int = 1, **settings: Any) -> Iterator[tuple[World, KubernetesSite]]:
    """Provide a service on a real control plane.

    By default three nodes with one CPU each, so that two slots are two nodes.
    """
    with control_plane() as plane, kubernetes_site(plane, folder, cpus=cpus) as site:
        for number in range(3, nodes + 1):
            site.nodes.add(f"n{number}", cpus=cpus)
        with _served(folder, site.config, settings) as world:
            yield world, site


@contextmanager
def stand_in(folder: Path, nodes: int = 3, cpus: int = 1, **settings: Any) -> Iterator[tuple[World, Stub]]:
    """Provide a service on the stub of an API server."""
    stub = Stub(folder)
    stub.cluster.nodes = [node(f"n{number}", cpus) for number in range(1, nodes + 1)]
    with stub.serving():
        stub.begin(ProcessKubelet(stub.cluster, folder).run)
        with _served(folder, stub.config, settings) as world:
            yield world, stub


@contextmanager
def _served(folder: Path, config: Path, settings: dict[str, Any]) -> Iterator[World]:
    world = World(folder / "home", slots=2)
    world.environment |= {"KUBECONFIG": str(config)}
    pool = {**POOL, "python": sys.executable, "volumes": [{"claim": "home", "at": str(world.home)}], **settings}
    (folder / "config.py").write_text(f"c.Daylight.pools = {{'cluster': {pool!r}}}\n")
    world.settings = (f"--config={folder / 'config.py'}",)
    client = world.serve()
    try:
        until(lambda: any(each.name == "n1" for each in client.nodes()), "the service knows the nodes")
        yield world
    finally:
        world.close()
