"""Test a rerun of Leslie's training by Dave months later: all silent changes since are named, and no others.

It follows the story of PEDL's talks: an error of 30.3 % became 52.8 %, because samples had been added and
hyperparameters had not been recorded.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ext.magics import magics
from kernel_backend.client import Client
from kernel_backend.commands.attribution import attribute
from kernel_backend.model.diff import Diff
from tests.support.world import World

pytestmark = pytest.mark.distributed

HELPER = "def scaled(x):\n    return x * 2.0"
UNUSED = "figures = [1, 2, 3]"
DEFINITION = """
def train_data():
    files = sorted(Path("samples").glob("*.npy"))
    x = torch.stack([torch.from_numpy(np.load(file)) for file in files])
    return torch.utils.data.TensorDataset(scaled(x) * leslielib.GAIN, x.sum(1, keepdim=True))
def validation_data():
    x = torch.linspace(-1, 1, 64).reshape(16, 4)
    return torch.utils.data.TensorDataset(scaled(x), x.sum(1, keepdim=True))
def model(width=8):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))
def optimizer(params, lr=1e-2): return torch.optim.SGD(params, lr=lr)
def loss(output, target): return nn.functional.mse_loss(output, target)
def metrics(output, target): return {"error": (output - target).abs().squeeze(1)}
"""


class Notebook:
    """Leslie's project, and a kernel in it that submits her cell."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.library = folder / "project", folder / "library"
        self.project(self.folder)
        self.install("1.0", gain=1.0)
        self.options = {"--threads": "1", "--seed": "0", "--loader-workers": "0"}
        self.cells = {"imports": "from pathlib import Path", "helper": HELPER, "unused": UNUSED}
        self.definition = DEFINITION

    def project(self, folder: Path) -> None:
        import numpy as np

        (folder / "samples").mkdir(parents=True)
        for number in range(48):
            self.sample(folder, number, np.random.default_rng(number).standard_normal(4))

    def sample(self, folder: Path, number: int, values: object) -> None:
        import numpy as np

        np.save(folder / "samples" / f"{number:03}.npy", np.asarray(values, "float32"))

    def install(self, version: str, gain: float) -> None:
        """Install the library that the cell uses, like `pip install` does."""
        if list(self.library.glob(f"leslielib-{version}.dist-info")):
            return  # nothing new: jobs start warm
        shutil.rmtree(self.library, ignore_errors=True)
        about = self.library / f"leslielib-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: leslielib\nVersion: {version}\n")
        (about / "RECORD").write_text("leslielib.py,,\n")
        (self.library / "leslielib.py").write_text(f"GAIN = {gain}\n")
        sys.modules.pop("leslielib", None)
        importlib.invalidate_caches()

    def submit(self, line: str = "") -> int:
        """Run all cells in a new kernel, and return the experiment's number."""
        before = os.getcwd()
        os.chdir(self.folder)
        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance()
        try:
            magics.load(shell)
            given = " ".join(f"{name} {value}" for name, value in self.options.items())
            head = f"%%dlsubmit --quiet --no-wait --out job --epochs 3 --batch-size 8 --data samples {given} {line}"
            libraries = "import numpy as np, torch, leslielib\nfrom torch import nn"
            for cell in [libraries, *self.cells.values(), head + self.definition]:
                shell.run_cell(cell, store_history=True).raise_error()
            return int(shell.user_ns["job"].number)
        finally:
            InteractiveShell.clear_instance()
            os.chdir(before)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Path]]:
    folder = tmp_path_factory.mktemp("leslie")
    world = World(folder / "home", shared_forkserver=True)
    # An empty entry would be the folder of each training, and would take each a forkserver of its own.
    before = filter(None, [os.environ.get("PYTHONPATH")])
    world.environment["PYTHONPATH"] = os.pathsep.join([str(folder / "library"), *before])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAYLIGHT_HOME", str(world.home))
        patch.setenv("DAYLIGHT_HEADLESS", "0")
        patch.syspath_prepend(str(folder / "library"))
        world.serve()
        yield world, folder
        world.close()


@pytest.fixture(scope="module")
def leslie(shared: tuple[World, Path]) -> int:
    """Provide Leslie's own training."""
    world, folder = shared
    number = Notebook(folder).submit()
    assert world.ended(number).state == "completed"
    return number


@pytest.fixture
def dave(shared: tuple[World, Path], leslie: int) -> Notebook:
    """Provide Leslie's unchanged notebook for Dave."""
    _, folder = shared
    shutil.rmtree(folder / "project")
    return Notebook(folder)


