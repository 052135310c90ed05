"""Test a service with a PostgreSQL database: trainings continue while the database server is down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernel_backend.home import attempt_folder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.search.records import Create, Reported
from kernel_backend.model.trial import Attempt
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.world import World, until
from tests.torture.searches import holds_together

pytestmark = pytest.mark.distributed

OPTIONS = {"slots": 1, "backend": "torch", "epochs": 4}
SEARCH = {"method": "asha", "trials": 4, "sampler": "random"}
PASSWORD = "correct-horse"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, server: PostgresServer) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("postgres") / "home", shared_forkserver=True)
    made.database = server.create().replace("daylight@", f"daylight:{PASSWORD}@")  # any password is accepted
    made.environment["DAYLIGHT_DB_URL"] = made.database
    made.serve()
    yield made
    made.close()


def steps(world: World, number: int, kind: str) -> list[int]:
    return [report.step for report in world.reports(number) if report.kind == kind]


def undisturbed(attempts: list[Attempt]) -> bool:
    return {str(attempt.outcome) for attempt in attempts} <= {"ok", "released"}


def test_a_server_that_is_killed_three_times_costs_no_attempt_and_no_report(
    world: World, server: PostgresServer
) -> None:
    number = world.lasting(**OPTIONS)
    search = world.submit(
        search=SEARCH, space="lr=1e-4..1e-1:log", metric={"name": "error", "mode": "min"}, **OPTIONS
    ).experiment.number
    spool = attempt_folder(world.home, AttemptId(number, 1, 1)).joinpath("spool.jsonl")
    for step in (2, 4, 6):
        world.reached(number, step)
        server.kill()
        length = spool.stat().st_size
        until(lambda length=length: spool.stat().st_size > length + 200, "training goes on")
        server.start()
    world.hurry(number)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt, overview.trials[0].failures) == ("completed", 1, 0)
    assert steps(world, number, "training") == sorted(set(steps(world, number, "training")))
    assert steps(world, number, "validation") == [8, 16, 24, 32]

    searched = world.ended(search)
    assert searched.experiment.state == "completed"
    assert undisturbed(searched.attempts)
    entries = holds_together(world, search)
    assert [each.decision.trial for each in entries if isinstance(each.decision, Create)] == [1, 2, 3, 4]
    heard = [(each.event.trial, each.event.unit) for each in entries if isinstance(each.event, Reported)]
    assert len(heard) == len(set(heard))
    log = (world.home / "service.log").read_text()
    assert "is lost, and waited for" in log
    assert "is back after" in log


def test_its_password_reaches_neither_files_nor_processes_that_run_users_code(world: World) -> None:
    number = world.lasting(**OPTIONS)
    world.reached(number, 1)
    launchers = world.processes("kernel_backend.launch")
    assert launchers
    for process in [*launchers, *world.ranks().values()]:
        assert PASSWORD not in str(process.environ()), process
    for file in world.home.rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes(), file
    assert (world.home / "database-url").read_text().startswith("postgresql://daylight@/daylight_")
    world.hurry(number)
    assert world.ended(number).state == "completed"


def test_a_killed_service_that_starts_again_goes_on_in_the_database_that_its_home_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(world.environment, "DAYLIGHT_DB_URL")
    number = world.lasting(**OPTIONS)
    world.reached(number, 2)
    world.kill_service()
    world.serve()
    world.hurry(number)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
    assert not (world.home / "daylight.db").exists()
