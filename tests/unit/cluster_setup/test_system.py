"""Test that steps are carried out once, keep backups of existing files, and can be undone."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from kernel_backend.cluster_setup.cluster import MARK
from kernel_backend.cluster_setup.steps import BACKUP, Folder, Remove, Run, SetAside, Start, Step, Stop, Write
from kernel_backend.cluster_setup.system import SetupFailed, System

ME = getpass.getuser()


def carry_out(*steps: Step) -> list[str]:
    """Carry out steps without systemd, and return what they changed."""
    changed: list[str] = []
    System(systemd=False).carry_out(steps, changed.append)
    return changed


def test_a_file_is_written_once_with_its_mode(tmp_path):
    steps = Folder(f"{tmp_path}/a", ME, 0o700), Write(f"{tmp_path}/a/b", b"text", ME, 0o600)
    assert carry_out(*steps) == [f"changed: {tmp_path}/a", f"changed: {tmp_path}/a/b"]
    assert carry_out(*steps) == []
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o600


def test_a_file_of_others_is_kept_and_comes_back(tmp_path):
    path, ours = tmp_path / "slurm.conf", f"{MARK}\n".encode()
    path.write_text("theirs")
    carry_out(Write(str(path), ours, ME, backup=True))
    carry_out(Write(str(path), ours + b"more", ME, backup=True))
    assert Path(f"{path}{BACKUP}").read_text() == "theirs"
    carry_out(Remove(str(path)))
    assert path.read_text() == "theirs"
    carry_out(SetAside(str(path)))
    assert not path.exists()
    carry_out(Remove(str(path)))
    assert path.read_text() == "theirs"
    assert [each.name for each in tmp_path.iterdir()] == ["slurm.conf"]


def test_a_command_runs_only_after_a_change(tmp_path):
    path, made = f"{tmp_path}/conf", tmp_path / "made"
    carry_out(Run(("touch", str(made)), after=(path,)))
    assert not made.exists()
    carry_out(Write(path, b"x", ME), Run(("touch", str(made)), after=(path,)))
    assert made.exists()


def test_a_command_that_fails_says_its_last_words(tmp_path):
    failing = Start("slurmd", ("sh", "-c", "echo no such port >&2; exit 1"), f"{tmp_path}/pid")
    with pytest.raises(SetupFailed, match="no such port"):
        carry_out(failing)
    with pytest.raises(SetupFailed, match="nowhere not found"):
        carry_out(Start("slurmd", ("nowhere",), f"{tmp_path}/pid"))


def test_a_pid_file_of_another_process_is_not_believed(tmp_path):
    (tmp_path / "pid").write_text("1")
    assert not System(systemd=False).running(Stop("slurmd", f"{tmp_path}/pid"))
    assert carry_out(Stop("slurmd", f"{tmp_path}/pid")) == []
