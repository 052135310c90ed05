"""Test the times of a training's parts, from a launcher's delivery to the API, the command line and a notebook."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from jupyter_ext.job.job import Job
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import NotFound
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse
from kernel_backend.model.reports import Delivery, Measurements
from kernel_backend.model.times import Part, RankTimes, Split
from tests.api.served import Served, started, submit, token_of
from tests.api.test_cli import submitted
from tests.api.test_searching import begun, search
from tests.support.world import until

FIRST = AttemptId(1, 1, 1)


def split(steps: int, **parts: float) -> Split:
    named: dict[Part, float] = dict(parts)  # type: ignore[arg-type]
    return Split(steps=steps, parts=named)


def rank(number: int, whole: Split, now: Part | None = "data", **fields: Any) -> RankTimes:
    return RankTimes(rank=number, node=f"n{number}", now=now, whole=whole, minute=whole, **fields)


def deliver(served: Served, client: Client, *times: RankTimes, key: AttemptId = FIRST) -> None:
    client.deliver(key, token_of(served, key), Delivery(times=times))


WAITS = (rank(0, split(100, data=6.0, forward=3.0, backward=1.0), loader="indexed"),)


def test_an_experiment_without_times_answers_empty(client: Client) -> None:
    submit(client)
    found = client.times(1)
    assert (found.trial, found.live, found.whole, found.ranks, found.sentence) == (1, False, Split(), (), "")
    with pytest.raises(NotFound):
        client.times(1, trial=2)
    with pytest.raises(NotFound):
        client.times(2)


def test_what_a_launcher_delivers_is_answered_by_rank_with_the_cause(served: Served, client: Client) -> None:
    submit(client)
    client.deliver(FIRST, token_of(served, FIRST), Delivery(records=(started(),)))
    deliver(served, client, rank(0, split(1, data=1.0)))
    deliver(served, client, *WAITS)
    found = client.times(1)
    assert (found.trial, found.live, found.ranks) == (1, True, WAITS)
    assert found.whole == found.minute == WAITS[0].whole
    assert found.sentence == "60 % of each step waits for data: --loader-workers 2 would hide it"
    served.engine.end(FIRST)
    until(lambda: not client.times(1).live, "the training has ended")


def test_final_times_are_stored_with_the_end_though_the_launcher_delivered_none(served: Served, client: Client) -> None:
    submit(client)
    client.deliver(FIRST, token_of(served, FIRST), Delivery(records=(started(),)))
    deliver(served, client, *WAITS)
    final = rank(0, split(200, data=12.0), now=None), rank(1, split(200, forward=12.0), now=None)
    use = DeliveredUse(rank=0, number=1, use=SlotUse(at=5.0, seconds=12.0, cpu=1.0))
    served.engine.measured = (Measurements(times=final[:1], use=(use,)), Measurements(times=final[1:]))
    served.engine.end(FIRST)
    until(lambda: client.experiment(1).state == "completed", "the training has ended")
    deliver(served, client, *WAITS)  # it was on its way, and comes late
    assert client.times(1).ranks == final
    assert client.utilisation(1).whole.seconds == 12.0


def test_times_without_a_valid_token_or_value_are_refused(served: Served, client: Client) -> None:
    submit(client)
    url = f"{served.url}/api/attempts/{FIRST}/records"
    times = [WAITS[0].to_json()]
    assert httpx.post(url, json={"times": times}, trust_env=False).status_code == 401
    headers = {"Authorization": f"Bearer {token_of(served, FIRST)}"}
    for wrong in ({"rank": -1}, {"whole": {"parts": {"data": -1}}}, {"whole": {"parts": {"lunch": 1}}}):
        body = {"times": [{**times[0], **wrong}]}
        assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 400
    assert client.times(1).ranks == ()


def test_a_search_answers_the_sum_of_its_trials_and_one_of_them_by_number(served: Served, client: Client) -> None:
    assert search(client, parallel=2) == 1
    begun(client, 1, 2)
    for trial in (1, 2):
        deliver(served, client, rank(0, split(50, data=3.0, forward=2.0 * trial)), key=AttemptId(1, trial, 1))
    both = client.times(1)
    assert (both.trial, both.live, both.ranks) == (None, True, ())
    assert both.whole == both.minute == split(100, data=6.0, forward=6.0)
    assert both.sentence.startswith("50 % of each step waits for data")
    assert client.times(1, trial=2).whole == split(50, data=3.0, forward=4.0)


def test_the_command_line_shows_a_profile_as_a_table_and_as_json(service: Served, client, file, capsys) -> None:
    submitted(file)
    deliver(service, service.client(), *WAITS)
    capsys.readouterr()
    assert main(["profile", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["last", "minute", "whole", "run", "rank", "0"]
    assert lines[1].split() == ["waiting", "for", "data", "60", "%", "60", "%", "60", "%"]
    assert lines[-2].split() == ["a", "step", "takes", *["100", "ms"] * 3]
    assert lines[-1].startswith("60 % of each step waits for data")
    assert main(["profile", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ranks"][0]["whole"]["parts"] == {"data": 6.0, "forward": 3.0, "backward": 1.0}


def test_nothing_known_yet_is_said(service: Served, file, capsys) -> None:
    submitted(file)
    capsys.readouterr()
    assert main(["profile", "1"]) == 0
    assert capsys.readouterr().out == "nothing is known yet: times are measured from the second step on\n"


def test_top_prints_lines_until_the_training_ends_where_there_is_no_terminal(service: Served, file, capsys) -> None:
    submitted(file)
    own = service.client()
    own.deliver(FIRST, token_of(service, FIRST), Delivery(records=(started(),), times=WAITS))
    service.engine.end(FIRST)
    capsys.readouterr()
    assert main(["top", "1"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.endswith(" rank 0 (n0): data 60 %, forward 30 %, backward 10 %")
    assert "#1" in last


def test_a_notebook_has_the_times_of_its_job(served: Served, client: Client) -> None:
    submit(client)
    deliver(served, client, *WAITS)
    found = Job(1, client).times()
    assert found.whole.share("data") == pytest.approx(0.6)
    assert found.ranks[0].node == "n0"
