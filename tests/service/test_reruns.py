"""Test that a rerun gives the same bits, or names the first step that differs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from jupyter_ext.job.job import Job
from kernel_backend.cli import main as cli
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, InvalidRequest, NotFound
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Submission
from kernel_backend.snapshots.environment import record
from tests.support.world import DEFINITION, World, until
from tests.torture import reruns

pytestmark = pytest.mark.distributed

READING = """
import json
from pathlib import Path
import torch
from torch import nn

def train_data():
    scale = json.loads(Path("scale.json").read_text())
    x = torch.tensor([[float(ord(file.read_text()[0])) * scale] for file in sorted(Path("samples").iterdir())])
    return torch.utils.data.TensorDataset(x, x * 2)
def model(): return nn.Linear(1, 1)
def optimizer(params): return torch.optim.SGD(params, lr=1e-7)
def loss(output, target): return nn.functional.mse_loss(output, target)
"""


def client(world: World) -> Client:
    return Client.connect(start=False, home=world.home)


@pytest.fixture(scope="module")
def plain(world: World) -> int:
    """A training of two epochs that has ended."""
    return finished(world)


def test_a_rerun_gives_equal_bits(world: World) -> None:
    assert reruns.run(1, world).startswith("1 of 1 reruns")


def test_a_rerun_says_whose_it_is(world: World) -> None:
    first = world.submit(epochs=1000, pause=0.1).experiment.number
    again = client(world).rerun(first).experiment
    assert (again.rerun_of, again.name) == (first, f"rerun of #{first}")
    client(world).stop(first)
    client(world).stop(again.number)


def test_a_rerun_with_another_hyperparameter_says_so_and_where_results_part(world: World, plain: int) -> None:
    again = client(world).rerun(plain, Rerun(params={"lr": 0.02})).experiment.number
    world.ended(again)
    found = client(world).diff(plain, again)
    assert [(each.kind, each.text) for each in found.differences] == [("hyperparameters", "lr 0.01 -> 0.02")]
    assert found.results.identical is False
    assert found.results.parted_at is not None
    assert found.results.parted_at <= 2


def test_a_rerun_works_when_its_folder_is_gone(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    first = world.submit(cwd=folder, slots=1).experiment.number
    world.ended(first)
    shutil.rmtree(folder)
    again = client(world).rerun(first).experiment.number
    assert world.ended(again).state == "completed"
    assert client(world).diff(first, again).results.identical


def test_what_cannot_be_asked_of_a_rerun_is_refused(world: World, plain: int) -> None:
    with pytest.raises(InvalidRequest, match="no configuration: slots"):
        client(world).rerun(plain, Rerun(config={"slots": 0}))
    with pytest.raises(InvalidRequest, match="no configuration: colour"):
        client(world).rerun(plain, Rerun(config={"colour": 1}))
    with pytest.raises(NotFound):
        client(world).rerun(10**6)
    snapshot = client(world).experiment(plain).experiment.snapshot
    with pytest.raises(NotFound):
        client(world).submit(Submission(snapshot=snapshot, python=sys.executable, cwd="/", rerun_of=10**6))
    with pytest.raises(ValidationError):  # whose checkpoint it begins from is the service's to say
        Submission(snapshot=snapshot, python=sys.executable, cwd="/", begins_from="1.1/4-1")  # type: ignore[call-arg]


def test_the_first_steps_after_a_checkpoint_are_verified(world: World) -> None:
    first = world.submit(slots=1, checkpoint_every={"steps": 6}, keep={"latest": 9, "best": 0}).experiment.number
    world.ended(first)
    again = client(world).retrain(first).experiment
    assert (again.begins_from, again.config.until) == (f"{first}.1/6-1", 8)  # saved after its validation
    assert world.ended(again.number).state == "completed"
    found = client(world).diff(first, again.number)
    assert found.results.identical, found.results.text
    assert "checkpoints of step 8" in found.results.text


def test_a_training_with_one_checkpoint_is_verified_from_its_beginning(world: World) -> None:
    first = world.lasting(slots=1, epochs=1, checkpoint_every={"epochs": 1}, pause=2.0)
    with pytest.raises(NotFound, match="no checkpoint yet to compare with"):
        client(world).retrain(first)
    world.hurry(first)
    world.ended(first)
    again = client(world).retrain(first).experiment
    assert (again.begins_from, again.config.until) == (None, 8)
    world.ended(again.number)
    assert client(world).diff(first, again.number).results.identical


def test_a_mismatch_names_the_first_tensor_that_differs(world: World) -> None:
    drifting = DEFINITION.replace("time.sleep(pause)", "output = output + time.time_ns() % 97 * 1e-3")
    first = world.submit(drifting, slots=1).experiment.number
    world.ended(first)
    again = client(world).retrain(first).experiment.number
    world.ended(again)
    results = client(world).diff(first, again).results
    assert results.identical is False
    assert re.search(r"the first tensor that differs after step (8|16): \d\.(weight|bias) of model", results.text)


def test_a_history_says_what_has_changed_since_the_one_before(world: World) -> None:
    lasts = {"name": "history of one", "epochs": 1000, "pause": 0.1}
    numbers = [world.submit(**lasts).experiment.number]
    numbers += [world.submit(**lasts, lr=0.5).experiment.number]
    numbers += [world.submit(DEFINITION.replace("mse_loss", "l1_loss"), **lasts, lr=0.5).experiment.number]
    newest, middle, oldest = client(world).history("history of one")
    assert [newest.number, middle.number, oldest.number] == numbers[::-1]
    assert (oldest.before, oldest.differences) == (None, ())
    assert [each.text for each in middle.differences] == ["lr 0.01 -> 0.5"]
    assert [each.kind for each in newest.differences] == ["code"]
    for number in numbers:
        client(world).stop(number)


def test_a_trial_whose_copied_beginning_is_gone_does_not_start_from_scratch(world: World) -> None:
    options = {"checkpoint_every": {"steps": 4}, "keep": {"latest": 9, "best": 0}}
    first = world.submit(slots=1, epochs=1, **options).experiment.number
    world.ended(first)
    # Four slow steps from one checkpoint to the next: time to pause it amid them.
    again = client(world).retrain(first, Rerun(params={"pause": 5.0})).experiment
    world.state(again.number, "running")
    client(world).pause(again.number)
    until(lambda: not world.ranks(), "its gang has left")
    shutil.rmtree(world.home / "checkpoints" / str(again.number) / "1")
    client(world).resume(again.number)
    assert world.ended(again.number).state == "failed"
    failure = client(world).experiment(again.number).trials[0].failure
    assert failure is not None
    assert f"the copy of checkpoint {again.begins_from}, from which it began, has been deleted" in failure.message


def test_a_rerun_reads_included_files_and_data_as_they_were(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rerun uses `daylight submit` and `daylight rerun`, like a user in a terminal."""
    project = tmp_path / "project"
    (project / "samples").mkdir(parents=True)
    for name in "abcd":
        (project / "samples" / f"{name}.txt").write_text(name)
    (project / "scale.json").write_text("3")
    (project / "train.py").write_text(READING)
    monkeypatch.chdir(project)
    monkeypatch.setenv("DAYLIGHT_HOME", str(world.home))
    line = "submit train.py --include scale.json --data samples --batch-size 4 --epochs 1 --threads 1 --quiet --again"
    assert cli(line.split()) == 0
    first = int(capsys.readouterr().out)
    world.ended(first)
    (project / "scale.json").write_text("7")
    (project / "samples" / "e.txt").write_text("added")
    assert cli(["rerun", str(first), "--env", "current", "--wait"]) == 0
    said = capsys.readouterr()
    assert "1 file was added (e.txt), since" in said.err
    assert "it is read as it was, by links" in said.err
    found = client(world).diff(first, first + 1)
    assert found.results.identical, found
    assert [each.name for each in found.differences if not each.harmless] == []
    moved = project.rename(tmp_path / "moved") / "samples"
    monkeypatch.chdir(tmp_path)
    assert cli(["rerun", str(first), "--env", "current", "--wait", "--data", f"samples={moved}"]) == 0
    assert "bit-identical" in capsys.readouterr().out


