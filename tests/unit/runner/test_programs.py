"""Test the programs of commands: variables, reports, progress, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_backend import time_limit
from kernel_backend.artifacts.program import CHECKPOINTS, FOLDER, METRICS, ProgramMethods, messages_file
from kernel_backend.definition.command_line import Command
from kernel_backend.definition.reported.labels import LONGEST_LINE
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.model.frames import Sources
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.runner.forms.command.counts import Counts
from kernel_backend.runner.forms.command.environment import argv, launcher_env, program_env
from kernel_backend.runner.forms.command.files import CheckpointFiles
from kernel_backend.runner.forms.command.outcome import program_failure
from kernel_backend.runner.forms.command.reports import Logged, LogPatterns, Messages, Request, log_reader, logged

JOB = LaunchSpec(
    experiment=12,
    trial=1,
    attempt=2,
    config=Config(form="command", slots=3),
    params={"lr": 0.1},
    placement=(
        Share(node="a", kind="cpu", address="127.0.0.1", slots=(0, 1)),
        Share(node="b", kind="cpu", address="127.0.0.2", slots=(0,)),
    ),
    python="python",
    cwd="/work",
    code="/attempt/code",
    snapshot="0" * 64,
    checkpoints="/checkpoints",
    home="/home",
)
RANK = {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "PATH": "/bin", "PYTHONPATH": "/p"}


def test_the_variables_of_torchrun_and_deepspeed() -> None:
    found = launcher_env(RANK, JOB)
    assert found["GROUP_RANK"] == found["CROSS_RANK"] == "1"
    assert (found["ROLE_RANK"], found["ROLE_WORLD_SIZE"], found["LOCAL_SIZE"]) == ("2", "3", "1")
    assert (found["TORCHELASTIC_RUN_ID"], found["TORCHELASTIC_RESTART_COUNT"]) == ("daylight-12.1-2", "1")


def test_a_program_finds_its_python_its_modules_and_its_folders() -> None:
    found = program_env(RANK, JOB, Path("/program"), Path("/kept"), [Path("/code/src")], "/venv/bin/python")
    assert found["PATH"] == "/venv/bin:/bin"
    assert found["PYTHONPATH"] == "/code/src:/p"
    assert found[CHECKPOINTS] == "/kept"
    assert found[METRICS] == f"/program/{messages_file(2)}"
    assert found["WANDB_MODE"] == "disabled"  # one run for a gang, of rank 0


def test_the_snapshots_file_is_started_by_the_jobs_python() -> None:
    script = Command(words=("python", "-u", "../train.py", "--lr={lr}"), at=2, program="src/train.py")
    assert argv(script, JOB, Path("/kept"), "/py") == ["/py", "-u", "/attempt/code/project/src/train.py", "--lr=0.1"]
    module = Command(words=("python", "-m", "pkg.train"), module=True)
    assert argv(module, JOB, Path("/kept"), "/py") == ["/py", "-P", "-m", "pkg.train"]
    foreign = Command(words=("/tf/bin/python", "train.py"), at=1, program="train.py")
    assert argv(foreign, JOB, Path("/kept"), "/py") == ["/tf/bin/python", "/attempt/code/project/train.py"]
    other = Command(words=("bash", "-c", "echo {checkpoints}"))
    assert argv(other, JOB, Path("/kept"), "/py") == ["bash", "-c", "echo /kept"]


def test_messages_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    messages = Messages(file)
    assert list(messages.new()) == []
    file.write_text('{"loss": 0.5, "step": 3}\n{"do": "note", "text": "a"}\n{"loss": "x"}\nno json\n{"acc": 1, ')
    found = list(messages.new())
    assert found[0] == Logged({"loss": 0.5}, step=3)
    assert isinstance(found[1], Request)
    assert messages.unread == ["loss: 'x'", "no json"]
    with file.open("a") as more:
        more.write('"epoch": 2, "validation": true}\n')
    assert list(messages.new()) == [Logged({"acc": 1.0}, epoch=2, validation=True)]


def test_numbers_in_a_log_by_named_groups(tmp_path: Path) -> None:
    log = tmp_path / "log"
    patterns = LogPatterns(log, [r"loss[:=] ?(?P<loss>\S+)", r"Epoch (?P<epoch>\d+)"])
    log.write_bytes(b"Epoch 3\r\xff\xfe noise\nEpoch 4 loss: 1,000.5\nloss= fast\nloss=7")
    assert list(patterns.new()) == [Logged({}, epoch=3), Logged({"loss": 1000.5}, epoch=4)]
    assert patterns.unread == ["loss: 'fast'"]
    assert list(patterns.rest()) == [Logged({"loss": 7.0})]


def test_a_pattern_that_takes_too_long_is_given_up_with_a_reason_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "PATTERN_S", 0.05)
    log = tmp_path / "log"
    patterns = LogPatterns(log, ["(?P<slow>(a+)+)$", r"loss=(?P<loss>\d+)"])
    log.write_text("a" * 64 + "!\nloss=7\n")
    assert list(patterns.new()) == [Logged({"loss": 7.0})]
    assert patterns.unread == ["'(?P<slow>(a+)+)$' takes too long to be searched for, and is given up: simplify it"]
    with log.open("a") as more:
        more.write("a" * 64 + "! loss=6\n")
    assert list(patterns.new()) == [Logged({"loss": 6.0})]


def test_output_without_line_breaks_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    patterns = LogPatterns(log, [r"loss=(?P<loss>\d+)"])
    log.write_bytes(b"loss=5 " + b"x" * 3_000_000)
    assert [found for _ in range(20) for found in patterns.new()] == []
    with log.open("ab") as more:
        more.write(b"\nloss=6\n")
    assert [found.values["loss"] for _ in range(20) for found in patterns.new()] == [5.0, 6.0]


def test_named_numbers_in_a_log_are_read_without_patterns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = log_reader(log, (), tmp_path)
    log.write_text(
        "epoch 3 loss: 0.5\nTest Error:\n Accuracy: 65.5%\n50%|####  | 5/10 [00:01, 4it/s, loss=9]\nrank 7\n"
    )
    assert list(reader.new()) == [Logged({"loss": 0.5}), Logged({"test_accuracy": 65.5})]
    with log.open("a") as more:
        more.write(f"{'é' * LONGEST_LINE} acc: 0.25 acc: 0.7\nF1 0.9")
    assert list(reader.new()) == []  # a line that is too long, and one that goes on
    assert list(reader.rest()) == [Logged({"f1": 0.9})]


def test_numbers_in_a_traceback_are_no_metrics(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = log_reader(log, (), tmp_path)
    log.write_text(
        'loss: 0.5\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 15, in f\n'
    )
    assert list(reader.new()) == [Logged({"loss": 0.5})]
    with log.open("a") as more:
        more.write("[rank0]: ValueError: size 4.27\nloss: 0.4\n")
    assert list(reader.new()) == [Logged({"loss": 0.4})]


@pytest.mark.parametrize("line", ["from daylight import run", "    import daylight", "echo $x >> $DAYLIGHT_METRICS"])
def test_a_program_that_may_report_its_numbers_itself_has_no_others(tmp_path: Path, line: str) -> None:
    code, log = tmp_path / "project", tmp_path / "log"
    code.mkdir()
    (code / "train").write_text(f"x\n{line}\n")
    log.write_text("loss: 0.5\n")
    assert list(log_reader(log, (), tmp_path).new()) == []
    assert list(log_reader(log, ["(?P<l>0.5)"], tmp_path).new()) == [Logged({"l": 0.5})]


def test_places_that_are_none_are_dropped() -> None:
    assert logged({"loss": 1.0, "step": -1, "epoch": 2.5}, validation=False) == Logged({"loss": 1.0})


def counted(*reports: tuple[Logged, bool]) -> list[tuple[int, float]]:
    counts = Counts()
    return [tuple(counts.take(*each)) for each in reports]  # type: ignore[misc]


def test_a_validation_completes_an_epoch_that_is_not_named() -> None:
    loss, accuracy = Logged({"loss": 1.0}), Logged({"accuracy": 1.0})
    assert counted((loss, False), (accuracy, True), (accuracy, True)) == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize("first", [0, 1])
def test_named_epochs_count_from_the_first(first: int) -> None:
    reports = [(Logged({"accuracy": 1.0}, step=10 * n, epoch=first + n), True) for n in range(3)]
    assert counted(*reports) == [(0, 1), (10, 2), (20, 3)]


def test_an_epoch_that_is_reported_again_counts_once() -> None:
    counts = Counts()
    for epoch in (0, 1, 2, 2, 3):
        counts.take(Logged({"accuracy": 1.0}, epoch=epoch), True)
    assert Counts.of(json.loads(json.dumps(counts.state()))).epochs == 4


def test_steps_of_an_attempt_are_counted_from_its_beginning_unless_they_are_named() -> None:
    counts = Counts()
    counts.skip(Counts(step=7))  # of the attempt before
    counts.take(Logged({"loss": 1.0}), False)
    assert (counts.step, counts.since(7)) == (8, 1)
    counts.take(Logged({"loss": 1.0}, step=5), False)
    assert counts.since(7) == 5


SOURCES = Sources(Path("/attempt/code"), Path("/work"), None)
RAISED = """
Traceback (most recent call last):
  File "/attempt/code/project/src/train.py", line 7, in main
    load()
  File "/usr/lib/python3/site-packages/torch/x.py", line 1, in load
    raise
