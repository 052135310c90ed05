"""Test the verbs on checkpoints of command line and notebook against a real service."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jupyter_ext.job.job import Job
from jupyter_ext.magics.commands import run_command
from jupyter_ext.values.awaited import AwaitedValues
from kernel_backend.cli import main
from kernel_backend.commands.checkpoints import act_on, listed, verified
from kernel_backend.commands.download import download
from kernel_backend.errors import CheckpointDamaged, InvalidRequest, NotFound
from kernel_backend.model.experiment import Config, Keep, Submission
from kernel_backend.model.ids import AttemptId, Reference
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.views.overview import Overview
from tests.api.committed import commit, folder, names, spoil
from tests.api.served import Served, archive, paused, submit, token_of
from tests.support.world import until

KEY = AttemptId(1, 1, 1)
ROOT = Path(__file__).parents[2]
MODEL = """\
from torch import nn
def model(width=2): return nn.Linear(width, 1, bias=False)
def train_data(): return []
def loss(output, target): return 0
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def three(service: Served) -> Path:
    """Provide the home of an experiment with three checkpoints, the first of which is best."""
    client = service.client()
    id, data = archive(MODEL)
    client.upload_snapshot(id, data)
    config = Config(keep=Keep(best=1, latest=1))
    client.submit(Submission(snapshot=id, config=config, name="digits", python="/usr/bin/python3", cwd="/"))
    token_of(service, KEY)  # what it began from is none of these
    for step, loss in ((10, 0.1), (20, 0.4), (30, 0.3)):
        commit(service.home, step, ema=step / 8, loss=loss)
    return service.home


