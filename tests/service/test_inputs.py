"""Test trainings that read data of an object store as a local folder, with a real store."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import fsspec
import numpy as np
import pytest

from kernel_backend.cli import main
from kernel_backend.model.cluster.input_cache import ROOT
from kernel_backend.model.snapshot import NODE_LINK
from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.snapshots.archive import contents
from tests.support.bad_network import BadNetwork, distant_store
from tests.support.remote_samples import FUNCTIONS, SAMPLES, put_samples
from tests.support.submitted import daylight, submit_program
from tests.support.world import World, until

pytestmark = pytest.mark.distributed

FILES = """
import os
import numpy as np
import torch
from torch import nn

class Samples(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.files = []
        for at, _, names in os.walk(folder):
            for entry in os.scandir(at):
                if entry.is_file() and os.path.getsize(entry.path) == 144 and not os.path.islink(entry.path):
                    self.files.append(os.path.realpath(entry.path))
        self.files.sort(key=os.path.basename)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        x = torch.from_numpy(np.load(self.files[index]))
        return x, x.sum(0, keepdim=True)

def train_data(train):
    return torch.utils.data.DataLoader(Samples(train), batch_size=8, num_workers=WORKERS)

def model():
    return nn.Linear(4, 1)

def optimizer(params, lr=0.1):
    return torch.optim.SGD(params, lr=lr)

def loss(output, target):
    return nn.functional.mse_loss(output, target)
"""
PROGRAM = """
import os
import time
import numpy as np
import torch
from torch import nn

train = "data/train"
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
names = sorted(os.path.join(at, name) for at, _, names in os.walk(train) for name in names)
x = torch.stack([torch.from_numpy(np.load(name)) for name in names])
for epoch in range(3):
    while epoch == 1 and os.path.exists("HOLD"):
        time.sleep(0.05)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(epoch, loss.item(), flush=True)
"""


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[str, BadNetwork]]:
    """Return the URL of a bucket, and the network on the way to it."""
    with distant_store() as found:
        yield found


@pytest.fixture(scope="module")
def bucket(network: tuple[str, BadNetwork]) -> str:
    return network[0]


@pytest.fixture(scope="module")
def world(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv(ROOT, str(folder / "cache"))
        made = World(folder / "home", shared_forkserver=True)
        made.serve()
        yield made
        made.close()


@pytest.fixture(scope="module")
def local(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of samples that are in the bucket, too."""
    return put_samples(tmp_path_factory.mktemp("samples"), f"{bucket}/train")


def test_functions_read_it_by_an_argument_to_the_same_bits_as_a_local_folder(
    world: World, bucket: str, local: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(FUNCTIONS)
    line = ["submit", "train.py", "--slots", "2", "--epochs", "2", "--batch-size", "8", "--threads", "1", "--quiet"]
    remote = daylight(world, *line, "--data", f"train={bucket}/train", cwd=tmp_path)
    assert remote.returncode == 0, remote.stderr
    plain = daylight(world, *line, f"train={local}", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    numbers = [int(each.stdout.split()[0].lstrip("#")) for each in (remote, plain)]
    first, _ = [world.ended(number) for number in numbers]
    assert [world.overview(number).state for number in numbers] == ["completed", "completed"]
    assert world.weights(numbers[0]) == world.weights(numbers[1])
    assert first.experiment.params["train"] == f"{bucket}/train"  # not a place on one node
    assert any(f"train: fetched {SAMPLES} objects" in each for each in first.warnings + first.informational)

    again = daylight(world, "rerun", str(numbers[0]), "--data", f"train={local}", "--json")
    assert again.returncode == 0, again.stderr
    number = json.loads(again.stdout)["experiment"]["number"]
    assert world.ended(number).state == "completed"
    assert world.weights(number) == world.weights(numbers[0])


@pytest.mark.parametrize(("workers", "slots"), [(0, 1), (2, 2)])
def test_steps_are_taken_while_data_arrives_in_the_order_in_which_they_read_it(
    world: World, network: tuple[str, BadNetwork], local: Path, tmp_path: Path, workers: int, slots: int
) -> None:
    url, way = network
    (tmp_path / "train.py").write_text(FILES.replace("WORKERS", str(workers)))
    line = ["submit", "train.py", "--slots", str(slots), "--epochs", "2", "--threads", "1", "--quiet", "--again"]
    last = f"sample%20{int(Permutation(0, 0, SAMPLES).slice(SAMPLES - 1, SAMPLES)[0]):02}.npy"
    daylight(world, "gc", "--cache")
    way.held = last
    try:
        given = daylight(world, *line, "--data", f"train={url}/train", "--fetch", "during", cwd=tmp_path)
        assert given.returncode == 0, given.stderr
        number = int(given.stdout.split()[0].lstrip("#"))
        world.reached(number, 1)
        until(lambda: "running: fetching train: " in daylight(world, "show", str(number)).stdout, "views tell of it")
        world.ranks()[0].kill()
        until(lambda: world.overview(number).trials[0].attempt == 2, "it begins again")
        world.reached(number, 1)
    finally:
        way.held = ""
    assert world.ended(number).state == "completed"
    plain = daylight(world, *line, f"train={local}", cwd=tmp_path)
    other = int(plain.stdout.split()[0].lstrip("#"))
    assert world.ended(other).state == "completed"
    assert world.weights(number) == world.weights(other)
    notes = " ".join((*world.overview(number).warnings, *world.overview(number).informational))
    assert "the training does not wait for all of its data" in notes
    assert "waiting for input" in daylight(world, "profile", str(number)).stdout


def test_a_prediction_reads_rows_of_a_store_and_inputs_of_its_training(
    world: World, bucket: str, local: Path, tmp_path: Path
) -> None:
    source = FUNCTIONS.replace("def train_data(train)", "def train_data()").replace('train + "/*', '"images/*')
    source = source.replace("model():", "model(shape):").replace("nn.Linear(4, 1)", "nn.Linear(*np.load(shape))")
    project, store = tmp_path / "project", fsspec.filesystem("s3")
    project.mkdir()
    (project / "train.py").write_text(source)
    samples = np.stack([np.load(each) for each in sorted(local.glob("*/*.npy"))])
    for name, values in {"shape": np.array([4, 1]), "rows": samples[::2], "samples": samples}.items():
        np.save(tmp_path / f"{name}.npy", values)
        store.put_file(str(tmp_path / f"{name}.npy"), f"{bucket}/{name}.npy")
    line = ["--slots", "1", "--epochs", "1", "--batch-size", "8", "--threads", "1", "--quiet"]
    inputs = ["--data", f"images/={bucket}/train", "--data", f"shape={bucket}/shape.npy"]
    trained = daylight(world, "submit", "train.py", *line, *inputs, cwd=project)
    assert trained.returncode == 0, trained.stderr
    number = trained.stdout.split()[0].lstrip("#")
    assert world.ended(int(number)).state == "completed"
    changed = f"{bucket}/train/0/sample 00.npy"
    before, outputs = store.cat(changed), list[bytes]()
    store.pipe(changed, b"another")  # a prediction reads the versions of the training
    try:
        for data in (f"{bucket}/rows.npy", tmp_path / "rows.npy", "train_data", tmp_path / "samples.npy"):
            to = tmp_path / f"to-{len(outputs)}.npy"
            done = daylight(world, "predict", number, "--data", str(data), "--to", str(to), "--threads", "1")
            assert done.returncode == 0, done.stderr
            outputs.append(np.load(to).tobytes())
    finally:
        store.pipe(changed, before)
    assert outputs[0] == outputs[1]
    assert outputs[2] == outputs[3]
    measured = daylight(world, "evaluate", number, "--data", "train_data", "--threads", "1")
    assert measured.returncode == 0, measured.stderr


def test_code_that_reads_a_path_of_its_folder_finds_the_data_there(
    world: World, bucket: str, local: Path, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    source = PROGRAM.replace("HOLD", str(hold))
    project = tmp_path / "project"
    sample = project / "data" / "train" / "sample.npy"  # of another shape, so that a training that reads it fails
    sample.parent.mkdir(parents=True)
    np.save(sample, np.zeros(3, "float32"))
    (project / "data" / "names.txt").write_text("a\n")
    line = [f"--data=data/train={bucket}/train", "--include=data", "--checkpoint-every=1steps", "--slots=2"]
    number = submit_program(world, project, source, *line, "--", "python", "train.py")
    world.reached(number, 1)
    world.checkpointed(number)
    world.ranks()[0].kill()
    hold.unlink()
    ended = world.ended(number)
    assert (ended.state, ended.trials[0].attempt) == ("completed", 2)
    assert [each for each in ended.warnings if "sample.npy" in each] == []
    files = contents(world.serve().archive(number))
    assert [each for each in files if each.startswith("project/data/")] == ["project/data/names.txt"]
    assert ended.experiment.params.get("train", "data/train") == "data/train"
    assert f"data/train={bucket}/train {SAMPLES} files" in daylight(world, "show", str(number)).stdout

    again = submit_program(
        world, tmp_path / "again", source.replace("data/train", str(local)), "--slots=2", "--", "python", "train.py"
    )
    moved = daylight(world, "rerun", str(number), "--data", f"data/train={local}", "--json")
    assert moved.returncode == 0, moved.stderr
    rerun = json.loads(moved.stdout)["experiment"]["number"]
    logs = []
    for each in (number, again, rerun):
        assert world.ended(each).state == "completed"
        log = daylight(world, "logs", str(each)).stdout.splitlines()
        logs.append([line for line in log if line[:1].isdigit()])
    assert logs[0] == logs[1] == logs[2] != []
    differs = json.loads(daylight(world, "diff", str(number), str(rerun), "--json").stdout)
    assert [each["name"] for each in differs["differences"] if each["kind"] == "data"] == []
    assert np.load(sample).shape == (3,)


def test_a_killed_program_goes_on_with_the_versions_of_its_submission(
    world: World, bucket: str, local: Path, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    line = [f"--data=train={bucket}/train", "--checkpoint-every=1steps", "--", "python", "train.py"]
    number = submit_program(world, tmp_path / "project", PROGRAM.replace("HOLD", str(hold)), *line)
    world.reached(number, 1)
    world.checkpointed(number)
    changed = f"{bucket}/train/0/sample 00.npy"
    store = fsspec.filesystem("s3")
    before = store.cat(changed)
    store.pipe(changed, b"another")
    try:
        for checked in Path(os.environ[ROOT]).glob("views/*/checked-*"):
            os.utime(checked, (0, 0))  # so that the store is asked again
        world.ranks()[0].kill()
        hold.unlink()
        ended = world.ended(number)
    finally:
        store.pipe(changed, before)
    assert (ended.state, ended.trials[0].attempt) == ("completed", 2)
    notes = " ".join((*ended.warnings, *ended.informational))
    assert f"{changed} was replaced since this was submitted" in notes
    assert "are used" in notes

    again = submit_program(
        world, tmp_path / "again", PROGRAM.replace("data/train", str(local)), "--", "python", "train.py"
    )
    assert world.ended(again).state == "completed"
    log = daylight(world, "logs", str(number)).stdout
    assert [each for each in log.splitlines() if each[:1].isdigit()] == daylight(
        world, "logs", str(again)
    ).stdout.splitlines()


def test_a_command_and_its_processes_find_it_in_the_environment(
    world: World, bucket: str, local: Path, tmp_path: Path
) -> None:
    command = [
        "sh",
        "-c",
        'cd "$DAYLIGHT_DATA"; find train/ -type f | wc -l; cat one {one}; touch train/new || echo refused',
    ]
    fsspec.filesystem("s3").pipe(f"{bucket}/one.txt", b"only\n")
    said = [f"--data=train={bucket}/train", f"--data=one={bucket}/one.txt"]
    command[-1] += "; cat ./parts/one.txt; wc -l < $DAYLIGHT_DATA/parts/one.txt; ls files/0"
    fsspec.filesystem("s3").pipe(f"{bucket}/a/two.txt", b"a\nb\n")
    said += [f"--data=./parts/one.txt={bucket}/a/two.txt", f"--data=./files={bucket}/train/"]
    number = submit_program(world, tmp_path / "project", "", *said, "--form", "command", "--", *command)
    assert world.ended(number).state == "completed"
    log = daylight(world, "logs", str(number)).stdout
    assert str(SAMPLES) in log.split()
    assert log.split().count("only") == 2  # by its name in the folder, and by the placeholder
    assert "refused" in log.split() or os.getuid() == 0
    assert log.split()[-SAMPLES // 4 * 2 - 3 :][:3] == ["a", "b", "2"]  # at their paths, in the folder and in its links


def test_a_long_fetch_says_how_far_it_is_and_gives_its_slots_up_at_once(
    world: World, network: tuple[str, BadNetwork], tmp_path: Path
) -> None:
    url, way = network
    for number in range(4):
        fsspec.filesystem("s3").pipe(f"{url}/large/{number}.npy", os.urandom(500_000))
    usual, way.bandwidth = way.bandwidth, 50_000.0
    try:
        line = [f"--data=train={url}/large", "--form", "command", "--", "python", "train.py"]
        number = submit_program(world, tmp_path / "slow", "import os; print(os.environ['DAYLIGHT_DATA'])", *line)
        text = until(
            lambda: (said := world.overview(number).starting).startswith("fetching ") and " of " in said and said,
            "it fetches",
        )
        assert world.overview(number).state == "starting"  # so that views ask again
        assert re.fullmatch(r"fetching train: [\d.]+ k?B of 2\.0 MB, [\d.]+ k?B/s(, .* left)?", text)
        assert "fetching train: " in daylight(world, "show", str(number)).stdout
        assert daylight(world, "pause", str(number)).returncode == 0
        world.state(number, "paused")
    finally:
        way.bandwidth = usual
    assert daylight(world, "resume", str(number)).returncode == 0
    assert world.ended(number).state == "completed"


def test_the_doctor_tells_whether_this_machine_reaches_data_and_how_fast(
    world: World, network: tuple[str, BadNetwork], local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, way = network

    def found(data: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
        with mock.patch.dict(os.environ, {**world.environment, **(env or {})}):
            code = main(["doctor", "--data", data, "--json"])
        of_data, cache = json.loads(capsys.readouterr().out)["findings"]
        assert cache["says"].startswith(f"{os.environ[ROOT]}: ")
        return code, of_data["says"], of_data["todo"]

    fsspec.filesystem("s3").pipe(f"{url}/long/a.bin", os.urandom(20_000_000))
    code, says, todo = found(f"train={url}/long")
    assert (code, todo) == (0, "")
    pattern = rf"{url}/long: 1 object, 20\.0 MB; the first 16\.0 MB arrive at [\d.]+ .?B/s \(latency \d+ ms\)"
    assert re.fullmatch(pattern, says)
    code, says, _ = found(f"{url}/train")
    assert says.startswith(f"{url}/train: {SAMPLES} objects, 4.6 kB; they arrive at ")
    assert found(f"{url}/train/0/sample 00.npy")[0] == 0
    without = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
    for data, env, says, todo in [
        (f"{url}/nothing", {}, "there is no object below it", "look at its name"),
        ("s3://nothing-of-this-name/train", {}, "there is no such bucket or container", "look at its name"),
        (
            f"{url}/train",
            {**without, "HOME": str(tmp_path)},
            "this machine has no credentials",
            "set variables such as AWS",
        ),
        ("gs://bucket/train", {}, "needs a package that the Python of this machine lacks", "pip install"),
    ]:
        code, *said = found(data, env)
        assert (code, says in said[0], said[1].startswith(todo)) == (1, True, True), said
    assert main(["doctor", "--data", "/data/train"]) == 2
    assert "/data/train is no URL: write it as for a submission" in capsys.readouterr().err
    way.refusals, way.refusal = 10_000, (403, "AccessDenied")
    try:
        refused = found(f"{url}/train")
        assert refused[1].endswith("the credentials of this machine may not read it, or have expired")
        assert (refused[0], refused[2]) == (1, "renew them")
    finally:
        way.refusals = 0


def test_what_this_machine_has_is_shown_and_removed(world: World, bucket: str, local: Path, tmp_path: Path) -> None:
    held = json.loads(daylight(world, "du", "--cache", "--json").stdout)
    assert held["bytes"] == held["idle"] > 0
    assert "no training uses" in daylight(world, "gc", "--cache", "--dry-run").stdout
    links = [each for each in Path(NODE_LINK).parent.glob(f"{Path(NODE_LINK).name}*") if each.is_symlink()]
    ours = [each for each in links if each.readlink().is_relative_to(os.environ[ROOT])]
    assert ours
    removed = daylight(world, "gc", "--cache")
    assert [each for each in ours if each.is_symlink()] == []
    assert removed.stdout.splitlines()[1] == f"remote data in {os.environ[ROOT]}: 0 objects, 0 B"


def test_an_input_that_nothing_takes_or_that_is_not_there_is_refused_before_anything_is_sent(
    world: World, bucket: str, local: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(FUNCTIONS)
    for given, said in [
        (f"trains={bucket}/train", "nothing takes trains (did you mean train?)"),
        (f"train={bucket}/nothing", "there is no object below it"),
        (f"1train={bucket}/train", "1train is no name: write a word"),
        (f"/data/images={bucket}/train", f"write one, as ./images={bucket}/train, and have the code read images"),
        (f"../train={bucket}/train", "../train is no path inside the working folder"),
        (f"./tain={bucket}/train", "nothing in the code reads tain"),
    ]:
        refused = daylight(world, "submit", "train.py", "--data", given, cwd=tmp_path)
        assert refused.returncode != 0
        assert said in refused.stderr


def test_a_version_that_is_nowhere_any_more_fails_with_both_versions(
    world: World, bucket: str, local: Path, tmp_path: Path
) -> None:
    store = fsspec.filesystem("s3")
    store.pipe(f"{bucket}/changing/a.npy", b"first")
    hold = tmp_path / "hold"
    hold.touch()
    blocker = submit_program(
        world,
        tmp_path / "blocker",
        f"import os, time\nwhile os.path.exists({str(hold)!r}): time.sleep(0.05)",
        "--slots=2",
        "--form",
        "command",
        "--",
        "python",
        "train.py",
    )
    world.state(blocker, "running")
    number = submit_program(
        world, tmp_path / "project", PROGRAM, f"--data=train={bucket}/changing", "--", "python", "train.py"
    )
    store.pipe(f"{bucket}/changing/a.npy", b"second")
    hold.unlink()
    ended = world.ended(number)
    assert ended.state == "failed"
    failure = ended.attempts[-1].failure
    assert failure is not None
    assert f"{bucket}/changing/a.npy was replaced since this was submitted: it was" in failure.message
    assert ended.trials[0].attempt == 1  # another attempt would find the same
