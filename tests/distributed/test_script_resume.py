"""Test unchanged programs with training loops: the bits of plain Python, the steps and the epochs."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import sys
from pathlib import Path

import pytest
import torch._dynamo  # noqa: F401  # once, not in each forked process
from gang import LOADER_LOOP, STAND, Trial

from kernel_backend.definition.command_line import Command, marked
from kernel_backend.model.snapshot import Project

pytestmark = pytest.mark.distributed


def printed(folder, source, *words, file="train.py", program=("train.py",)):
    """Run `python train.py WORDS` with one thread, and return its output."""
    (folder / file).write_text(f"import torch; torch.set_num_threads(1)\n{source}")
    process = multiprocessing.get_context("fork").Process(target=_run, args=(folder, [*program, *words]))
    process.start()
    process.join()
    assert process.exitcode == 0, (folder / "printed").read_text()
    return (folder / "printed").read_text()


def _run(folder, command):
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    with open("printed", "w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            runpy.run_path(command[0], run_name="__main__")


def test_a_search_whose_metric_was_not_printed_says_what_was_and_how_to_print_it(trial):
    options = {"search": {"method": "random"}, "metric": {"name": "Val f1", "mode": "max"}}
    ran = trial(source=LOADER_LOOP, slots=1, options=options).run()
    failure = ran.failures()[0]
    assert failure.type == "InvalidDefinition"
    assert "only loss, weights in training" in failure.message
    assert failure.message.endswith("""print it after each epoch, such as print(f"Val f1: {value}")""")


def test_one_slot_gives_the_bits_of_plain_python(trial, tmp_path):
    one = trial(source=LOADER_LOOP, slots=1)
    ran = one.run()
    assert ran.codes == [0], ran.logs()
    assert ran.logs() == f"rank-0.log\n{printed(tmp_path, LOADER_LOOP)}"
    assert sorted(ran.reports("training")) == list(range(1, 13))
    assert (one.newest().step, one.newest().epoch) == (12, 2.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Provide an uninterrupted training."""
    made = Trial(tmp_path_factory.mktemp("whole") / "trial", source=LOADER_LOOP, slots=1)
    made.attempt = made.run()
    assert made.attempt.codes == [0], made.attempt.logs()
    return made


@pytest.mark.parametrize(("step", "saves"), [(6, 2), (9, 1), pytest.param(4, 1, marks=pytest.mark.long)])
def test_a_killed_program_goes_on_to_the_same_bits_and_the_same_log(trial, whole, step, saves):
    killed = trial(source=LOADER_LOOP, slots=1, every="1steps")
    first = killed.killed_at(step, saves=saves)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0], second.logs()
    assert second.started.resumed_from == f"{step}-1"
    assert second.logs() == whole.attempt.logs()
    assert killed.newest().step == 12
    losses = first.reports("training") | second.reports("training")
    assert losses == whole.attempt.reports("training")


def test_a_released_program_leaves_with_a_checkpoint_and_goes_on(trial, whole):
    released = trial(source=LOADER_LOOP, slots=1, every="1steps")
    first = released.start(hold=4).reaches(3)
    first.tell("release").heard()
    first.go().ended()
    assert first.codes == [85], first.logs()
    second = released.run(resume_from=released.pinned())
    assert second.codes == [0], second.logs()
    assert second.logs() == whole.attempt.logs()


LONGER = """
import torch
from torch import nn
from tqdm import tqdm
torch.manual_seed(0)
EPOCHS = 2
model = nn.Linear(4, 1)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
for epoch in tqdm(range(1, EPOCHS + 1), disable=True):
    for _ in range(3):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(f"epoch {epoch}/{EPOCHS} loss {loss.item()!r}")
opt.zero_grad()
torch.rand(1)
print("end")
"""


def test_a_completed_program_is_continued_to_the_bits_of_a_longer_one(trial, tmp_path):
    short = trial(source=LONGER, slots=1, epochs=2, every="1steps")
    assert short.run().codes == [0]
    short.epochs = 4
    longer = short.run(resume_from=short.pinned())
    assert longer.codes == [0], longer.logs()
    assert (longer.started.resumed_from, sorted(longer.reports("training"))) == ("6-1", [7, 8, 9, 10, 11, 12])
    whole = printed(tmp_path, LONGER.replace("EPOCHS = 2", "EPOCHS = 4"))
    first, second = whole.splitlines()[:2]
    as_told = [first.replace("1/4", "1/2"), second.replace("2/4", "2/2")]
    assert longer.logs() == "\n".join(["rank-0.log", *as_told, *whole.splitlines()[2:], ""])
    assert short.newest().step == 12


def test_a_program_is_not_continued_with_another_value(trial):
    made = trial(source=LONGER.replace("lr=0.1", "lr=lr").replace("EPOCHS = 2", "EPOCHS, lr = 2, 0.1"), slots=1)
    assert made.run().codes == [0]
    made.epochs, made.params = 4, {"lr": 0.2}
    second = made.run(resume_from=made.pinned())
    assert second.codes == [1]
    assert "lr 0.1 -> 0.2 cannot be given when it is continued" in second.logs()


