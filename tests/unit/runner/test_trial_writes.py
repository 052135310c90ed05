"""Test that a file which two trials of a search write is told to the second, and that other files are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.runner import opened_files
from kernel_backend.runner.trial_writes import TrialWrites


@pytest.fixture
def notes_of(tmp_path, monkeypatch):
    """Provide a function that lets an attempt of a trial call `write`, and returns the notes on the trial."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    opened_files.watch(lambda path: False)  # torch and safetensors tell of their files from then on

    def run(trial, write, home="home"):
        notes: list[str] = []
        job = LaunchSpec(
            experiment=5,
            trial=trial,
            attempt=1,
            config=Config(epochs=1),
            params={"lr": 0.1},
            placement=(Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),),
            python=sys.executable,
            cwd=str(work),
            code=str(tmp_path / "home" / "code"),
            snapshot="",
            checkpoints=str(tmp_path / "home" / "checkpoints"),
            home=str(tmp_path / home),
            staged=home != "home",
        )
        writes = TrialWrites(job, notes.append)
        writes.begin()
        write()
        writes.end()
        return notes

    yield run
    opened_files.stop()


SCRIPTED = torch.jit.script(torch.nn.Linear(1, 1))


def saved():
    torch.save({}, "made.tmp")
    os.replace("made.tmp", "best.pt")


@pytest.mark.parametrize(
    "write",
    [
        lambda: Path("best.pt").write_bytes(b"w"),
        lambda: torch.save({}, "best.pt"),
        lambda: save_file({"w": torch.zeros(1)}, "best.pt"),
        lambda: torch.save({}, Path("best.pt").absolute()),
        lambda: os.close(os.open("best.pt", os.O_CREAT | os.O_WRONLY)),
        lambda: torch.jit.save(SCRIPTED, "best.pt"),
        lambda: SCRIPTED.save("best.pt"),
        lambda: h5py.File("best.pt", "w").close(),
        lambda: np.memmap("best.pt", mode="w+", shape=(3,)),
        lambda: (Path("own").write_text(""), os.replace("own", "best.pt"))[0],
    ],
)
def test_the_second_trial_that_writes_a_file_is_told(notes_of, write):
    assert notes_of(1, lambda: torch.save({}, "best.pt")) == []
    (told,) = notes_of(2, lambda: (write(), write()))
    assert told.startswith("best.pt is written by trial 1 of this search, too.")
    assert told.endswith('hyperparameters, as in f"best-{lr}.pt"')


def test_a_trial_that_writes_its_file_again_is_not_told(notes_of):
    assert [notes_of(1, saved), notes_of(1, saved)] == [[], []]


def test_on_nodes_without_a_common_home_a_file_that_another_one_writes_meanwhile_is_told(notes_of):
    def after_the_other():
        beside = [sys.executable, "-c", "open('best.pt', 'w').close()"]  # a trial on another node
        subprocess.run(beside, check=True)
        os.utime("best.pt", (time.time() + 1, time.time() + 1))
        saved()

    saved()  # of an earlier search
    assert notes_of(1, lambda: (saved(), saved()), home="of-one-node") == []
    (told,) = notes_of(2, after_the_other, home="of-another-node")
    assert told.startswith("best.pt is written by another trial of this search, too.")


def test_files_that_are_read_or_appended_to_or_named_by_their_trial_are_not_told(notes_of, tmp_path):
    table = tmp_path / "work" / "table.h5"
    h5py.File(table, "w").close()

    def trains(lr):
        with open("results.csv", "a") as file:
            file.write(f"{lr}\n")
        Path("results.csv").read_text()
        h5py.File(table, "r").close()
        torch.save({}, f"best-{lr}.pt")
        Path("../home/code").mkdir(parents=True, exist_ok=True)
        Path("../home/code/own.txt").write_text("of the job")

    assert [notes_of(1, lambda: trains(0.1)), notes_of(2, lambda: trains(0.2))] == [[], []]


def test_a_home_that_cannot_be_written_is_no_error_of_the_training(notes_of, tmp_path):
    (tmp_path / "home").write_text("no folder")
    assert [notes_of(1, saved), notes_of(2, saved)] == [[], []]


def test_nothing_of_the_listener_reaches_the_program_that_writes(notes_of, tmp_path):
    def writes():
        (tmp_path / "home" / "programs" / "5" / "written").rmdir()
        torch.save({}, "best.pt")

    assert notes_of(1, writes) == []
    assert Path("best.pt").exists()
