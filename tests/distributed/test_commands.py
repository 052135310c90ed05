"""Test programs that a job starts unchanged, one process per rank: variables, checkpoints, metrics, exit codes."""

from __future__ import annotations

import dataclasses
from itertools import count
from pathlib import Path

import psutil
import pytest
from gang import Attempt, Trial
from warm import HOME

from kernel_backend.definition.command_line import Command, marked
from kernel_backend.home import program_folder
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import ArtifactSaved
from kernel_backend.model.snapshot import Project
from kernel_backend.runner.forms.command.files import PART

pytestmark = pytest.mark.distributed

# As the field writes it: torchrun's variables, gloo, a file of its own; and it stands still for a test at an epoch.
DDP = """
import argparse, os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--save")
args = parser.parse_args()
dist.init_process_group("gloo")
rank, path = dist.get_rank(), os.path.join(args.save, "model.pt")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
begin = 0
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    begin = saved["epoch"]
print("begins at", begin, flush=True)
data = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(1))
for epoch in range(begin, args.epochs):
    loss = (model(data[rank]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.barrier()
    if rank == 0:
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, path + ".new")
        os.replace(path + ".new", path)
        print(f"epoch {epoch} loss: {loss.item():.6f}", flush=True)
    while os.path.islink("hold") and epoch >= int(os.readlink("hold")):
        time.sleep(0.01)
dist.destroy_process_group()
"""


_numbers = count(1000)  # of experiments, as all share a home


@dataclasses.dataclass
class Program(Trial):
    """Trial of a command, with its own number for its checkpoint folder."""

    number: int = dataclasses.field(default_factory=lambda: next(_numbers))

    def job(self, resume_from: str | None = None) -> LaunchSpec:
        return super().job(resume_from).model_copy(update={"experiment": self.number})

    @property
    def saved(self) -> Path:
        return program_folder(HOME, self.number, 1) / "checkpoints"


def program(folder: Path, source: str, *words: str, slots: int = 1, **settings: object) -> Program:
    """Return a trial of `python train.py WORDS` with this source."""
    command = Command(words=("python", "train.py", *words), at=1, program="train.py")
    options = {"form": "command", **settings.pop("options", {})}  # type: ignore[dict-item]
    return Program(
        folder,
        marked(source, command),
        slots=slots,
        files={"project/train.py": source.encode()},
        described={"project": Project(root=str(folder), cwd=".", paths=())},
        options=options,
        every="1s",
        **settings,  # type: ignore[arg-type]
    )


def goes_on_once_committed(trial: Program) -> Attempt:
    """Start the next attempt, let its program continue after a committed checkpoint, and wait for its end."""
    attempt = trial.start()
    attempt.wait(lambda: attempt.pids() and attempt.committed())
    (trial.folder / "go").touch()
    return attempt.ended()


def ended(attempt: Attempt, codes: list[int]) -> Attempt:
    assert attempt.codes == codes, attempt.logs()
    return attempt


PATTERN = r"epoch (?P<epoch>\d+) loss: (?P<loss>[\d.]+)"


def left(trial: Program) -> list[int]:
    """Return the running processes of the trial's programs."""
    mark = str(trial.folder)
    return [each.pid for each in psutil.process_iter(["cmdline"]) if mark in " ".join(each.info["cmdline"] or ())]


def test_a_ddp_script_goes_on_from_its_own_checkpoints(tmp_path: Path) -> None:
    trial = program(
        tmp_path / "trial",
        DDP,
        "--lr={lr}",
        "--save",
        "{checkpoints}",
        slots=2,
        params={"lr": 0.1},
        options={"metric_pattern": (PATTERN,)},
    )
    first = trial.start(hold=1)
    first.wait(lambda: first.pids() and first.committed() and "epoch 1" in first.logs())
    rank = psutil.Process(first.pids()[1])
    (its_program,) = rank.children()
    rank.kill()
    # The kernel kills the program a moment after its rank. Until then the other one could finish its last epoch.
    first.wait(lambda: its_program.pid not in left(trial))
    first.go().ended()
    second = ended(trial.run(first.committed()[-1]), [0, 0])
    assert "begins at 2" in second.logs()
    assert "begins at 0" not in second.logs()
    assert sorted(second.reports("training")) == [3]
    assert trial.newest().part(PART) is not None
    assert left(trial) == []


CONNECTED = """
import os, sys
from pathlib import Path
from daylight import run
folder = run.checkpoint_dir
assert str(folder) == os.environ["DAYLIGHT_CHECKPOINTS"]
begin = int((folder / "epoch").read_text()) if (folder / "epoch").exists() else 0
for epoch in range(begin, 3):
    (folder / "epoch").write_text(str(epoch + 1))
    run.checkpoint()
    run.log(epoch=epoch, loss=1 / (epoch + 1), accuracy=epoch / 3)
    if epoch == 1 and not begin:
        (folder / "epoch").write_text("torn")
        os.kill(os.getpid(), 9)
Path("result.txt").write_text("done")
run.artifact("result", "result.txt")
run.log("all went well")
"""


