"""Test that files read by a training are reported with digests, from loader workers, all ranks and attempts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from gang import STAND, Attempt, Trial
from safetensors.torch import save_file

from kernel_backend.model.facts import Observed, ObservedFile
from kernel_backend.model.reports import Fact

pytestmark = pytest.mark.distributed

READERS = f"""
import csv, gzip, os, pickle, sqlite3, tempfile, time
from pathlib import Path
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
{STAND}
def kept(name): return Path(FOLDER) / name

VOCABULARY = kept("vocabulary.txt").read_text()
with sqlite3.connect(kept("labels.db")) as db:
    LABELS = db.execute("SELECT 1").fetchone()
with tempfile.TemporaryDirectory() as scratch:
    Path(scratch, "gone").write_text("x")
    Path(scratch, "gone").read_text()
Path(tempfile.mkdtemp(), "made here").write_text("x")
kept("line3.txt").with_suffix(".new").write_text("never read")

class Lines(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, index):
        with open(kept(f"line{{index}}.txt")) as file:
            return torch.full((4,), float(file.read())), index % 2

def train_data():
    np.load(kept("table.npy"))
    gzip.open(kept("packed.gz")).read()
    os.close(os.open(kept("raw.bin"), os.O_RDONLY))
    return Lines()
class Unseen(Lines):
    def __len__(self): return 2
    def __getitem__(self, index):
        kept(f"unseen{{index}}.txt").read_text()
        return super().__getitem__(index)
def validation_data(): return Unseen()
def model():
    net = nn.Linear(4, 2)
    torch.load(kept("weights.pt"))
    load_file(kept("pretrained.safetensors"))
    with safe_open(str(kept("other.safetensors")), "pt") as file:
        file.keys()
    return net
def loss(output, target, pause=0.0):
    time.sleep(pause)
    stand()
    return nn.functional.cross_entropy(output, target)
"""
ONCE = {
    "vocabulary.txt",
    "labels.db",
    "table.npy",
    "packed.gz",
    "raw.bin",
    "weights.pt",
    "pretrained.safetensors",
    "other.safetensors",
    "unseen0.txt",  # by the validation
    "unseen1.txt",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a folder with all files that the definition reads."""
    made = tmp_path / "data"
    made.mkdir()
    np.save(made / "table.npy", np.arange(3))
    torch.save({"w": torch.ones(2)}, made / "weights.pt")
    for name in ("pretrained", "other"):
        save_file({"w": torch.ones(2)}, made / f"{name}.safetensors")
    for number in range(24):
        (made / f"line{number}.txt").write_text(str(number))
    for name in ("vocabulary.txt", "raw.bin", "labels.db", "unseen0.txt", "unseen1.txt"):
        (made / name).write_text("")
    (made / "packed.gz").write_bytes(bytes.fromhex("1f8b08000000000000030300000000000000000000"))
    return made


def observed(*attempts: Attempt) -> list[dict[str, ObservedFile]]:
    facts = [each for attempt in attempts for each in attempt.records if isinstance(each, Fact)]
    said = [Observed.model_validate(fact.value) for fact in facts if fact.name == "observed"]
    return [{Path(file.path).name: file for file in each.files} for each in said]


@pytest.mark.parametrize(("slots", "workers"), [(1, 0), (1, 2), (2, 1)])
def test_every_file_that_python_opened_is_told_once_and_no_other(folder, trial, slots, workers):
    options = {"loader_workers": workers}
    run = trial(source=f"FOLDER = {str(folder)!r}\n{READERS}", slots=slots, options=options).start(hold=3)
    run.wait(lambda: observed(run))  # once the training is over, what is in the files is not looked into any more
    run.go().ended()
    assert set(run.codes) == {0}, run.logs()
    (found,) = observed(run)
    assert set(found) == ONCE | {f"line{number}.txt" for number in range(24)}
    for name, file in found.items():
        content = (folder / name).read_bytes()
        assert (file.path, file.size) == (str(folder / name), len(content))
        assert file.digest == xxhash.xxh3_128_hexdigest(content)


def test_what_was_read_before_a_kill_is_told_after_it(folder, trial):
    source = f"FOLDER = {str(folder)!r}\n{READERS}"
    options = {"loader_workers": 1}
    run = trial(source=source, slots=2, batch_size=4, every="2steps", params={"pause": 0.2}, options=options)
    first = run.start(hold=4)
    first.wait(lambda: first.pids() and first.committed())
    first.kill(1)
    assert observed(first) == []
    for number in range(24):  # the next attempt reads what is left
        (folder / f"line{number}.txt").touch()
    (found,) = observed(first, run.run(run.pinned()))
    assert set(found) == ONCE | {f"line{number}.txt" for number in range(24)}


def test_attempts_after_the_first_epoch_have_nothing_to_tell(folder, trial):
    source = f"FOLDER = {str(folder)!r}\n{READERS}"
    run = trial(source=source, slots=1, epochs=30, every="2steps", params={"pause": 0.02})
    first = run.start(hold=8)
    first.wait(lambda: first.committed() and int(first.committed()[-1].split("-")[0]) > 2)
    first.wait(lambda: first.pids() and observed(first))  # which is said beside the training
    first.kill(0)
    second = run.start(run.pinned(), hold=6)
    second.wait(lambda: second.pids() and second.committed())
    second.kill(0)
    assert (len(observed(first)), observed(second)) == (1, [])


def test_a_spawned_worker_tells_too(folder, trial):
    loader = (
        "def train_data(): return torch.utils.data.DataLoader(Lines(), num_workers=1, multiprocessing_context='spawn')"
    )
    source = f"FOLDER = {str(folder)!r}\n{READERS}\n{loader}\n"
    run: Trial = trial(source=source, slots=1)
    ran = run.run()
    assert set(ran.codes) == {0}, ran.logs()
    (found,) = observed(ran)
    assert {f"line{number}.txt" for number in range(24)} <= set(found)