def finished(world: World, **options: object) -> int:
    number = world.submit(**{"slots": 1} | options).experiment.number
    assert world.ended(number).state == "completed"
    return number


def parts(world: World, number: int) -> dict[str, str]:
    """Return the digests of all parts of the newest checkpoint."""
    newest = client(world).checkpoints(number)[-1]
    manifest = json.loads(client(world).manifest(number, 1, newest.id))
    return {part["name"]: part["digest"] for part in manifest["parts"]}


DECAYING = DEFINITION + "def schedule(optimizer): return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)\n"
COSINE = DEFINITION + (
    "def schedule(optimizer, steps): return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)\n"
)


def test_a_training_that_is_continued_has_the_bits_of_one_that_was_longer_at_once(world: World) -> None:
    short, long = (finished(world, source=DECAYING, epochs=epochs) for epochs in (2, 4))
    again = client(world).rerun(short, Rerun(checkpoint="newest", config={"epochs": 4})).experiment
    assert (again.begins_from, again.rerun_of) == (f"{short}.1/16-1", short)
    assert again.name == f"#{short}.1 continued: epochs 4"
    assert world.ended(again.number).state == "completed"
    assert parts(world, again.number) == parts(world, long)
    steps = [each.step for each in world.reports(again.number) if each.kind == "validation"]
    assert steps == [24, 32]