def test_the_list_says_value_size_and_why_each_is_kept(three: Path, capsys: Capture) -> None:
    assert main(["checkpoints", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["trial", "checkpoint", "step", "epoch", "loss", "size", "committed", "verified", "kept"]
    assert [row.split()[:5] for row in rows] == [
        ["1", "10-1", "10", "1.00", "0.1"],
        ["1", "20-1", "20", "2.00", "0.4"],
        ["1", "30-1", "30", "3.00", "0.3"],
    ]
    assert [row.split("not read  ")[1] for row in rows] == ["best", "fall-back", "latest, fall-back"]


def test_a_registered_checkpoint_is_kept_and_its_aliases_have_a_history(
    service: Served, three: Path, capsys: Capture
) -> None:
    def said(*words: str, code: int = 0) -> str:
        assert main([*words]) == code, words
        printed = capsys.readouterr()
        return printed.out if code == 0 else printed.err

    assert "checkpoint 10-1 of 1.1 is memes 1, every byte verified" in said("register", "1", "--as", "memes")
    assert "checkpoint 10-1 of 1.1 is memes 1 already, since 20" in said("register", "1", "--as", "memes", "--best")
    assert "20-1 of 1.1 is memes 2" in said("register", "1.1", "--as", "memes", "--step", "20", "--note", "the wider")
    assert "memes: production 1" in said("model", "memes", "--set", "production=1", "--note", "the first")
    begun = time.time()
    said("model", "memes", "--set", "production=2", "--expect", "1")
    assert "production is 2, not 1: someone" in said("model", "memes", "--set", "production=1", "--expect", "1", code=2)
    shown = said("model", "memes")
    assert "aliases: production 2" in shown
    assert [line.split()[-2:] for line in shown.splitlines() if "1.1/20-1" in line] == [["the", "wider"]]
    assert "production 1 -> 2" in shown
    assert "the first" in shown
    assert said("models").splitlines()[1].split()[:5] == ["memes", "2", "2", "production", "2"]
    at = json.loads(said("model", "memes", "--at", datetime.fromtimestamp(begun, UTC).isoformat(), "--json"))
    assert (at["aliases"], at["moves"]) == ({"production": 1}, [])
    whole_day = said("model", "memes", "--at", datetime.now().strftime("%Y-%m-%d"))
    assert re.search(r"at 20\S+ 00:00:00 [+-]\d{4}: no alias was set", whole_day)
    assert whole_day.count("production") == 2
    detail = dict(line.split(maxsplit=1) for line in said("model", "memes@production").splitlines())
    assert (detail["memes"], detail["checkpoint"], detail["note"]) == ("2", "1.1/20-1, step 20", "the wider")
    # What a model names takes the place of a number.
    assert "digits" in said("show", "memes@production")
    assert [line.split()[1] for line in said("checkpoints", "memes@1").splitlines()[1:]] == ["10-1", "20-1", "30-1"]
    assert "20-1 of 1.1 is cats 1" in said("register", "memes@production", "--as", "cats")
    said("model", "cats", "--remove", "1")
    assert "checkpoint 20-1 of 1.1 is whole" in said("checkpoint", "verify", "memes@production")
    assert "no alias producton (did you mean production?)" in said("show", "memes@producton", code=2)
    # Retention respects versions, and says why.
    rows = said("checkpoints", "1").splitlines()[1:]
    assert [row.split("yes  ")[-1].split("not read  ")[-1].strip() for row in rows] == [
        "best, registered as memes 1", "fall-back, registered as memes 2", "latest, fall-back",
    ]  # fmt: skip
    paused(service, service.client(), KEY)
    assert "stays: fall-back, registered as memes 2" in said("gc", "1", "--verbose")
    refused = r"20-1 of 1.1 is registered as memes 2: daylight model NAME --remove VERSION"
    for action in (["delete", "--yes"], ["unpin"]):
        assert refused in said("checkpoint", action[0], "1", "--step", "20", *action[1:], code=2)
    service.client().stop(1)
    until(lambda: service.client().experiment(1).ended, "#1 has ended")
    assert "checkpoint 1/10-1 stays: registered as memes 1" in said("du", "1")
    assert "#1 is registered as memes 1: daylight model memes --remove 1 first" in said("delete", "1", "--yes", code=2)
    assert "memes@production is version 2: move that alias first" in said("model", "memes", "--remove", "2", code=2)
    assert "version 1 is removed; its checkpoint stays until daylight checkpoint unpin 1.1 --step 10" in said(
        "model", "memes", "--remove", "1"
    )
    said("model", "memes", "--unset", "production")
    said("model", "memes", "--remove", "2")
    for step in ("10", "20"):
        said("checkpoint", "unpin", "1", "--step", step)
    said("gc", "1")
    assert names(three) == ["10-1", "30-1"]
    assert "all versions of memes are removed" in said("show", "memes", code=2)
    said("delete", "1", "--yes")


def test_a_job_registers_its_best_checkpoint_and_no_damaged_one(service: Served, three: Path) -> None:
    client = service.client()
    version = Job(1, client).register("memes", note="the best")
    assert (version.version, version.checkpoint, version.metrics) == (1, "10-1", {"loss": 0.1})
    assert client.model_version("memes@1") == version
    assert version.digest == json.loads((folder(three) / "10-1" / "manifest.json").read_text())["digest"]
    assert Job(1, client).register("memes", latest=True).checkpoint == "30-1"
    spoil(folder(three) / "20-1" / "model.safetensors")
    with pytest.raises(CheckpointDamaged, match=r"checkpoint 20-1 of 1\.1 is damaged: .*part model"):
        Job(1, client).register("memes", step=20)
    with pytest.raises(InvalidRequest, match=r"register takes a name; daylight model memes --set production=N"):
        Job(1, client).register("memes@production")


def test_the_lines_of_the_guide_about_models_do_what_it_says(
    service: Served, three: Path, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/guides/register.md").read_text()
    lines = re.findall(r"^    daylight (.*)$", page, re.MULTILINE)
    here = {"register 12": "register 1", "unpin 12 --step 500": "unpin 1 --step 10", "train.py": str(file)}
    here |= {"--remove 2": "--remove 1", "vision/memes": "memes"}  # without a hub there are no groups
    for line in lines:
        for theirs, ours in here.items():
            line = line.replace(theirs, ours)
        trains = ["--env", "current", "--no-wait"] * line.startswith(("rerun", "continue", "submit"))
        assert main([*shlex.split(line, comments=True), *trains]) == 0, line
    client = service.client()
    again, longer, other = (client.experiment(number).experiment for number in (2, 3, 4))
    assert (again.rerun_of, again.begins_from) == (1, None)
    assert longer.begins_from == "1.1/30-1"
    assert (other.config.weights_from, other.begins_from) == ("1.1", "1.1/30-1:weights")
    model = client.model("memes")
    assert ([each.version for each in model.versions], model.protected) == ([2], ("production",))
    assert len(lines) == 19


def test_verifying_reads_all_or_one_and_damage_is_exit_code_1(three: Path, capsys: Capture) -> None:
    assert main(["checkpoints", "1", "--verify"]) == 0
    assert capsys.readouterr().out.count("yes") == 3
    spoil(folder(three) / "20-1" / "model.safetensors")
    assert main(["checkpoint", "verify", "1", "--latest"]) == 0
    assert main(["checkpoint", "verify", "1", "--step", "20"]) == 1
    assert "checkpoint 20-1 of 1.1 is damaged" in capsys.readouterr().out
    assert main(["checkpoint", "verify", "1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["checkpoints"]
    assert [each["verified"] for each in found] == ["yes", "damaged", "yes"]
    assert main(["checkpoints", "1"]) == 1
    assert "part model has changed" in capsys.readouterr().err
    assert main(["checkpoint", "pin", "1", "--step", "20"]) == 0


def test_verifying_all_leaves_out_what_a_training_let_go_meanwhile(service: Served, three: Path) -> None:
    client = service.client()
    found = listed(client, Reference(1))
    shutil.rmtree(folder(three) / "20-1")
    assert [each.id for each in verified(client, found).infos] == ["10-1", "30-1"]
    every = argparse.Namespace(latest=False, best=False, step=None)
    assert [info.id for info, _ in act_on(client, found, "verify", found.infos, every)] == ["10-1", "30-1"]
    with pytest.raises(NotFound, match="no checkpoint 20-1"):
        act_on(client, found, "verify", [found.infos[1]], argparse.Namespace(latest=False, best=False, step=20))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pin 1", "say which checkpoint: one of --latest, --best or --step S"),
        ("pin 1 --latest --best", "one of --latest, --best or --step S"),
        ("verify 1 --latest --step 10", "one of"),
        ("pin 1 --step 11", "no checkpoint at step 11; there are those at 10, 20, 30"),
        ("pin 1 --step ten", "--step ten: must be a whole number"),
        ("burn 1 --latest", "verify, download, delete, pin, unpin"),
        ("pin 1 --latest --to here", "--to and --force belong to download"),
        ("pin 7 --latest", "no experiment #7"),
        ("pin 1.2 --latest", "experiment #1 has no trial 2: it has 1"),
        ("verify 1.2", "experiment #1 has no trial 2"),
        ("download 1 --latest --to /proc/daylight", "daylight: cannot write to /proc/daylight: "),
        ("delete 1 --latest", "end it first with daylight stop 1"),
    ],
)
def test_what_cannot_be_meant_is_2_with_the_way_out(words: str, said: str, three: Path, capsys: Capture) -> None:
    assert main(["checkpoint", *words.split()]) == 2
    assert said in capsys.readouterr().err
    assert names(three) == ["10-1", "20-1", "30-1"]


def test_pinning_deleting_and_collecting(service: Served, three: Path, capsys: Capture) -> None:
    paused(service, service.client(), KEY)
    commit(three, 40, loss=0.5)
    assert main(["checkpoint", "pin", "1", "--step", "20"]) == 0
    assert main(["checkpoint", "unpin", "1", "--step", "20"]) == 0
    assert main(["gc", "--dry-run", "--verbose"]) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    size = sum(file.stat().st_size for file in (folder(three) / "20-1").glob("*.safetensors"))
    assert lines == [
        "checkpoint 20-1 of 1.1 is kept until it is unpinned",
        "checkpoint 20-1 of 1.1 is not pinned any more: the retention rules do not keep it",
        f"1.1  20-1  {size} B  beyond the rules",
        f"1.1  10-1  {size} B  stays: best",
        f"1.1  30-1  {size} B  stays: fall-back",
        f"1.1  40-1  {size // 2} B  stays: latest, fall-back",
    ]
    assert total == f"1 checkpoint would go, {size} B"
    assert main(["gc", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"1 checkpoint went, {size} B"
    assert main(["gc", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["goes"] == []
    assert main(["checkpoint", "delete", "1", "--best"]) == 0
    assert f"checkpoint 10-1 of 1.1 is deleted ({size} B)" in capsys.readouterr().out
    assert names(three) == ["30-1", "40-1"]


def test_a_terminal_asks_before_it_deletes(service: Served, three: Path) -> None:
    def delete(answer: bytes) -> int:
        watched, terminal = pty.openpty()
        command = [sys.executable, "-m", "kernel_backend.cli", "checkpoint", "delete", "1", "--best"]
        asking = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
        os.close(terminal)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(watched, 4096)
        assert b"delete checkpoint 10-1 of 1.1" in shown
        os.write(watched, answer)
        code = asking.wait(120)
        os.close(watched)
        return code

    assert delete(b"\n") == 2
    assert "10-1" in names(three)
    assert delete(b"y\n") == 0
    assert "10-1" not in names(three)


def test_a_download_is_a_model_that_plain_torch_can_load(three: Path, tmp_path: Path, capsys: Capture) -> None:
    to = tmp_path / "downloads" / "digits"
    assert main(["checkpoint", "download", "1", "--best", "--to", str(to)]) == 0
    assert f"checkpoint 10-1 of 1.1 is in {to}, every byte compared" in capsys.readouterr().out
    assert sorted(each.name for each in to.iterdir()) == [
        "README.txt", "code", "ema.safetensors", "experiment.json", "manifest.json", "model.safetensors",
        "requirements.txt",
    ]  # fmt: skip
    assert (to / "code" / "definition.py").read_text() == MODEL
    Snapshot.model_validate_json((to / "code" / "snapshot.json").read_text())
    assert json.loads((to / "experiment.json").read_text())["name"] == "digits"
    readme = (to / "README.txt").read_text()
    assert "Checkpoint 10-1 of 1.1 digits: step 10, epoch 1.00, loss 0.1." in readme
    code = "\n".join(line.strip() for line in readme.splitlines() if line.startswith("    "))
    command = [sys.executable, "-c", f"{code}\nprint(model.weight.tolist())"]
    done = subprocess.run(command, cwd=to, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[1.25, 1.25]]"


def test_a_download_replaces_nothing_but_an_earlier_one_and_that_only_by_force(
    three: Path, tmp_path: Path, capsys: Capture
) -> None:
    def fetch(which: str, to: Path, *more: str) -> int:
        return main(["checkpoint", "download", "1", which, "--to", str(to), *more])

    to, precious = tmp_path / "digits", tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work")
    assert fetch("--best", to) == 0
    assert fetch("--latest", to) == 2
    assert "is there already" in capsys.readouterr().err
    assert "10-1" in (to / "README.txt").read_text()
    assert fetch("--latest", to, "--force") == 0
    assert "30-1" in (to / "README.txt").read_text()
    assert fetch("--latest", precious, "--force") == 2
    assert "is not replaced" in capsys.readouterr().err
    assert [each.name for each in precious.iterdir()] == ["thesis.tex"]
    assert not list(tmp_path.glob(".*"))


def test_a_download_that_fails_leaves_nothing(service: Served, three: Path, tmp_path: Path) -> None:
    client = service.client()
    spoil(folder(three) / "30-1" / "ema.safetensors")
    with pytest.raises(CheckpointDamaged, match="part ema has changed"):
        download(client, 1, client.checkpoints(1)[-1], tmp_path / "digits")
    assert not list(tmp_path.glob("*digits*"))
    client.close()


def test_resuming_with_other_slots_says_what_that_means(service: Served, capsys: Capture) -> None:
    client = service.client()
    submit(client, slots=1, threads=3)
    assert main(["resume", "1", "--slots", "2"]) == 2
    assert "slots change only while experiment #1 is paused: daylight pause 1" in capsys.readouterr().err
    paused(service, client, KEY)
    assert main(["resume", "1", "--slots", "9"]) == 2
    assert "9 slots requested; here has 2. The most for one trial there: 2 (--slots 2)" in capsys.readouterr().err
    capsys.readouterr()
    for wrong in ("0", "x"):
        assert main(["resume", "1", "--slots", wrong]) == 2
        assert f"--slots {wrong}: must be a whole number from 1 to 65,536" in capsys.readouterr().err
    assert client.experiment(1).experiment.config.slots == 1
    assert main(["resume", "1", "--slots", "2"]) == 0
    said = capsys.readouterr().out
    assert "2 slots" in said.splitlines()[0]
    assert "note: after step 0 with 2 slots instead of 1: the order of samples and the global batch stay" in said
    assert "note: after step 0 with 2 slots" in (main(["show", "1"]), capsys.readouterr().out)[1], "it stays said"
    config = client.experiment(1).experiment.config
    assert (config.slots, config.threads) == (2, 3)
    assert main(["resume", "1"]) == 0
    assert "already\n" in capsys.readouterr().out
    assert client.resume(1, slots=2).experiment.config.slots == 2, "what is said twice changes nothing"
    client.stop(1)
    assert main(["resume", "1", "--slots", "1"]) == 2
    assert "there is nothing to resume" in capsys.readouterr().err
    client.close()


def test_other_slots_are_told_although_an_attempt_starts_at_once(
    service: Served, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = service.client()
    submit(client, slots=1)
    paused(service, client, KEY)
    change = service.service._change

    async def starting(*given: Any, **changes: Any) -> Overview:
        changed = await change(*given, **changes)
        while service.service._store.trial(1, 1).attempt < 2:
            await asyncio.sleep(0.01)
        return changed

    monkeypatch.setattr(service.service, "_change", starting)
    assert main(["resume", "1", "--slots", "2"]) == 0
    assert "note: after step 0 with 2 slots instead of 1" in capsys.readouterr().out
    client.close()


def test_logical_workers_keep_the_bits_on_other_slots(service: Served, capsys: Capture) -> None:
    client = service.client()
    submit(client, slots=2, logical_workers=2)
    paused(service, client, KEY)
    assert main(["resume", "1", "--slots", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["warnings"][-1].endswith("the result keeps its bits, since --logical-workers is 2")
    client.close()


def test_the_notebook_has_the_same_verbs(service: Served, three: Path, tmp_path: Path, capsys: Capture) -> None:
    def dl(line: str) -> str:
        run_command(line.split(), AwaitedValues({}))
        return capsys.readouterr().out

    assert "not read" in dl("checkpoints 1")
    assert dl("checkpoints 1.1 --verify").count(">yes<") == 3
    assert dl("checkpoint verify 1").count("is whole") == 3
    assert "is kept until it is unpinned" in dl("checkpoint pin 1 --step 20")
    assert f"is in {tmp_path / 'here'}" in dl(f"checkpoint download 1 --best --to {tmp_path / 'here'}")
    paused(service, service.client(), KEY)
    assert dl("gc --dry-run --verbose").endswith("no checkpoints would go\n")
    assert "is deleted" in dl("checkpoint delete 1.1 --best")
    assert "1 slot instead" not in dl("resume 1 --slots 1")
    for line, said in (
        ("checkpoint 1 --latest", "takes an action and an experiment"),
        ("checkpoint pin 1", "one of --latest"),
        ("gc 1 2", "takes one experiment"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            run_command(line.split(), AwaitedValues({}))


def test_a_job_that_goes_on_with_other_slots_prints_what_that_means(service: Served, capsys: Capture) -> None:
    client = service.client()
    submit(client, slots=2)
    paused(service, client, KEY)
    Job(1, client).resume(slots=1)
    assert "note: after step 0 with 1 slot instead of 2" in capsys.readouterr().out
    client.close()
