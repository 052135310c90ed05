"""Test the use of slots, from a launcher's delivery to the API, the command line, a notebook and Prometheus."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from jupyter_ext.job.job import Job
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse, Utilisation
from kernel_backend.model.reports import Delivery
from tests.api.served import TOKEN, Served, started, submit, token_of
from tests.api.test_cli import submitted
from tests.api.test_searching import begun, search

FIRST = AttemptId(1, 1, 1)
GB = 10**9


def slot(number: int = 0, **use: Any) -> DeliveredUse:
    values = {"at": time.time(), "seconds": 60.0, "gpu": 0.25, "cpu": 1.5, "memory": 2 * GB, "power": 120.0} | use
    return DeliveredUse(rank=0, node="n1", device="A100", number=number, use=SlotUse(**values))


def deliver(served: Served, client: Client, *slots: DeliveredUse, key: AttemptId = FIRST) -> None:
    client.deliver(key, token_of(served, key), Delivery(records=(started(),), use=slots))


def test_what_a_launcher_delivers_is_answered_by_rank_with_its_curve(served: Served, client: Client) -> None:
    submit(client)
    assert client.utilisation(1) == Utilisation(trial=1)
    now = slot()
    deliver(served, client, now, slot(1, gpu=0.5), slot(2, gpu=1.0))
    found = client.utilisation(1)
    (rank,) = found.ranks
    assert (found.live, found.latest, rank.latest) == (True, now.use, now.use)
    assert (rank.node, rank.device, rank.whole.gpu) == ("n1", "A100", 0.75)
    assert [each.gpu for each in rank.curve] == [0.5, 1.0]
    assert [each.gpu for each in client.utilisation(1, points=1).ranks[0].curve] == [0.75]
    assert Job(1, client).utilisation(points=0).ranks[0].curve == ()


def test_use_without_a_valid_value_is_refused(served: Served, client: Client) -> None:
    submit(client)
    headers = {"Authorization": f"Bearer {token_of(served, FIRST)}"}
    for wrong in ({"rank": -1}, {"number": 10**6}, {"use": {"gpu": -1}}, {"use": {"cpu": "NaN"}}):
        body = {"use": [{**slot().to_json(), **wrong}]}
        url = f"{served.url}/api/attempts/{FIRST}/records"
        assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 400
    assert client.utilisation(1).ranks == ()


def test_a_search_answers_all_trials_together_and_one_of_them_by_number(served: Served, client: Client) -> None:
    assert search(client, parallel=2) == 1
    begun(client, 1, 2)
    for trial in (1, 2):
        deliver(served, client, slot(gpu=0.5 * trial), slot(1, gpu=0.5 * trial), key=AttemptId(1, trial, 1))
    both = client.utilisation(1)
    assert (both.trial, both.live, both.ranks) == (None, True, ())
    assert both.latest is not None
    assert (both.latest.gpu, both.latest.cpu, both.whole.gpu, both.whole.seconds) == (0.75, 3.0, 0.75, 120.0)
    assert client.utilisation(1, trial=2).whole.gpu == 1.0


def test_the_command_line_shows_the_use_as_a_table_and_as_json(service: Served, file, capsys) -> None:
    submitted(file)
    capsys.readouterr()
    assert main(["utilisation", "1"]) == 0
    assert capsys.readouterr().out.startswith("nothing is measured yet")
    deliver(service, service.client(), slot(), slot(1, gpu=0.5, seconds=3600.0, power=None))
    assert main(["utilisation", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["slots", "node", "period", "GPU", "CPU", "memory", "GPU", "power"]
    assert lines[1].split() == ["rank", "0", "n1", "now", "25", "%", "1.50", "cores", "2.0", "GB", "120", "W"]
    assert lines[2].endswith("unknown")
    assert lines[3] == "measured for 1 slot-hours, energy unknown: no counter of it can be read on these nodes"
    assert main(["utilisation", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"][0]["curve"][0]["gpu"] == 0.5


def test_top_shows_the_newest_samples(service: Served, file, capsys, monkeypatch) -> None:
    submitted(file)
    deliver(service, service.client(), slot())
    capsys.readouterr()
    monkeypatch.setattr("kernel_backend.commands.times.time.sleep", lambda seconds: service.engine.end(FIRST))
    assert main(["top", "1"]) == 0
    assert " slot of rank 0: GPU 25 %, CPU 1.50 cores, memory 2.0 GB, GPU power 120 W" in capsys.readouterr().out


def test_prometheus_reads_the_use_of_running_trials(served: Served, client: Client) -> None:
    submit(client)
    deliver(served, client, slot(gpu=None))
    answer = httpx.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)
    lines = answer.text.splitlines()
    assert 'daylight_trial_cpu_cores{experiment="1",trial="1"} 1.5' in lines
    assert 'daylight_trial_power_watts{experiment="1",trial="1"} 120.0' in lines
    assert not [line for line in lines if line.startswith("daylight_trial_gpu_use{")]