def test_a_schedule_of_the_whole_length_is_made_anew(world: World) -> None:
    short = finished(world, source=COSINE, epochs=2)
    again = client(world).rerun(short, Rerun(checkpoint="newest", config={"epochs": 4})).experiment.number
    assert world.ended(again).state == "completed"
    assert any("from here on it is that of the new length" in each for each in world.overview(again).warnings)


def test_a_training_is_continued_from_its_best_checkpoint_with_other_values(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYLIGHT_HOME", str(world.home))
    first = finished(world, slots=2, epochs=4, lr=3.0, keep={"best": 1, "latest": 1}, environment=record())
    kept = client(world).checkpoints(first)
    best = min(kept, key=lambda each: each.metrics["loss"])
    asked = Rerun(checkpoint="best", params={"lr": 0.001}, config={"epochs": 6, "slots": 1})
    again = client(world).rerun(first, asked).experiment
    assert again.begins_from == f"{first}.1/{best.id}"
    assert world.ended(again.number).state == "completed"
    assert cli(["continue", str(again.number), "--epochs", "7", "--wait"]) == 0
    longer = Job(again.number, client(world)).continue_training(8, lr=0.002).wait()
    assert (longer.status, longer.overview.trials[0].step) == ("completed", 64)


def test_an_experiment_that_is_resumed_with_more_epochs_is_continued(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAYLIGHT_HOME", str(world.home))
    short = finished(world, epochs=1, environment=record())
    assert cli(["resume", str(short), "--epochs", "2", "--json"]) == 0
    printed = capsys.readouterr()
    assert f"#{short} trains on as a new experiment, as by daylight continue {short} --epochs 2" in printed.err
    number = json.loads(printed.out)["experiment"]["number"]
    assert world.ended(number).state == "completed"
    assert client(world).experiment(number).experiment.begins_from.startswith(f"{short}.1/")


def test_what_cannot_be_continued_is_refused(world: World, plain: int) -> None:
    first = plain
    with pytest.raises(InvalidRequest, match=r"has 2 epochs behind it, and --epochs 2 counts them, too: .* --epochs 4"):
        client(world).rerun(first, Rerun(checkpoint="newest"))
    with pytest.raises(InvalidRequest, match=r"has 16 steps behind it, and --steps 16 counts them"):
        client(world).rerun(first, Rerun(checkpoint="newest", config={"steps": 16}))
    with pytest.raises(NotFound, match=f"#{first} has no checkpoint 5: write newest, best, or one of steps"):
        client(world).rerun(first, Rerun(checkpoint="5", config={"epochs": 4}))
    with pytest.raises(Conflict, match=f"daylight continue {first} --epochs N trains it longer"):
        client(world).resume(first)


def test_patience_is_counted_anew_when_a_training_is_continued(world: World) -> None:
    first = finished(world, epochs=40, lr=5.0, patience=1)
    stopped = world.overview(first).trials[0].step
    assert stopped < 320
    again = client(world).rerun(first, Rerun(checkpoint="newest", config={"patience": 2})).experiment.number
    assert world.ended(again).trials[0].step > stopped


def test_a_training_begins_with_the_best_weights_of_another(world: World, plain: int) -> None:
    first = plain
    best = min(client(world).checkpoints(first), key=lambda each: each.metrics.get("loss", float("inf")))
    wider = world.submit(slots=1, epochs=1, weights_from=str(first), width=24)
    assert wider.experiment.begins_from == f"{first}.1/{best.id}:weights"
    ended = world.ended(wider.experiment.number)
    assert (ended.experiment.state, ended.trials[0].step) == ("completed", 8)
    assert any("begins with the weights of another trial, except " in each for each in ended.warnings)
    searched = world.submit(slots=1, epochs=1, space="lr=0.1,0.2", search={"method": "grid"}).experiment.number
    world.ended(searched)
    with pytest.raises(InvalidRequest, match=f"--from {searched}: it is a search: name a trial of it, {searched}.1"):
        world.submit(weights_from=str(searched))
    with pytest.raises(NotFound):
        world.submit(weights_from="999")
