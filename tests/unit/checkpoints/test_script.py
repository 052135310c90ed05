"""Test checkpoints of plain scripts: nested states, any storage, and an intact state after every kill."""

from __future__ import annotations

import multiprocessing
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from daylight import checkpoints
from kernel_backend.checkpoints.lock import single_writer
from kernel_backend.errors import CheckpointDamaged, Conflict, DaylightError, InvalidRequest, NotFound
from kernel_backend.model.experiment import Keep, Metric
from tests.torture.files import Files
from tests.torture.saves import script, state_of

ROOT = Path(__file__).parents[3]
KILLS, SEED = 8, 4


@pytest.fixture(params=["folder", "url"])
def where(request, tmp_path):
    return str(tmp_path / "runs") if request.param == "folder" else f"memory://{tmp_path}"


def steps(where):
    return {int(name.split("-")[0]) for name in Files(where).names() if "/" in name}


def test_a_training_goes_on_from_what_it_saved(where):
    def trained(model, optimizer, some):
        for step in some:
            optimizer.zero_grad()
            model(torch.full((1, 3), float(step))).sum().backward()
            optimizer.step()
            checkpoints.save(
                where, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "seen": (step, "ü")}, step
            )

    def made():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = made()
    trained(model, optimizer, range(1, 4))
    again, restored = made()
    state = checkpoints.load(where)
    again.load_state_dict(state["model"])
    restored.load_state_dict(state["optimizer"])
    assert state["seen"] == (3, "ü")
    trained(model, optimizer, range(4, 6))
    trained(again, restored, range(4, 6))
    assert torch.equal(model.weight, again.weight)


def test_without_a_checkpoint_there_is_no_latest_and_nothing_to_load(where):
    assert checkpoints.latest(where) is None
    with pytest.raises(NotFound, match="there is no checkpoint in"):
        checkpoints.load(where)


def test_the_latest_tells_its_step_and_its_values(where):
    checkpoints.save(where, {}, 3, metrics={"loss": torch.tensor(0.5)})
    latest = checkpoints.latest(where)
    assert (latest.step, latest.metrics) == (3, {"loss": 0.5})


def test_the_best_and_the_two_newest_are_kept(where):
    for step, loss in enumerate([0.9, 0.1, 0.5, 0.4, 0.3], start=1):
        checkpoints.save(where, {"step": step}, step, metrics={"loss": loss})
    assert steps(where) == {2, 4, 5}
    assert checkpoints.load(where, step=2) == {"step": 2}
    with pytest.raises(NotFound, match=r"no checkpoint at step 1 in .*: 2, 4, 5"):
        checkpoints.load(where, step=1)


def test_what_is_kept_can_be_said(where):
    for step, accuracy in enumerate([0.9, 0.1, 0.5, 0.4, 0.3], start=1):
        metrics = {"accuracy": accuracy}
        checkpoints.save(where, {}, step, metrics=metrics, keep="best:1,latest:3", metric="accuracy:max")
    assert steps(where) == {1, 3, 4, 5}
    checkpoints.save(where, {}, 6, metrics={"accuracy": 0.2}, keep=Keep(best=0), metric=Metric(name="accuracy"))
    assert steps(where) == {5, 6}
    with pytest.raises(InvalidRequest, match="'all' is no rule"):
        checkpoints.save(where, {}, 7, keep="all")


def test_what_was_saved_last_is_the_latest_whatever_its_step(where):
    for step in (98, 99, 100):
        checkpoints.save(where, {"run": 1}, step)
    checkpoints.save(where, {"run": 2}, 5)
    assert checkpoints.load(where) == {"run": 2}
    checkpoints.save(where, {"run": 2, "again": True}, 5)
    assert checkpoints.load(where, step=5) == {"run": 2, "again": True}
    checkpoints.save(where, {"run": 2}, 6)
    assert checkpoints.latest(where).step == 6
    assert steps(where) == {5, 6}


