"""Test that experiments move to another pool: at once while they wait, by a checkpoint while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, ImpossibleAsk, InvalidRequest
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.search.records import Search
from kernel_backend.spec.assignments import parse_line
from kernel_backend.store.sql import SqlStore
from tests.api.people import FakeHub
from tests.api.served import HERE, SECOND, Served, StillEngine, archive, submit, token_of
from tests.api.test_either_pool import attempts, first
from tests.api.test_pool_verbs import named, site
from tests.api.test_put_aside import trains
from tests.support.world import until

POOLS = {"second": SECOND.to_json()}


def test_what_waits_moves_at_once(two_pools: Any):
    served, client = two_pools()
    submit(client, "runs", slots=2)
    submit(client, "waits", slots=2)
    until(lambda: client.experiment(2).wait is not None, "#2 waits")
    client.move(2, "second")
    until(lambda: first(2) in served.others["second"].jobs, "it begins in the other pool")
    assert client.experiment(2).warnings == (), "nothing has been trained that moves"
    assert first(2) not in served.engine.jobs


def test_what_runs_is_released_and_goes_on_in_the_other_pool_and_back(two_pools: Any):
    served, client = two_pools()
    submit(client, slots=2)
    trains(served, client, first(1))
    moved = client.move(1, "second")
    assert moved.warnings == ("moved from local to second at step 9",)
    until(lambda: client.experiment(1).trials[0].state == "releasing", "its gang is asked to save and go")
    queued_at = client.experiment(1).trials[0].queued_at
    served.engine.step_aside(first(1))
    second = served.others["second"]
    until(lambda: first(1, 2) in second.jobs, "it goes on there")
    now = client.experiment(1)
    assert (now.trials[0].queued_at, now.trials[0].failures) == (queued_at, 0)
    assert attempts(client, 1)[-1][:2] == (2, "second")
    client.move(1, "local")
    until(lambda: client.experiment(1).trials[0].state == "releasing", "moving back undoes it")
    second.step_aside(first(1, 2))
    until(lambda: first(1, 3) in served.engine.jobs, "it is where it was")
    assert "moved from second to local at step 9" in client.experiment(1).warnings


def test_what_runs_in_one_of_the_pools_it_moves_to_stays(two_pools: Any):
    served, client = two_pools()
    submit(client, slots=2)
    trains(served, client, first(1))
    client.move(1, "second, local")
    submit(client, "another", slots=2, pool="second")
    until(lambda: first(2) in served.others["second"].jobs, "a round has passed")
    assert client.experiment(1).trials[0].state == "running"
    assert client.experiment(1).experiment.config.pools == ("second", "local")


def test_a_restarted_service_completes_a_move(tmp_path: Path):
    engine, others = StillEngine(), dict[str, StillEngine]()
    served = Served(tmp_path, engine, pools=POOLS, others=others)
    client = served.client()
    submit(client, slots=2)
    trains(served, client, first(1))
    client.close()
    served.stop()
    store = SqlStore(tmp_path / "daylight.db")  # the service has stored the move, and died before its next round
    store.update_experiment(1, 9.0, lambda now: ({"config": now.config.model_copy(update={"pool": "second"})}, None))
    store.close()
    served = Served(tmp_path, engine, pools=POOLS, others=others)
    client = served.client()
    try:
        until(lambda: client.experiment(1).trials[0].state == "releasing", "its gang is asked to go")
        engine.step_aside(first(1))
        until(lambda: first(1, 2) in others["second"].jobs, "it goes on in the other pool")
    finally:
        client.close()
        served.stop()


def test_a_paused_one_resumes_in_the_other_pool(two_pools: Any):
    served, client = two_pools()
    submit(client, slots=2)
    trains(served, client, first(1))
    client.pause(1)
    served.engine.step_aside(first(1))
    until(lambda: client.experiment(1).trials[0].state == "paused", "it is paused")
    client.move(1, "second")
    assert client.experiment(1).state == "paused"
    assert client.experiment(1).warnings == ("moved from local to second at step 9",)
    client.resume(1)
    until(lambda: first(1, 2) in served.others["second"].jobs, "it goes on there")


def test_a_search_moves_what_runs_and_what_is_to_come(two_pools: Any):
    served, client = two_pools()
    id, data = archive()
    client.upload_snapshot(id, data)
    config, space = Config(search=Search(method="random", trials=4)), parse_line(["lr=0.1..1.0"]).space
    client.submit(Submission(snapshot=id, config=config, space=space, python="/usr/bin/python3", cwd="/"))
    until(lambda: len(served.engine.jobs) == 2, "two trials run")
    client.move(1, "second")
    begun = list(served.engine.jobs)
    for key in begun:
        until(lambda key=key: state(client, key) == "releasing", f"{key} is asked to go")
        served.engine.step_aside(key)
    second = served.others["second"]

    def ended() -> bool:
        for key in list(second.jobs):
            second.end(key)
        return client.experiment(1).ended

    until(ended, "all trials end there")
    trained = {(each.trial, each.number, each.pool) for each in client.experiment(1).attempts}
    there = {(1, 2, "second"), (2, 2, "second"), (3, 1, "second"), (4, 1, "second")}
    assert trained == {(1, 1, "local"), (2, 1, "local")} | there
    assert not served.engine.jobs


def state(client: Client, key: AttemptId) -> str:
    return client.experiment(key.experiment).trials[key.trial - 1].state


@pytest.mark.parametrize(
    ("pool", "error", "said"),
    [
        ("secnd", InvalidRequest, r"--pool secnd: there is no such pool \(did you mean second\?\); there are"),
        ("small", ImpossibleAsk, r"2 slots requested; pool small has 1. The most for one trial there: 1"),
        ("broken", Conflict, "pool broken cannot be used now: OSError: it is away: it stays where it is"),
        ("drained", Conflict, r"all nodes of pool drained are drained, suspect or away \(drained-1; daylight nodes"),
        ("drained,broken", Conflict, "all nodes of pool drained are .*; pool broken cannot be used now"),
        ("far", InvalidRequest, "--pool far: .*checkpoints"),
        ("a,,b", InvalidRequest, "pool: .*name a pool, or several as gpu,cloud"),
    ],
)
def test_where_it_could_not_go_on_nothing_is_released(tmp_path: Path, pool: str, error: type[Exception], said: str):
    small = StillEngine([HERE.model_copy(update={"name": "small-1", "pool": "small", "slots": 1})])
    pools = {name: SECOND.to_json() for name in ("second", "small", "broken", "drained")}
    pools["far"] = SECOND.to_json() | {"shared": False}
    served = Served(tmp_path, StillEngine(), pools=pools, others={"small": small})
    client = served.client()
    try:
        until(lambda: all(each.slots for each in client.pools()), "all nodes are seen")
        submit(client, slots=2)
        trains(served, client, first(1))
        served.others["broken"].broken = "it is away"
        until(lambda: named(client, "broken").problem, "a pool breaks")
        client.drain("drained-1")
        with pytest.raises(error, match=said):
            client.move(1, pool)
        now = client.experiment(1)
        assert (now.trials[0].state, now.experiment.config.pool, now.warnings) == ("running", None, ())
    finally:
        client.close()
        served.stop()


def test_what_has_ended_is_not_moved_and_the_same_pool_is_no_move(two_pools: Any):
    served, client = two_pools()
    submit(client, slots=2, pool="local")
    trains(served, client, first(1))
    assert client.move(1, "local").warnings == ()
    served.engine.end(first(1))
    until(lambda: client.experiment(1).state == "completed", "it ends")
    with pytest.raises(Conflict, match=r"#1 is completed: there is nothing to move\. daylight rerun 1 --pool NAME"):
        client.move(1, "second")


def test_one_that_waits_in_a_sites_queue_is_taken_out_of_it(two_pools: Any):
    served, client = two_pools(others={"second": site()})
    submit(client, slots=2, pool="second")
    second = served.others["second"]
    until(lambda: first(1) in second.jobs, "it is handed over")
    client.move(1, "local")
    until(lambda: client.experiment(1).trials[0].state == "releasing", "it is asked back")
    second.step_aside(first(1))
    until(lambda: first(1, 2) in served.engine.jobs, "it begins here")


def test_a_move_by_an_admin_is_audited(tmp_path: Path):
    served = Served(tmp_path, StillEngine(), identity=FakeHub(), pools=POOLS)
    dave, ada = served.client("dave"), served.client("ada")
    try:
        until(lambda: named(dave, "second").slots, "its nodes are seen")
        submit(dave, slots=2)
        token_of(served, first(1))
        ada.move(1, "second")
        assert [(each.who, each.act, each.on, each.detail) for each in ada.audit()] == [
            ("ada", "move", "#1", "pool local -> second, of dave")
        ]
    finally:
        dave.close()
        ada.close()
        served.stop()


def test_it_is_a_verb_of_the_command_line(service: Served, capsys: pytest.CaptureFixture[str]):
    client = service.client()
    client.set_pool("second", SECOND)
    until(lambda: named(client, "second").slots, "its node is seen")
    submit(client, "digits", slots=2)
    trains(service, client, first(1))
    assert main(["move", "1", "--pool", "second"]) == 0
    assert "note: moved from local to second at step 9" in capsys.readouterr().out
    assert main(["move", "1"]) == 2
    assert "--pool" in capsys.readouterr().err
    client.close()