def compared(world: World, leslie: int, dave: Notebook, line: str = "") -> Diff:
    number = dave.submit(line)
    ended = world.ended(number)
    assert ended.state == "completed", ended
    return Client.connect(start=False, home=world.home).diff(leslie, number)


def data_added(dave: Notebook) -> None:
    for number in range(48, 60):
        dave.sample(dave.folder, number, [0.5, 0.5, 0.5, 0.5])


def file_edited(dave: Notebook) -> None:
    file = dave.folder / "samples" / "007.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def default_changed(dave: Notebook) -> None:
    dave.definition = DEFINITION.replace("lr=1e-2", "lr=2e-2")


def library_changed(dave: Notebook) -> None:
    dave.install("1.1", gain=1.01)


def helper_edited(dave: Notebook) -> None:
    dave.cells["helper"] = HELPER.replace("2.0", "2.5")


def option(name: str, value: str) -> Callable[[Notebook], None]:
    return lambda dave: dave.options.update({name: value})


CHANGES: dict[str, tuple[Callable[[Notebook], None], str, str]] = {
    "data added": (data_added, "data", "samples: 12 files were added (048.npy, 049.npy, 050.npy, ...)"),
    "one file edited to the same size": (file_edited, "data", "samples: 1 file has other bytes (007.npy)"),
    "a default changed": (default_changed, "hyperparameters", "lr 0.01 -> 0.02"),
    "a library's version": (library_changed, "environment", "leslielib 1.0 -> 1.1"),
    "the seed": (option("--seed", "1"), "seed", "seed 0 -> 1"),
    "loader workers": (option("--loader-workers", "1"), "configuration", "loader workers 0 -> 1"),
    "threads": (option("--threads", "2"), "hardware", "threads 1 -> 2"),
    "a helper cell edited": (helper_edited, "code", "the definition differs in cell [3]"),
}


COSTLY = {"a library's version", "threads"}  # for which another forkserver has to start


@pytest.mark.parametrize(
    "change", [pytest.param(each, marks=pytest.mark.long) if each in COSTLY else each for each in CHANGES]
)
def test_a_silent_change_is_named(shared: tuple[World, Path], leslie: int, dave: Notebook, change: str) -> None:
    inject, kind, text = CHANGES[change]
    inject(dave)
    found = compared(shared[0], leslie, dave)
    assert (kind, text) in [(each.kind, each.text) for each in found.differences], found.differences
    if change == "a default changed":  # its line is code, too
        assert found.differences[1].text == text
    else:
        assert found.differences[0].text == text
        follows = {each.name for each in found.differences[1:]}
        assert follows <= {"delivered", "step 0"}
    assert bool(found.results.identical) is (change in ("loader workers", "threads"))


def a_comment(dave: Notebook) -> None:
    dave.definition = DEFINITION.replace("def loss", "# what is made small\ndef loss")
    dave.cells["helper"] = HELPER + "  # twice as much"


def an_unused_cell(dave: Notebook) -> None:
    dave.cells = {name: cell for name, cell in dave.cells.items() if name != "unused"} | {"renamed": "pictures = [4]"}


def another_folder(dave: Notebook) -> None:
    dave.folder = dave.folder.parent / "copy"
    shutil.rmtree(dave.folder, ignore_errors=True)
    dave.project(dave.folder)


HARMLESS = {"a comment": a_comment, "an unused cell": an_unused_cell, "another folder": another_folder}


@pytest.mark.parametrize("change", HARMLESS)
def test_what_is_harmless_is_passed_over(shared: tuple[World, Path], leslie: int, dave: Notebook, change: str) -> None:
    HARMLESS[change](dave)
    found = compared(shared[0], leslie, dave)
    assert found.differences == ()
    assert found.results.identical, found.results.text


def test_the_story_is_told_until_nothing_is_left(shared: tuple[World, Path], leslie: int, dave: Notebook) -> None:
    world = shared[0]
    data_added(dave)
    dave.options["--seed"] = "5"
    number = dave.submit("lr=0.03")
    world.ended(number)
    client = Client.connect(start=False, home=world.home)
    told = attribute(client, leslie, number, lambda text: None)
    labels = [row.label for row in told.rows]
    assert labels == [
        f"#{leslie} as it was", f"#{number} as found", "+ data and hyperparameters", "+ libraries and seeds",
    ]  # fmt: skip
    assert [row.off == 0 for row in told.rows] == [True, False, False, True]
    assert told.beyond == ()
    assert told.results is not None
    assert told.results.identical, told.results.text
