"""Test the verbs on artifacts of command line, notebook and job object against a real service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_ext.job.job import Job
from jupyter_ext.magics.commands import run_command
from jupyter_ext.values.awaited import AwaitedValues
from jupyter_ext.views.comm_api import MOST_BYTES, answer
from kernel_backend.cli import main
from kernel_backend.errors import InvalidRequest, NotFound
from tests.api.served import Served, keep, submit

Capture = pytest.CaptureFixture[str]
FILES = {"net.png": b"\x89PNG", "a table.csv": b"1,2\n", "net.png.png": b"other"}  # two would be net.png


@pytest.fixture(autouse=True)
def kept(service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide an experiment that has saved three files, and a working folder."""
    submit(service.client())
    keep(service, FILES)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def files() -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(Path().rglob("*")) if each.is_file()}


def test_the_list_says_trial_name_size_type_and_step(capsys: Capture) -> None:
    assert main(["artifacts", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["trial", "name", "size", "type", "step", "kept"]
    assert [row.split("  ")[0] for row in rows] == ["1", "1", "1"]
    assert [" ".join(row.split()[1:6]) for row in rows] == [
        "a table 4 B text/csv",
        "net 4 B image/png 3",
        "net.png 5 B image/png 3",
    ]
    assert main(["artifacts", "1.1", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["artifacts"]] == ["a table", "net", "net.png"]
    assert main(["artifacts", "1.2"]) == 2
    assert "experiment #1 has no trial 2: it has 1" in capsys.readouterr().err


def test_one_is_brought_here_by_its_name_and_all_into_a_folder(capsys: Capture) -> None:
    assert main(["artifacts", "1", "--get", "a table"]) == 0
    assert capsys.readouterr().out == "artifacts-1/1/a table.csv\n"
    assert main(["artifacts", "1", "--out", "here", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"files": ["here/1/a table.csv", "here/1/net", "here/1/net.png"]}
    assert files() == {
        "artifacts-1/1/a table.csv": b"1,2\n",
        "here/1/a table.csv": b"1,2\n",
        "here/1/net": b"\x89PNG",
        "here/1/net.png": b"other",
    }


def test_a_name_that_is_none_and_a_folder_that_cannot_be_are_told(capsys: Capture) -> None:
    assert main(["artifacts", "1", "--get", "nte"]) == 2
    said = capsys.readouterr().err
    assert "nothing was kept as 'nte'" in said
    assert "there is: a table, net, net.png" in said
    Path("file").write_text("")
    assert main(["artifacts", "1", "--out", "file"]) == 2
    assert "cannot write to file/1/a table.csv" in capsys.readouterr().err


def test_the_magic_does_the_same(capsys: Capture) -> None:
    run_command(["artifacts", "1", "--get", "net", "--out", "here"], AwaitedValues({}))
    assert capsys.readouterr().out == "here/1/net\n"
    with pytest.raises(InvalidRequest, match="takes one experiment"):
        run_command(["artifacts"], AwaitedValues({}))
    run_command(["artifacts", "1"], AwaitedValues({}))
    assert "a table" in capsys.readouterr().out


def test_a_job_has_the_bytes(service: Served) -> None:
    job = Job(1, service.client())
    assert [each.name for each in job.artifacts()] == ["a table", "net", "net.png"]
    assert job.artifact("net") == job.artifact("net", trial=1) == b"\x89PNG"
    with pytest.raises(NotFound):
        job.artifact("net", trial=2)


def test_a_page_asks_through_its_kernel_for_what_is_not_too_large(service: Served) -> None:
    client = service.client()
    status, said = answer(client, 1, "GET", "/experiments/1/artifacts", {})
    assert (status, len(said["artifacts"])) == (200, 3)
    of_trial = "/experiments/1/trials/1/artifacts"
    assert answer(client, 1, "GET", f"{of_trial}/a%20table", {}) == (200, {"base64": "MSwyCg=="})
    assert answer(client, 1, "GET", f"{of_trial}/none", {})[0] == 404
    keep(service, {"big.bin": b"x" * (MOST_BYTES + 1)}, first=4)
    status, said = answer(client, 1, "GET", f"{of_trial}/big", {})
    assert (status, "%dl artifacts 1.1 --get 'big'" in said["message"]) == (413, True)
    status, said = answer(client, 1, "GET", "/experiments/1/checkpoints/1/20-2/files.tar", {})
    assert (status, said["message"].endswith("%dl checkpoint download 1.1 --step 20")) == (413, True)