LOOP = """
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for score in SCORES:
    for _ in range(3):
        stand()
        loss = net(torch.randn(8, 4)).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(f"NAME: val_acc {score}")
"""
BASELINE = f"""
import torch
{STAND}
from torch import nn
torch.manual_seed(0)
{LOOP.replace("SCORES", "[0.9, 1.0, 0.8]").replace("NAME", "baseline")}
print("of the baseline: val_acc 0.7")
"""
BELOW = f"""
{LOOP.replace("SCORES", "[0.2, 0.5, 0.4, 0.3]").replace("NAME", "own")}
print("end", sum(each.double().sum().item() for each in net.parameters()))
"""


@pytest.mark.parametrize(
    "killed_at", [None, 5, 16], ids=["undisturbed", "killed in the baseline", "killed in the cell"]
)
def test_validations_and_epochs_count_from_the_submitted_cell_on(trial, tmp_path, killed_at):
    made = trial(
        source=BASELINE + BELOW,
        slots=1,
        every="1steps",
        epochs=5,
        options={"metric": {"name": "val_acc", "mode": "max"}, "patience": 2},
        described={"roles_from": BASELINE.count("\n") + 1},
    )
    attempts = [] if killed_at is None else [made.killed_at(killed_at)]
    attempts.append(made.run(resume_from=made.pinned()))
    ran = attempts[-1]
    assert ran.codes == [0], ran.logs()
    told = {step: each for attempt in attempts for step, each in attempt.reports("validation").items()}
    assert {step: each["val_acc"] for step, each in told.items()} == {12: 0.2, 15: 0.5, 18: 0.4, 21: 0.3}
    assert (made.newest().step, made.newest().epoch) == (21, 4.0)
    assert any(each.startswith("stopped early") and "0.5" in each for each in ran.notes())
    assert ran.logs() == f"rank-0.log\n{printed(tmp_path, BASELINE + BELOW)}"


SENT = """
import torch
STAND
from torch import nn
def scaled():
    factor = 1.0
    while True:
        factor = factor / (1 + (yield factor))
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
factors = scaled()
next(factors)
for step in range(9):
    stand()
    loss = model(torch.randn(8, 4)).square().mean()
    (loss * factors.send(loss.item())).backward()
    opt.step()
    opt.zero_grad()
print("end", loss.item())
""".replace("STAND", STAND)


def test_a_program_that_cannot_go_on_says_why_and_begins_anew(trial, tmp_path):
    killed = trial(source=SENT, slots=1, every="1steps", epochs=9)
    killed.killed_at(5)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [1]
    assert "factors (generator) could not be saved, and the program uses it after a restart" in second.logs()
    third = killed.run(resume_from=killed.pinned())
    assert third.codes == [0], third.logs()
    assert third.started.resumed_from is None
    assert third.logs() == f"rank-0.log\n{printed(tmp_path, SENT)}"


WITH_ARGUMENTS = f"""
import argparse
import inspect
import sys
from pathlib import Path
import torch
{STAND}
from torch import nn
from definition import batches
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-4)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("name")
args = parser.parse_args()
print(sys.argv[1:], __name__, Path(__file__).name, Path("beside.txt").read_text(), args.lr, args.epochs)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    for x in batches(5):
        stand()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {{epoch}} loss {{loss.item()!r}}")
    Path(__file__).with_name("log.txt").open("a").write(f"{{epoch}} {{loss.item()!r}}\\n")
def here():
    return sys._getframe().f_code.co_filename == __file__ == inspect.getfile(here)
if __name__ == "__main__":
    print(args.name, sum(each.double().sum().item() for each in model.parameters()))
    print(here(), inspect.getsource(here))
    sys.exit(0)
"""
STEPS = """
import torch
def batches(count):
    for _ in range(count):
        yield torch.randn(6, 4)
"""


@pytest.mark.parametrize(
    ("words", "program", "loaded"),
    [
        (("python", "train.py"), {"at": 1, "program": "train.py"}, ("train.py",)),
        (("python", "-m", "pkg.train"), {"module": True, "program": "pkg/train.py"}, ("-m", "pkg.train")),
    ],
)
def test_a_command_whose_loop_is_taken_goes_on_as_the_program_by_itself(tmp_path, words, program, loaded):
    arguments = ("--lr={rate}", "--epochs", "{epochs}", "a 'b' c")
    source, package = WITH_ARGUMENTS, Path(program["program"]).parent.as_posix()
    source = source.replace("from definition", "from .definition") if program.get("module") else source
    files = {program["program"]: source, str(Path(package, "definition.py")): STEPS, "beside.txt": "here"}
    command = Command(words=(*words, *arguments), taken=True, **program)
    killed = Trial(
        tmp_path / "trial",
        marked(source, command),
        slots=1,
        every="1steps",
        epochs=3,
        params={"rate": 0.02},
        files={f"project/{name}": text.encode() for name, text in files.items()},
        described={"project": Project(root=str(tmp_path / "trial"), cwd=".", paths=(".",))},
    )
    for folder in (killed.folder, tmp_path / "plain"):
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    killed.killed_at(8)
    Path(killed.folder, program["program"]).write_text(f"# edited since\n{source}")
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0], second.logs()
    assert second.started.resumed_from == "8-1"
    alone = printed(
        tmp_path / "plain", source, "--lr=0.02", "--epochs", "3", "a 'b' c", file=program["program"], program=loaded
    )
    assert second.logs() == f"rank-0.log\n{alone}"
    own, plain = (Path(folder, package, "log.txt").read_text() for folder in (killed.folder, tmp_path / "plain"))
    assert own == plain
    assert killed.newest().step == 15