torch.cuda.OutOfMemoryError: CUDA out of memory
at exit
"""


TORCHRUN = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/attempt/code/project/src/train.py", line 7, in <module>
[rank1]:     load()
[rank1]: ValueError: no data
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
src/train.py FAILED
"""
ARGPARSE = "usage: train.py [-h]\n                [--lr LR]\ntrain.py: error: argument --lr: invalid float value: 'x'\n"
CLICK = "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --beta\n"
TYPER = "Usage: train.py [OPTIONS]\n╭─ Error ────╮\n│ No such option: --beta │\n╰────────────╯\n"


@pytest.mark.parametrize(
    ("code", "text", "kind", "message"),
    [
        (2, ARGPARSE, "UsageError", "train.py: error: argument --lr: invalid float value: 'x'"),
        (2, CLICK, "UsageError", "Error: No such option: --beta"),
        (2, TYPER, "UsageError", "No such option: --beta"),
        (1, ARGPARSE, "ProgramFailed", "train ended with exit code 1; its last line: train.py: error: argument"),
        (2, "make: *** [all] Error 2\n", "ProgramFailed", "train ended with exit code 2; its last line: make"),
        (137, "Killed\n", "SIGKILL", "train ended with exit code 137 (SIGKILL); its last line: Killed"),
        (1, RAISED, "OutOfMemoryError", "CUDA out of memory"),
        (3, "hello\nbad thing\n", "ProgramFailed", "train ended with exit code 3; its last line: bad thing"),
        (-9, "", "SIGKILL", "train was killed by SIGKILL; it printed nothing"),
        (1, TORCHRUN, "ValueError", "no data"),
        (1, RAISED.replace("torch.cuda.OutOfMemoryError: CUDA out of memory", "EOFError: EOF"), "EOFError", "keyboard"),
    ],
)
def test_the_end_of_a_log_says_how_a_program_failed(
    tmp_path: Path, code: int, text: str, kind: str, message: str
) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    failure = program_failure(code, log, 0, 5, "train", SOURCES)
    assert failure.type == kind
    assert message in failure.message
    if "Traceback" in text:
        assert [(frame.file, frame.line, frame.text) for frame in failure.frames] == [("src/train.py", 7, "load()")]
        assert failure.raised