def test_a_program_that_commits_goes_on_from_its_newest_commit(tmp_path: Path) -> None:
    trial = program(tmp_path / "trial", CONNECTED, options={"metric": {"name": "accuracy", "mode": "max"}})
    first = ended(trial.run(), [1])
    assert first.failures()[0].type == "SIGKILL"
    assert first.committed() == ["1-1", "2-1"]
    assert first.reports("validation")[2] == {"loss": 0.5, "accuracy": pytest.approx(1 / 3)}
    second = ended(trial.run(first.committed()[-1]), [0])
    assert (trial.saved / "epoch").read_text() == "3"
    assert list(second.reports("validation")) == [3]
    assert "all went well" in second.notes()
    kept = [each for each in second.records if isinstance(each, ArtifactSaved)]
    assert [each.name for each in kept] == ["result"]


VARIABLES = """
import json, os, subprocess, sys, time
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "GROUP_RANK", "TORCHELASTIC_RUN_ID"]
print(json.dumps([os.environ[each] for each in names]))
config = json.loads(os.environ["TF_CONFIG"])
print(len(set(config["cluster"]["worker"])), config["task"]["index"], sys.argv[1:])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", os.getcwd()], start_new_session=True)
open(f"begun-{os.environ['RANK']}", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def test_all_processes_of_a_program_end_when_its_slots_are_wanted_back(tmp_path: Path) -> None:
    trial = program(tmp_path / "trial", VARIABLES, "{word}", slots=2, params={"word": "a b"})
    attempt = trial.start()
    attempt.wait(lambda: attempt.pids() and len(list(trial.folder.glob("begun-*"))) == 2)
    assert len(left(trial)) >= 4
    ended(attempt.tell("release").ended(), [85, 85])
    assert left(trial) == []
    logs = attempt.logs()
    assert f'["1", "2", "1", "127.0.0.1", "0", "daylight-{trial.number}.1-1"]' in logs
    assert "2 1 ['a b']" in logs
    assert len(attempt.committed()) == 1


FAILS = """
import sys
sys.stdout.buffer.write(b"\\xff" * 20_000_000 + b"\\n")
sys.stdout.flush()
def asks():
    return input("name? ")
asks()
"""


def test_a_program_that_fails_is_told_by_its_lines(tmp_path: Path) -> None:
    trial = program(tmp_path / "trial", FAILS, options={"metric_pattern": ("(?P<x>y)",)})
    attempt = ended(trial.run(), [1])
    failure = attempt.failures()[0]
    assert failure.type == "EOFError"
    assert "a job has no keyboard" in failure.message
    assert [(frame.file, frame.line, frame.function) for frame in failure.frames] == [
        ("train.py", 7, "<module>"),
        ("train.py", 6, "asks"),
    ]
    assert failure.frames[-1].text == 'return input("name? ")'


EPOCHS = """
import os, sys, time
from pathlib import Path
kept = Path(sys.argv[1], "epoch")
for epoch in range(int(kept.read_text()) if kept.exists() else 0, 9):
    print(f"acc: {epoch / 10}", flush=True)
    kept.write_text(str(epoch + 1))
    time.sleep(0.7)
"""


def test_a_search_pauses_a_program_and_lets_it_go_on(tmp_path: Path) -> None:
    options = {"metric": {"name": "ACC", "mode": "max"}}  # without a pattern: printed names are read
    trial = program(tmp_path / "trial", EPOCHS, "{checkpoints}", epochs=4, until=1, options=options)
    first = trial.start()
    first.wait(lambda: first.pids() and 1 in first.reports("validation"))
    first.tell("until 2")
    ended(first.ended(), [85])
    assert list(first.reports("validation")) == [1, 2]
    trial.until = 4
    second = ended(trial.run(first.committed()[-1]), [0])
    assert list(second.reports("validation")) == [3, 4]  # what it did beyond its target counts there
    assert second.reports("validation")[3] == {"ACC": 0.2}


RESTLESS = """
import os, sys, time
while not os.path.exists("go"):
    with open(os.path.join(sys.argv[1], "state"), "w") as file:
        file.write(str(time.time()))
    time.sleep(0.1)
