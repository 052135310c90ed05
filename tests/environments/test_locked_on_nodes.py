"""Test that nodes without the service's home and without an index build a locked environment, once each."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kernel_backend.model.snapshot import Environment
from tests.environments.index import needs_index
from tests.support.staged_site import POOL, Site, staged_site
from tests.support.world import DEFINITION

pytestmark = [pytest.mark.distributed, pytest.mark.long, needs_index]

TELLING = "import sys\nprint('python', sys.prefix)\n"
OFFLINE = {**POOL, "extra": ["--export=ALL,UV_OFFLINE=1,UV_FIND_LINKS=/nowhere"]}  # variables of the jobs alone


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, online: None) -> Iterator[Site]:
    with staged_site(tmp_path_factory.mktemp("site"), {"offline": OFFLINE}) as made:
        yield made


@pytest.fixture(scope="module")
def trained(site: Site, storing: Environment) -> int:
    """Train on two nodes without an index, and return the experiment's number."""
    options = {"pool": "offline", "env": "locked", "environment": storing, "epochs": 2}
    number = site.world.submit(TELLING + DEFINITION, **options).experiment.number
    site.trained(number)
    return number


def test_ranks_run_in_the_environment_of_their_node_with_the_bits_of_an_unlocked_run(site, storing, trained):
    for rank in (0, 1):
        log = (site.world.home / "attempts" / f"{trained}.1-1" / f"rank-{rank}.log").read_text()
        assert re.search(rf"python {site.cache}/daylight/\w+/node-n\d/environments/{storing.id}/venv", log), log
    other = site.world.submit(epochs=2).experiment.number
    site.trained(other)
    assert site.weights(trained) == site.weights(other)
    assert not (site.world.home / "environments" / storing.id / "venv").exists()


def test_the_next_one_on_these_nodes_finds_it_built(site, storing, trained):
    built = {path: path.stat().st_mtime_ns for path in site.left("environments/*/venv/daylight.txt")}
    assert len(built) == 2
    options = {"pool": "offline", "env": "locked", "environment": storing, "epochs": 1}
    site.trained(site.world.submit(**options).experiment.number)
    after = {path: path.stat().st_mtime_ns for path in site.left("environments/*/venv/daylight.txt")}
    assert after.items() >= built.items()


def test_no_wheel_stays_on_the_nodes_once_it_is_installed(site, trained):
    assert site.left("environments/*/.wheels-*") == []
    assert site.left("snapshots/wheels/*") == []