def test_a_damaged_one_is_set_aside_with_a_warning_and_the_one_before_is_taken(where, caplog):
    for step in (1, 2):
        checkpoints.save(where, {"weights": torch.full((9,), step)}, step)
    Files(where).write("2-2/state.safetensors", b"damaged")
    assert checkpoints.load(where)["weights"].tolist() == [1] * 9
    assert "2-2" in caplog.text
    assert checkpoints.latest(where).step == 1
    Files(where).write("1-1/state.safetensors", b"damaged")
    with pytest.raises(CheckpointDamaged, match="1-1"):
        checkpoints.load(where)


def test_what_cannot_be_saved_is_refused_and_leaves_nothing(where):
    checkpoints.save(where, {"step": 1}, 1)
    with pytest.raises(DaylightError, match=r"the value at model\.hook is an object of class function"):
        checkpoints.save(where, {"model": {"hook": lambda: None}}, 2)
    with pytest.raises(InvalidRequest, match="step=-1"):
        checkpoints.save(where, {}, -1)
    assert steps(where) == {1}


def test_the_guides_script_trains_and_goes_on_from_what_it_saved(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "guides" / "plain-checkpoints.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    first: dict = {}
    exec(code, first)
    assert checkpoints.latest("runs/digits").step == 100
    again: dict = {}
    exec(code, again)
    assert again["begin"] == 100
    assert torch.equal(again["model"].weight, first["model"].weight)


def test_importing_it_imports_no_torch():
    code = "import sys; from daylight.checkpoints import load, save, latest; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"


@pytest.fixture(scope="module")
def processes():
    """Provide processes that have each imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.torture.saves", "kernel_backend.checkpoints.writer"])
    return context


def test_killed_in_the_middle_of_a_save_a_script_finds_a_whole_state(processes, tmp_path, capsys):
    rng = random.Random(SEED)
    where = str(tmp_path / "runs")
    inside = 0
    for kill in range(KILLS):
        hear, say = processes.Pipe(duplex=False)
        child = processes.Process(target=script, args=(where, say), daemon=True)
        child.start()
        say.close()
        hear.recv()
        if kill:
            time.sleep(rng.random() * 0.05)
        else:
            stop_within_a_save(child.pid, where)  # one of them surely is
        child.kill()
        child.join()
        acknowledged = last_word(hear)
        inside += bool(unfinished(where))
        if checkpoints.latest(where) is None:
            assert acknowledged == 0
            continue
        state = checkpoints.load(where)
        assert state["step"] >= acknowledged, f"seed {SEED}, kill {kill}"
        expected = state_of(state["step"])
        assert torch.equal(state["weights"], expected["weights"]), f"seed {SEED}, kill {kill}"
        assert torch.equal(state["more"]["half"], expected["more"]["half"]), f"seed {SEED}, kill {kill}"
        assert not list(Path(where).glob("*.bad"))
    with capsys.disabled():
        print(f"\nplain script: {KILLS} of {KILLS} kills, {inside} within a save, whole states (seed {SEED})")
    assert inside


def last_word(hear):
    said = 0
    try:
        while True:
            said = hear.recv()
    except EOFError:
        return said


def stop_within_a_save(pid, where):
    """Stop the process within a save, before it is committed."""
    process = psutil.Process(pid)
    while True:
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            pass
        if unfinished(where):
            return
        process.resume()


def unfinished(where):
    return [each for each in Path(where).glob("*-*") if not (each / "manifest.json").exists()]


def test_two_processes_that_save_into_one_folder_are_told(tmp_path):
    place = tmp_path / "runs"
    with single_writer(str(place)), pytest.raises(Conflict, match=f"another process saves to {re.escape(str(place))}"):
        checkpoints.save(place, {"a": 1}, 1)
    assert checkpoints.save(place, {"a": 1}, 1).step == 1


@pytest.mark.parametrize("step", ["1", -1, 1.0, None])
def test_a_step_that_is_none_is_refused_in_a_sentence(where, step):
    with pytest.raises(InvalidRequest, match=re.escape(f"step={step!r}: must be a whole number from 0 up")):
        checkpoints.save(where, {}, step)


def test_an_array_is_answered_with_the_way_to_a_tensor(where):
    with pytest.raises(DaylightError, match=r"the value at a\.0 is an object of class ndarray.*torch\.from_numpy"):
        checkpoints.save(where, {"a": [torch.zeros(2).numpy()]}, 1)