"""


def test_a_folder_that_changes_all_the_time_is_committed_too(tmp_path: Path) -> None:
    trial = program(tmp_path / "trial", RESTLESS, "{checkpoints}")
    ended(goes_on_once_committed(trial), [0])


TORN = """
import os, sys, time
from pathlib import Path
kept = Path(sys.argv[1], "epoch")
begin = int(kept.read_text()) if kept.exists() else 0
print("begins at", begin, flush=True)
kept.write_text(str(begin + 2))
while not begin and not os.path.exists("go"):
    time.sleep(0.01)
if not begin:
    kept.open("w")
    os.kill(os.getpid(), 9)
"""


def test_a_file_that_was_torn_by_a_kill_is_replaced_by_its_copy(tmp_path: Path) -> None:
    trial = program(tmp_path / "trial", TORN, "{checkpoints}")
    first = ended(goes_on_once_committed(trial), [1])
    second = ended(trial.run(first.committed()[-1]), [1])
    assert second.failures()[0].type == "ValueError"
    assert second.committed() == []
    third = ended(trial.run(first.committed()[-1]), [0])
    assert "begins at 2" in third.logs()
    assert any("goes on from their copy" in each for each in third.notes())


FAILS_LATER = """
import sys, time
from pathlib import Path
kept = Path(sys.argv[1], "epoch")
if kept.exists():
    time.sleep(2)
    sys.exit(3)
kept.write_text("1")
sys.exit(3)
"""


def test_an_attempt_that_saves_nothing_commits_nothing(tmp_path: Path) -> None:
    trial = program(tmp_path / "trial", FAILS_LATER, "{checkpoints}")
    ended(trial.run(), [1])
    assert ended(trial.run(), [1]).committed() == []


@pytest.mark.long
def test_a_search_pauses_a_ddp_script_on_all_ranks_at_its_own_checkpoint(tmp_path: Path) -> None:
    pattern = r"epoch (?P<epoch>\d+) loss: (?P<error>[\d.]+)"
    trial = program(
        tmp_path / "trial",
        DDP,
        "--lr={lr}",
        "--save={checkpoints}",
        slots=2,
        epochs=3,
        until=1,
        params={"lr": 0.1},
        options={"metric_pattern": (pattern,), "metric": {"name": "error"}},
    )
    first = trial.start(hold=0)
    ended(first.ended(), [85, 85])
    assert list(first.reports("validation")) == [1]
    assert left(trial) == []
    trial.until = 3
    second = ended(trial.run(first.committed()[-1]), [0, 0])
    assert "begins at 1" in second.logs()
    assert list(second.reports("validation")) == [2, 3]


# As TensorFlow's coordination service does, it catches SIGTERM and goes on; SIGKILL comes 30 s later at the latest.
SURVIVES = """
import signal, sys, threading, time
from pathlib import Path

def told(*_):
    Path("told").touch()
    threading.Timer(25, Path("survived").touch).start()

signal.signal(signal.SIGTERM, told)
kept = Path(sys.argv[1], "epoch")
"""
PAUSED = f"""{SURVIVES}
for epoch in (1, 2):
    time.sleep(0.5)
    kept.write_text(str(epoch))
    print(f"acc: {{epoch / 10}}", flush=True)
while True:
    time.sleep(0.01)
"""
PREEMPTED = f"""{SURVIVES}
print("stands still", flush=True)
while not Path("told").exists():
    time.sleep(0.01)
time.sleep(float(sys.argv[2]))
kept.write_text("1")
while True:
    time.sleep(0.01)
"""


def test_a_paused_program_that_survives_sigterm_is_killed_if_its_epoch_is_saved(tmp_path: Path) -> None:
    options = {"metric_pattern": (r"acc: (?P<accuracy>\S+)",), "metric": {"name": "accuracy", "mode": "max"}}
    trial = program(tmp_path / "trial", PAUSED, "{checkpoints}", slots=2, epochs=4, until=2, options=options)
    attempt = ended(trial.run(), [85, 85])
    assert list(attempt.reports("validation")) == [1, 2]
    assert (trial.saved / "epoch").read_text() == "2"
    assert (trial.folder / "told").exists()
    assert not (trial.folder / "survived").exists()


@pytest.mark.parametrize("seconds", ["0.5", pytest.param("8", marks=pytest.mark.long)])
def test_a_preempted_program_that_survives_sigterm_is_killed_once_it_has_saved(tmp_path: Path, seconds: str) -> None:
    trial = program(tmp_path / "trial", PREEMPTED, "{checkpoints}", seconds, slots=2)
    attempt = trial.start()
    attempt.wait(lambda: attempt.pids() and attempt.logs().count("stands still") == 2)
    ended(attempt.tell("release").ended(), [85, 85])
    assert (trial.saved / "epoch").read_text() == "1"
    assert attempt.committed()
    assert not (trial.folder / "survived").exists()
