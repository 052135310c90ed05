"""Test other packages' search methods in a real service: their errors stay isolated, and they may be removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Metric
from tests.plugins import ANNEALING, install, written
from tests.support.world import LASTING, World, until

pytestmark = pytest.mark.distributed

OPTIONS: dict[str, Any] = {
    "space": "lr=1e-4..1e-1:log",
    "slots": 1,
    "epochs": 1,
    "metric": Metric(name="error", mode="min"),
}
FAILING = """
from daylight.search import SearchMethod, sampled
METHOD = SearchMethod(name="failing", summary="fails", factory="failing_search:make", trials=2)

class Sampler:
    def ask(self, number, seen):
        raise ZeroDivisionError("nothing to divide by")

def make(settings, space):
    return sampled(settings, space, Sampler())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with packages that the service can import."""
    site = tmp_path_factory.mktemp("plugins") / "site"
    install(ANNEALING, site)
    written(site, "failing-search", FAILING, "failing")
    written(site, "shadow-search", "METHOD = None", "asha")
    return site


@pytest.fixture(scope="module")
def world(site: Path) -> Iterator[World]:
    """A service that has these packages."""
    made = World(site.parent / "home", shared_forkserver=True)
    # By its settings, and not by PYTHONPATH: trials have the packages of the other tests, and their forkserver.
    settings = site.parent / "config.py"
    settings.write_text(f"import sys\nsys.path.insert(0, {str(site)!r})\n")
    made.settings = (f"--config={settings}",)
    made.serve()
    yield made
    made.close()


def search(world: World, method: str, trials: int = 2, **options: Any) -> int:
    return world.submit(search={"method": method, "trials": trials}, **{**OPTIONS, **options}).experiment.number


def test_a_method_of_a_package_trains_and_one_that_raises_waits_with_the_reason(world: World) -> None:
    number, failing = search(world, "annealing"), search(world, "failing")
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    assert [str(trial.state) for trial in overview.trials] == ["completed", "completed"]
    assert overview.default_trials == 12
    said = until(lambda: [each for each in world.overview(failing).warnings if "package" in each], "it is told")
    assert said == [
        "the search does not go on: its method failing of package failing-search 1.0 has raised ZeroDivisionError: "
        "nothing to divide by; this is tried again"
    ]
    assert "the search method asha of package shadow-search 1.0 is not used" in (world.home / "service.log").read_text(
        encoding="utf-8"
    )


def test_a_search_whose_package_is_gone_waits_and_goes_on_with_it(world: World, site: Path, tmp_path: Path) -> None:
    hurry = world.home / "hurry"
    number = search(world, "annealing", source=LASTING, pause=0.5, hurry=str(hurry))
    until(lambda: world.overview(number).trials, "a trial is there")
    gone = tmp_path / "gone"
    world.kill_service()
    shutil.move(site, gone)
    world.serve()
    said = until(lambda: [e for e in world.overview(number).warnings if "does not go on" in e], "it is told")
    assert "--search annealing: must be single, " in said[0]
    hurry.touch()
    assert world.ended(search(world, "random", trials=1)).experiment.state == "completed"
    with pytest.raises(InvalidRequest, match="a method of another package needs that package where the service runs"):
        search(world, "annealing")
    world.kill_service()
    shutil.move(gone, site)
    world.serve()
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    assert not [each for each in overview.warnings if "does not go on" in each]