def test_a_launchers_error_without_a_text_has_the_lines_after_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(TORCHRUN[TORCHRUN.index("\nTraceback") :])
    failure = program_failure(1, log, 0, None, "train", SOURCES)
    assert (failure.type, failure.message) == ("ChildFailedError", "src/train.py FAILED")


def test_a_lost_peer_is_no_cause(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Traceback (most recent call last):\nRuntimeError: [gloo] Connection closed by peer [127.0.0.1]\n")
    assert program_failure(1, log, 0, None, "train", SOURCES).consequence
    log.write_text("Traceback (most recent call last):\nRuntimeError: shapes differ\n")
    assert not program_failure(1, log, 0, None, "train", SOURCES).consequence


def test_run_in_a_program_speaks_by_lines(tmp_path: Path) -> None:
    environment = {FOLDER: str(tmp_path), METRICS: str(tmp_path / messages_file(0)), CHECKPOINTS: str(tmp_path)}
    methods = ProgramMethods(environment)
    methods.report({"loss": 0.5}, 3, False, 1)
    methods.report({"accuracy": 1}, None, True)
    assert not methods.should_stop
    (tmp_path / "leaving").touch()
    assert methods.should_stop
    lines = (tmp_path / messages_file(0)).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"loss": 0.5, "step": 3, "epoch": 1},
        {"accuracy": 1.0, "validation": True},
        {"do": "asks"},
    ]
    with pytest.raises(InvalidRequest, match="a metric is a number"):
        methods.report({"loss": "high"}, None, False)
    with pytest.raises(InvalidRequest, match=r"run.restore belongs to train\(run"):
        methods.register({})


def test_a_folder_that_changes_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = CheckpointFiles(tmp_path, "a")
    files.begin(None)
    (files.folder / "model").write_bytes(b"1")
    assert files.changed
    assert files.stage()
    assert not files.changed
    looks = iter([{"model": (1, 1, 1)}, {"model": (1, 2, 2)}])
    monkeypatch.setattr(files, "fingerprint", lambda: next(looks))
    assert not files.stage()


def test_the_folder_of_another_trial_is_emptied(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path, "a")
    files.begin(None)
    (files.folder / "model").write_bytes(b"1")
    files.wrote({"step": 1}, None)
    again = CheckpointFiles(tmp_path, "a")
    again.begin(None)
    assert (again.state, (again.folder / "model").exists()) == ({"step": 1}, True)
    other = CheckpointFiles(tmp_path, "b")
    other.begin(None)
    assert (other.state, (other.folder / "model").exists()) == ({}, False)
