"""Test the submission of searches: given and searched values, and the errors of client and service."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest

import daylight
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Config, Experiment, Submission
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Space
from kernel_backend.spec.assignments import parse_line
from tests.api.served import TOKEN, Served, archive
from tests.support.world import until

DEFINITION = """
def model(width=8, blocks=()): ...
def train_data(): return []
def validation_data(): return []
def optimizer(params, lr=0.1, opt="sgd", momentum=0.9): ...
def loss(output, target): ...
"""
BLOCKS = "blocks=1..3 block.kind=conv,res@each block.kernel=3,5@each@kind=conv"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "digits.py"
    path.write_text(DEFINITION)
    return path


def texts(space: Space) -> str:
    return " ".join(map(str, space.parameters))


def submit(client: Client, line: str, **config: Any) -> Experiment:
    id, data = archive(DEFINITION)
    client.upload_snapshot(id, data)
    given, space = parse_line(line.split())
    asked = Submission(
        snapshot=id, config=Config.model_validate(config), params=given, space=space, python="/usr/bin/python3", cwd="/"
    )
    return client.submit_once(asked)[0].experiment


def test_a_file_is_submitted_with_ranges(service: Served, file: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--search", "asha", "--trials", "8", "--epochs", "4", "lr=1e-4..1", "width=32", *BLOCKS.split()]
    assert main(["submit", str(file), *words, "--json"]) == 0
    experiment = json.loads(capsys.readouterr().out)["experiment"]
    assert experiment["config"]["search"]["trials"] == 8
    assert experiment["params"] == {"width": 32, "opt": "sgd", "momentum": 0.9}
    assert texts(Space.model_validate(experiment["space"])) == f"lr=0.0001..1 {BLOCKS}"


def test_python_writes_ranges_as_a_line_does(service: Served, file: Path):
    job = daylight.submit(file, search="random", trials=4, space={"lr": "1e-4..1e-1:log", "width": "8,16"})
    experiment = job.overview.experiment
    assert experiment.config.search == Search(method="random", trials=4)
    assert texts(experiment.space) == "lr=0.0001..0.1:log width=8,16"
    with pytest.raises(InvalidRequest, match="is searched only with --search"):
        daylight.submit(file, space={"lr": "1e-4..1e-1:log"})
    with pytest.raises(InvalidRequest, match=r"there is no option trails \(did you mean trials\?\)"):
        daylight.submit(file, search="random", trails=4)


@pytest.mark.parametrize(
    ("line", "config", "said"),
    [
        ("lr=0.1..1", {}, "'lr=0.1..1' is searched only with --search"),
        ("lrr=0.1..1", {"search": {"method": "random"}}, r"lrr is no hyperparameter \(did you mean lr\?\)"),
        ("width=a,b", {"search": {"method": "random"}}, "width='a': width .line 2. takes a number"),
        ("lr=0.1..1", {"search": {"method": "asha"}}, "--search asha needs 2 or more"),
        ("width=1..100001", {"search": {"method": "grid"}}, "more than 100,000 points"),
        ("lr=0.1..1", {"search": {"method": "grid"}}, "a grid needs to know"),
    ],
)
def test_the_service_refuses_what_it_is_sent_all_the_same(client: Client, line: str, config: Any, said: str):
    with pytest.raises(InvalidRequest, match=said):
        submit(client, line, **config)
    assert client.experiments() == []


def test_a_space_that_cannot_be_is_refused_on_the_wire(served: Served, client: Client):
    space = parse_line(["lr=0.1..1"]).space.to_json()
    space["parameters"][0]["domain"]["low"] = 3
    body = {"snapshot": "0" * 64, "python": "python", "cwd": "/", "space": space}
    answer = httpx.post(
        f"{served.url}/api/experiments", json=body, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20
    )
    assert answer.status_code == 400
    assert "3.0..1.0 holds nothing: write 1.0..3.0" in answer.json()["message"]


SEARCH = {"epochs": 4, "search": {"method": "random", "trials": 3}}


def test_a_rerun_searches_again(client: Client):
    before = submit(client, f"lr=0.1..1 width=32 {BLOCKS}", **SEARCH)
    again = client.rerun(before.number, Rerun()).experiment
    assert again.space == before.space
    assert again.params == before.params
    assert again.config.search == before.config.search


def test_infinite_values_are_searched_and_shown_as_numbers(
    service: Served, client: Client, file: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["--search", "grid", "lr=inf,-inf", "momentum=nan", "blocks=[{'a':inf}]"]
    assert main(["submit", str(file), *words, "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)["experiment"]
    assert (sent["params"]["momentum"], sent["params"]["blocks"]) == ({"float": "nan"}, [{"a": {"float": "inf"}}])
    trials = until(lambda: client.experiment(sent["number"]).trials[1:], "the search begins both of its trials")
    everyone = client.experiment(sent["number"]).trials
    assert len(trials) == 1
    assert {trial.params["lr"] for trial in everyone} == {math.inf, -math.inf}
    assert [trial.params["blocks"] for trial in everyone] == [[{"a": math.inf}]] * 2
    assert all(math.isnan(trial.params["momentum"]) for trial in everyone)


def test_what_a_rerun_is_given_is_searched_no_more(client: Client):
    before = submit(client, "lr=0.1..1 opt=sgd,adam momentum=0..0.9@opt=sgd", **SEARCH)
    adam = client.rerun(before.number, Rerun(params={"opt": "adam"})).experiment
    assert texts(adam.space) == "lr=0.1..1"
    assert adam.params == {"width": 8, "blocks": [], "opt": "adam", "momentum": 0.9}
    sgd = client.rerun(before.number, Rerun(params={"opt": "sgd"})).experiment
    assert texts(sgd.space) == "lr=0.1..1 opt=sgd momentum=0..0.9@opt=sgd"


def test_a_rerun_that_is_given_everything_is_one_training(client: Client):
    before = submit(client, f"lr=0.1..1 {BLOCKS}", **SEARCH)
    blocks = [{"kind": "conv", "kernel": 3}, {"kind": "res"}]
    one = client.rerun(before.number, Rerun(params={"lr": 0.5, "blocks": blocks}))
    assert one.experiment.config.search is None
    assert not one.experiment.space.parameters
    assert one.trials[0].params == {"width": 8, "blocks": blocks, "lr": 0.5, "opt": "sgd", "momentum": 0.9}


def test_a_trial_of_a_search_is_trained_alone(client: Client):
    before = submit(client, f"lr=0.1..1 opt=sgd,adam {BLOCKS}", **SEARCH)
    (trial, *_) = until(lambda: client.experiment(before.number).trials, "the search begins its first trial")
    alone = client.rerun(before.number, Rerun(trial=trial.index, params={"opt": "adam"}))
    changed = "" if trial.params["opt"] == "adam" else ": opt adam"
    assert (alone.experiment.name, alone.experiment.rerun_of) == (f"rerun of #{trial.id}{changed}", before.number)
    assert alone.experiment.config == before.config.model_copy(update={"search": None})
    assert not alone.experiment.space.parameters
    assert alone.trials[0].params == {**trial.params, "opt": "adam"}
    with pytest.raises(InvalidRequest, match=r"is one trial: leave out the options of a search, or rerun"):
        client.rerun(before.number, Rerun(trial=trial.index, config={"search": {"method": "random"}}))
    with pytest.raises(NotFound):
        client.rerun(before.number, Rerun(trial=99))


def test_the_command_line_names_a_trial(service: Served, capsys: pytest.CaptureFixture[str]):
    client = service.client()
    before = submit(client, f"lr=0.1..1 {BLOCKS}", **SEARCH)
    (trial, *_) = until(lambda: client.experiment(before.number).trials, "the search begins its first trial")
    assert main(["rerun", trial.id, "--env", "current", "--json", "--no-wait"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["experiment"]["config"]["search"] is None
    assert told["trials"][0]["params"] == trial.params
