"""Test changing and searching the names, notes and tags of experiments, against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from jupyter_ext.job.job import Job
from jupyter_ext.magics.commands import run_command
from jupyter_ext.values.awaited import AwaitedValues
from jupyter_ext.views.comm_api import answer
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Forbidden, InvalidRequest, NotFound
from kernel_backend.model.experiment import Submission
from kernel_backend.model.labels import LabelEdit
from tests.api.people import FakeHub
from tests.api.served import DEFINITION, Served, StillEngine, archive, submit

Said = Callable[..., str]


@pytest.fixture
def people(tmp_path: Path) -> Iterator[dict[str, Client]]:
    served = Served(tmp_path, StillEngine(), identity=FakeHub())
    made = {name: served.client(name, patience=5) for name in ("dave", "danielle", "eve", "ada")}
    yield made
    for each in made.values():
        each.close()
    served.stop()


def test_owner_and_admin_change_labels_and_only_the_admins_change_is_audited(people: dict[str, Client]):
    number = submit(people["dave"], "digits").experiment.number
    with pytest.raises(Forbidden, match="dave's"):
        people["danielle"].label(number, LabelEdit(name="mine"))
    with pytest.raises(NotFound):
        people["eve"].label(number, LabelEdit(name="mine"))
    people["dave"].label(number, LabelEdit(name="wide digits", add_tags=("baseline",)))
    assert people["ada"].audit() == []
    people["ada"].label(number, LabelEdit(note="too slow"))
    people["ada"].label(number, LabelEdit(note="too slow"))  # changes nothing
    assert [(each.who, each.act, each.on, each.detail) for each in people["ada"].audit()] == [
        ("ada", "label", f"#{number}", "note changed, of dave")
    ]
    seen = people["danielle"].experiment(number).experiment
    assert (seen.name, seen.note, seen.tags) == ("wide digits", "too slow", ("baseline",))


def test_labels_change_after_the_end_and_watchers_hear_of_it(client: Client):
    number = submit(client, "digits").experiment.number
    ended = client.stop(number)
    client.label(number, LabelEdit(add_tags=("done",)))
    messages = islice(client.watch(after=ended.seq, experiment=number), 20)
    heard = next(each for each in messages if each.type == "experiment" and each.data["tags"])
    assert heard.data["tags"] == ["done"]
    assert client.experiment(number).experiment.tags == ("done",)


def test_a_list_is_searched_by_labels(client: Client):
    first, second = (submit(client, name).experiment.number for name in ("digits", "faces"))
    client.label(first, LabelEdit(note="diverged", add_tags=("baseline", "paper")))
    client.label(second, LabelEdit(add_tags=("paper",)))

    def numbers(**asked: object) -> list[int]:
        return [each.experiment.number for each in client.experiments(**asked)]

    assert numbers(tags=["paper"]) == [second, first]
    assert numbers(tags=["paper", "baseline"]) == numbers(search="diver") == numbers(search="BASE") == [first]
    with pytest.raises(InvalidRequest, match="'two words' is no tag"):
        numbers(tags=["two words"])


def test_a_file_and_a_rerun_are_submitted_with_tags_and_a_note(
    service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = service.client()
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(DEFINITION)
    labels = ["--tag", "baseline,paper", "--tag", "Paper", "--note", "first try"]
    assert main(["submit", "train.py", "--quiet", *labels]) == 0
    assert main(["rerun", "1", "--quiet", "--tag", "again", "--note", "second"]) == 0
    second, first = (each.experiment for each in client.experiments())
    assert (first.tags, first.note) == (("baseline", "paper"), "first try")
    assert (second.tags, second.note) == (("again",), "second")
    message = next(iter(client.watch(after=0, experiment=1)))
    assert message.data["tags"] == ["baseline", "paper"]  # stored together with the experiment


def test_a_run_without_a_name_is_called_by_what_differs_from_the_one_before(
    service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = service.client()
    monkeypatch.chdir(tmp_path)

    def called(*line: str) -> str:
        assert main([line[0], "--quiet", *line[1:]]) == 0
        return client.experiments(limit=1)[0].experiment.name

    Path("train.py").write_text(DEFINITION)
    assert called("submit", "train.py") == "train"
    assert called("submit", "train.py", "width=16", "--epochs", "3") == "train: width 16, epochs 3"
    assert called("rerun", "2") == "rerun of #2"
    assert called("rerun", "2", "width=32") == "rerun of #2: width 32"
    assert called("submit", "train.py", "width=16", "--epochs", "3", "--again") == "train: again"
    Path("train.py").write_text(f"{DEFINITION}# changed\n")
    assert called("submit", "train.py", "width=16", "--epochs", "3", "--again") == "train: new code"
    assert called("submit", "train.py", "width=64", "--name", "wide") == "wide"
    assert called("submit", "--", "bash", "-c", "true") == "bash"


def test_a_run_of_a_notebook_is_called_by_its_file(client: Client):
    id, data = archive()
    client.upload_snapshot(id, data)

    def called(width: int, notebook: str = "/home/dave/quickstart.ipynb") -> str:
        asked = {"snapshot": id, "python": "/usr/bin/python3", "cwd": "/", "params": {"width": width}}
        return client.submit(Submission.model_validate({**asked, "notebook": notebook})).experiment.name

    assert [called(8), called(16)] == ["quickstart", "quickstart: width 16"]
    assert called(32, notebook="/home/dave/search.ipynb") == "search"


def test_the_verbs_in_a_terminal_and_in_a_cell(service: Served, capsys: pytest.CaptureFixture[str]):
    client = service.client()
    submit(client, "digits")
    submit(client, "faces")

    def said(*line: str) -> str:
        assert main(list(line)) == 0
        return capsys.readouterr().out

    assert said("rename", "1", "wide", "digits").startswith("#1 wide digits")
    assert "noted: too slow" in said("note", "1", "too", "slow")
    assert "tags: baseline, paper" in said("tag", "1", "baseline", "paper")
    assert said("note", "1") == "too slow\n"
    assert said("tag", "1") == "baseline, paper\n"
    shown = said("show", "1")
    assert "  tags: baseline, paper\n  noted: too slow\n" in shown
    head, row = said("list", "--tag", "paper").splitlines()
    assert (head.split()[-1], row.split()[-2:]) == ("tags", ["baseline,", "paper"])
    assert "tags" not in said("list", "--search", "faces")
    assert json.loads(said("tag", "1", "--remove", "paper", "--json"))["experiment"]["tags"] == ["baseline"]
    said("note", "1", "--clear")
    assert said("note", "1") == "there is no note\n"
    assert main(["rename", "1"]) == 2
    assert "write daylight rename 12 wide net" in capsys.readouterr().err
    run_command(["tag", "2", "paper"], AwaitedValues({}))
    run_command(["list", "--tag", "paper"], AwaitedValues({}))
    assert "faces" in capsys.readouterr().out


def test_a_job_and_a_view_through_the_kernel_change_labels(client: Client):
    job = Job(submit(client, "digits").experiment.number, client)
    job.rename("net").note("slow").tag("a", "b").tag(remove=["a"])
    found = job.overview.experiment
    assert (found.name, found.note, found.tags) == ("net", "slow", ("b",))
    path = f"/experiments/{job.number}/label"
    status, body = answer(client, job.number, "POST", path, {"note": "", "add_tags": ["c"]})
    assert (status, body["experiment"]["tags"], body["experiment"]["note"]) == (200, ["b", "c"], "")
    status, body = answer(client, job.number, "POST", path, {"owner": "eve"})
    assert (status, body["error"]) == (400, "InvalidRequest")
