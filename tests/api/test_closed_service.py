"""Test a service that runs no code of users on its own machine: all that would is refused at once, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.search.records import Search
from kernel_backend.service.admission import check_here
from kernel_backend.spec.assignments import parse_line
from tests.api.served import DEFINITION, SECOND, Served, StillEngine, archive, paused, submit
from tests.api.test_either_pool import first
from tests.api.test_pool_verbs import named, reason
from tests.support.world import until

REFUSED = (
    r"--pool local: this service runs no code of users on its own machine \(slots = none\); "
    r"there are second, third"
)
CLASS = """
class Mine:
    def ask(self, trial):
        return {"lr": 0.1}
    def tell(self, trial, params, unit, value):
        return None
"""
SPACE = parse_line(["lr=0.1..1.0"]).space
POOLS = {"second": SECOND.to_json(), "third": SECOND.to_json()}


@pytest.fixture
def closed(two_pools: Any) -> tuple[Served, Client]:
    """Provide a service whose local pool is closed, with two other pools."""
    served, client = two_pools(pools=POOLS, closed=True, default_pool="second")
    return served, client


def nothing_begins(served: Served) -> None:
    assert served.engine.jobs == {}


@pytest.mark.parametrize("pool", ["local", "second,local"])
def test_a_submission_to_the_local_pool_is_refused_with_the_pools_that_there_are(
    closed: tuple[Served, Client], pool: str
):
    served, client = closed
    with pytest.raises(Conflict, match=REFUSED):
        submit(client, pool=pool)
    assert client.experiments() == []
    nothing_begins(served)


def test_who_names_no_pool_is_not_told_of_one_that_they_named(two_pools: Any):
    _, client = two_pools(pools={}, closed=True)
    with pytest.raises(Conflict, match=r"^name a pool by --pool: this service runs no code .*; there is no other pool"):
        submit(client)


def test_what_names_no_pool_trains_elsewhere_and_nobody_is_shown_the_closed_one(closed: tuple[Served, Client]):
    served, client = closed
    submit(client)
    until(lambda: first(1) in served.others["second"].jobs, "it begins in the default pool")
    assert [each.name for each in client.pools()] == ["second", "third"]
    assert {node.pool for node in client.nodes()} == {"second", "third"}
    nothing_begins(served)


@pytest.mark.parametrize(
    "asked", [lambda client: client.move(1, "local"), lambda client: client.rerun(1, Rerun(config={"pool": "local"}))]
)
def test_nothing_moves_there_nor_is_repeated_there(closed: tuple[Served, Client], asked: Any):
    served, client = closed
    submit(client)
    with pytest.raises(Conflict, match=REFUSED):
        asked(client)
    assert client.experiment(1).experiment.config.pool == "second"
    nothing_begins(served)


def test_a_users_search_class_is_refused_as_it_would_run_as_the_service(closed: tuple[Served, Client]):
    _, client = closed
    id, data = archive(DEFINITION + CLASS)
    client.upload_snapshot(id, data)
    config = Config(search=Search(method="custom", source="Mine", trials=4))
    asked = Submission(snapshot=id, config=config, space=SPACE, python="/usr/bin/python3", cwd="/")
    with pytest.raises(InvalidRequest, match=r"--search custom: this service runs no code of users .* another method"):
        client.submit(asked)


def test_an_environment_is_built_by_nodes_alone():
    shared, staged = SECOND, SECOND.model_copy(update={"shared": False})
    with pytest.raises(InvalidRequest, match=r"--env locked: .* where that of pool b is built; use --env current"):
        check_here(Config(env="locked"), {"a": staged, "b": shared})
    check_here(Config(env="locked"), {"a": staged})
    check_here(Config(), {"b": shared})


def test_what_waited_there_when_it_was_closed_begins_never_and_its_owner_reads_what_to_do(tmp_path: Path):
    served = Served(tmp_path, StillEngine(), pools=POOLS)
    client = served.client()
    submit(client, pool="local")
    paused(served, client, first(1))
    submit(client, "fills it", pool="local", slots=2)
    submit(client, "waits", pool="local", slots=2)
    served.engine.end(first(2))
    client.close()
    served.stop()
    served = Served(tmp_path, StillEngine(), pools=POOLS, closed=True)
    client = served.client()
    try:
        with pytest.raises(Conflict, match=REFUSED):
            client.resume(1)
        until(lambda: "runs no code of users" in reason(client, 3), "it waits")
        until(lambda: named(client, "second").slots, "the other pool is seen")
        client.move(3, "second")
        until(lambda: first(3) in served.others["second"].jobs, "it begins there")
        served.others["second"].end(first(3))
        client.move(1, "second")
        client.resume(1)
        until(lambda: first(1, 2) in served.others["second"].jobs, "it goes on there")
        nothing_begins(served)
    finally:
        client.close()
        served.stop()


def test_the_command_line_says_so(
    closed: tuple[Served, Client], file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    served, _ = closed
    monkeypatch.setenv("DAYLIGHT_URL", served.url)
    monkeypatch.setenv("DAYLIGHT_TOKEN", "the-right-token")
    for words in ([str(file)], ["--", "python", "-c", "print(1)"]):
        assert main(["submit", "--quiet", "--pool", "local", *words]) == 2
        assert (
            "runs no code of users on its own machine (slots = none); there are second, third"
            in capsys.readouterr().err
        )
    nothing_begins(served)