FROZEN = """
import copy
import torch
STAND
from torch import nn
torch.manual_seed(0)
base = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 16)).requires_grad_(False)
head = nn.Linear(16, 1)
average = copy.deepcopy(head).requires_grad_(False)
wide = nn.Embedding(2000, 2).requires_grad_(False)  # no gradient trains it, and it changes
opt = torch.optim.Adam(head.parameters(), lr=0.1)
for step in range(12):
    stand()
    loss = head(base(torch.randn(8, 16)) + wide.weight[:8].sum()).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    with torch.no_grad():
        average.weight.lerp_(head.weight, 0.1)
        wide.weight.add_(0.01)
    print(step, loss.item())
print(base[0].weight.sum().item(), average.weight.sum().item(), wide.weight.sum().item())
""".replace("STAND", STAND)


def test_weights_that_a_program_does_not_train_are_written_once(trial, tmp_path):
    killed = trial(source=FROZEN, slots=1, every="1steps", epochs=12)
    killed.killed_at(7)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0], second.logs()
    assert second.started.resumed_from == "7-1"
    assert second.logs() == f"rank-0.log\n{printed(tmp_path, FROZEN)}"
    kept = killed.home.committed()
    assert len(kept) > 1
    frozen = {part.digest for each in kept for part in each.parts if part.name == "modules.frozen"}
    files = {each.stat().st_ino for each in Path(killed.home.where).glob("*/modules.frozen.safetensors")}
    assert len(frozen) == len(files) == 1
    own = [sum(part.size for part in each.parts if part.name != "modules.frozen") for each in kept[1:]]
    assert all(size < 4 * 2 * 2000 + 40_000 for size in own)  # the table that changes, but not the 33 kB of `base`


ASKING = f"""
import subprocess
import sys
import torch
{STAND}
from torch import nn
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
print(subprocess.run(["cat"], capture_output=True, text=True, timeout=60))
print("lines", list(sys.stdin), sys.stdin.readlines(), [sys.stdin.read()])
for epoch in range(2):
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()
    go_on = input("go on? ")
"""


def test_a_program_that_asks_is_told_that_nobody_answers(trial):
    ran = trial(source=ASKING, slots=1).run()
    assert ran.codes == [1]
    assert "CompletedProcess(args=['cat'], returncode=0, stdout='', stderr='')" in ran.logs()
    assert "lines [] [] ['']" in ran.logs()
    failure = ran.failures()[0]
    assert (failure.type, failure.frames[-1].line) == ("EOFError", len(ASKING.splitlines()))
    assert failure.message.startswith("nobody answers input() in a job: give the value as a hyperparameter")


def test_a_loop_that_never_steps_is_told(trial):
    source = LOADER_LOOP.replace("        stand()\n", "        continue\n").replace("total / (i + 1)", "total")
    ran = trial(source=source, slots=1).run()
    assert ran.codes == [0], ran.logs()
    lines = [number for number, line in enumerate(source.splitlines(), start=1) if line.lstrip().startswith("for ")]
    loops = f"epochs in line {lines[0]}, batches in line {lines[1]}"
    assert f"no step was taken: the loop ({loops}) never came to backward()" in ran.notes()


FIT = """
import torch
from torch import nn
torch.manual_seed(0)
def made():
    net = nn.Linear(4, 1)
    return net, torch.optim.SGD(net.parameters(), lr=0.01)
def fit(scale, net, optimizer):
    for epoch in range(3):
        for rows in torch.randn(300, 4).split(10):
            loss = scale * (1 + 0.01 * net(rows)).mean().square()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
ENSEMBLE = """
for scale in (1.0, 50.0):
    net, optimizer = made()
    for step in range(90):
        loss = scale * (1 + 0.01 * net(torch.randn(10, 4))).mean().square()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("phases", ["one = made()\nfit(1.0, *one)\nfit(50.0, *one)\n", ENSEMBLE])
def test_the_loss_of_another_training_is_no_jump_of_the_first_ones(trial, phases):
    ran = trial(source=FIT + phases, slots=1).run()
    assert ran.codes == [0], ran.logs()
    assert [each for each in ran.notes() if "jumped" in each] == []
