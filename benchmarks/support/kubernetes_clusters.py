"""Run a service on Kubernetes for benchmarks, on a real control plane or the simulated one, and count its requests."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.kubernetes_admin import Manifest
from tests.support.kubernetes_world import cluster, stand_in
from tests.support.world import World


class Counted(NamedTuple):
    """Give access to a service and to the counters of its API server."""

    world: World
    pods: Callable[[], list[Manifest]]
    requests: Callable[[], int]  # of the service, since the begin


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of a benchmark's arguments, with the one that chooses the API server."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--stand-in", action="store_true", help="the stand-in in place of a real control plane")
    return found


@contextmanager
def counted(folder: Path, simulated: bool, **settings: Any) -> Iterator[Counted]:
    """Run a service with a pool `cluster`.

    `simulated` chooses the simulated API server; `settings` are those of nodes and pool.
    """
    if simulated:
        with stand_in(folder, **settings) as (world, stub):
            yield Counted(world, stub.pods, lambda: int(stub.do(lambda found: found.requests.total())))
    else:
        with cluster(folder, **settings) as (world, site):
            yield Counted(world, site.pods, site.plane.requests)
