"""A real service on a real control plane of Kubernetes, whose pods see the home, as on a volume."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kubernetes_control_plane import control_plane
from tests.support.kubernetes_site import KubernetesSite, kubernetes_site
from tests.support.world import World, until


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[World, KubernetesSite]]:
    """A service on three nodes with one CPU each: two slots are two nodes."""
    with control_plane() as plane, kubernetes_site(plane, folder, cpus=1) as site:
        site.nodes.add("n3", cpus=1)
        world = World(folder / "home", slots=2)
        world.environment |= {"KUBECONFIG": str(site.config)}
        pool = {"engine": "kubernetes", "image": "test", "gpus": False, "shared": True, "python": sys.executable}
        pools = {"cluster": {**pool, "volumes": [{"claim": "home", "at": str(world.home)}]}}
        (folder / "config.py").write_text(f"c.Daylight.pools = {pools!r}\n")
        world.settings = (f"--config={folder / 'config.py'}",)
        client = world.serve()
        try:
            until(lambda: any(each.name == "n1" for each in client.nodes()), "the service knows the nodes")
            yield world, site
        finally:
            world.close()
