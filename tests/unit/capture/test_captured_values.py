"""Test `--capture NAME`: a notebook value is sent in a file, and is equal in the job."""

from __future__ import annotations

import importlib.util
import math
import pickle
import sys
import types
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.utils.parametrizations import orthogonal, weight_norm
from torch.nn.utils.parametrize import remove_parametrizations

from jupyter_ext.capture import Capture, capture_cell
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.snapshot import Environment, Snapshot
from kernel_backend.snapshots.captured import read, write

shared = [1]
ROUND_TRIPS = [
    (np.arange(6).reshape(2, 3)[:, ::2], "npy"),
    (np.array([("a", 1)], dtype=[("name", "U3"), ("count", "<i4")]), "npy"),
    (np.array([{}, None]), "pickle"),
    (torch.arange(6.0).reshape(2, 3).T, "safetensors"),
    (torch.tensor(3, dtype=torch.bfloat16), "safetensors"),
    (torch.nn.Linear(2, 2).weight, "pickle"),
    (OrderedDict(b=torch.ones(2), a=torch.zeros(0)), "safetensors"),
    ({"a": torch.ones(2), "n": 1}, "pickle"),
    (["a", 1, True, None, 0.1, -0.0, 10**50, {"ü\ud800": []}], "json"),
    ({"a": (1, 2)}, "pickle"),
    ({1: "a"}, "pickle"),
    ([math.inf], "pickle"),
    ([shared, shared], "pickle"),
    ([np.float64(0.5)], "pickle"),
    ({"a", "b"}, "pickle"),
    (b"bytes", "pickle"),
    (pd.Series([1.0, 2.0], name="x"), "pickle"),
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other) and one.requires_grad == other.requires_grad
    if isinstance(one, pd.Series):
        return one.equals(other) and one.name == other.name
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other) and (isinstance(one, set) or repr(one) == repr(other))


# A set is printed in another order by another process.
@pytest.mark.parametrize(
    ("value", "format"), ROUND_TRIPS, ids=lambda each: "set" if isinstance(each, set) else str(each)[:20]
)
def test_a_value_comes_back_equal_in_value_and_type(value: Any, format: str):
    written = write(value)
    assert written.format == format
    back = read(written.format, written.data, {})
    assert type(back) is type(value)
    assert same(value, back)


def test_a_module_whose_weights_are_computed_comes_back():
    """Torch refuses such modules, and one whose weight norm was removed."""
    module = torch.nn.Sequential(orthogonal(torch.nn.Linear(3, 3)), weight_norm(torch.nn.Linear(3, 3)))
    module.append(remove_parametrizations(weight_norm(torch.nn.Linear(3, 3)), "weight"))
    written = write(module)
    assert written.format == "pickle"
    back = read(written.format, written.data, {})
    assert torch.equal(back(torch.eye(3)), module(torch.eye(3)))
    assert list(back.state_dict()) == list(module.state_dict())


def test_weights_that_are_tied_come_back_equal():
    weight = torch.ones(4)
    written = write({"one": weight, "two": weight[1:]})
    assert written.format == "safetensors"
    assert same(read(written.format, written.data, {}), {"one": weight, "two": weight[1:]})


def test_a_table_is_parquet_where_that_gives_it_back_equal():
    table = pd.DataFrame({"n": [1, 2], "name": ["a", None]}, index=[3, 5])
    written = write(table)
    assert written.format == ("parquet" if importlib.util.find_spec("pyarrow") else "pickle")
    pd.testing.assert_frame_equal(read(written.format, written.data, {}), table)


class World:
    """Cells run in a namespace, of which the last one is captured, and its module imported like a job does."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = tmp_path
        self.main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.main)

    def capture(
        self, cells: list[str], target: str, *names: str, from_jobs: tuple[str, ...] = (), **made: object
    ) -> Capture:
        if made:
            vars(self.main).update(made)
        else:
            exec("\n".join(cells), vars(self.main))
        return capture_cell(cells, target, vars(self.main), captured=names, from_jobs=from_jobs)

    def job(self, capture: Capture) -> Any:
        assert not capture.problems
        snapshot = Snapshot(
            version="", numerics=1, pieces=capture.pieces, roles_from=1, captured=capture.captured,
            environment=Environment(python="", implementation="", platform="", cpu="", cores=1, distributions={}),
        )  # fmt: skip
        files = {**capture.files, "snapshot.json": snapshot.model_dump_json().encode()}
        for name, data in {**files, "definition.py": capture.source.encode()}.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(data)
        spec = importlib.util.spec_from_file_location("definition", self.folder / "definition.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_captured_name_is_read_where_it_was_last_bound_and_nothing_that_made_it_travels(world: World):
    cells = ["import random", "files = !ls data\nk = 2", "files.append('x')", "count = len(files) * k"]
    made = {"files": ["a", "b", "x"], "k": 2, "count": 6}
    capture = world.capture(cells, "def model(): return files, count", "files", **made)
    assert 'files = captured("files")  # list, 15 B, from the notebook' in capture.source
    assert "!ls" not in capture.source
    assert "append" not in capture.source
    (held,) = capture.captured
    assert capture.source.split("\n")[held.line - 1].startswith("files = captured(")
    assert (held.file, held.format) == ("captured/files.json", "json")
    module = world.job(capture)
    assert module.model() == (["a", "b", "x"], 6)


def test_instances_of_the_notebooks_own_classes_are_instances_of_the_jobs(world: World):
    cells = [
        "class Point:\n    def __init__(self, x): self.x = x * scale",
        "scale = 3",
        "points = [Point(1), Point(2)]",
        "class Other: ...",
    ]
    capture = world.capture(cells, "def model(): return points", "points")
    assert "class Point" in capture.source
    assert "scale = 3" in capture.source
    assert "Other" not in capture.source
    module = world.job(capture)
    assert [type(each) for each in module.model()] == [module.Point] * 2
    assert [each.x for each in module.points] == [3, 6]


def test_a_name_of_our_own_functions_name_is_no_trouble(world: World):
    capture = world.capture(["captured = 1"], "def model(): return captured, table", "table", table={"a": 1})
    assert "from daylight import captured as captured_in_notebook" in capture.source
    assert world.job(capture).model() == (1, {"a": 1})


def test_a_file_that_is_not_the_one_that_travelled_is_refused(world: World):
    capture = world.capture([], "def model(): return table", "table", table=[1])
    world.job(capture)
    capture.files["captured/table.json"] = b"[2]"
    with pytest.raises(InvalidRequest, match=r"captured/table.json is not the file that was submitted"):
        world.job(capture)


@pytest.mark.parametrize(
    ("made", "target", "said"),
    [
        ({}, "y = table", "--capture table: the notebook has no 'table'"),
        ({"tabel": 1}, "y = table", "did you mean tabel?"),
        ({"table": len}, "y = table", "a builtin_function_or_method"),
        ({"table": (i for i in [1])}, "y = table", "a generator cannot be stored: TypeError: cannot pickle"),
        ({"table": np.broadcast_to(np.zeros(1), 10**9)}, "y = table", "it has 8.0 GB, more than a snapshot holds"),
        ({"table": 1}, "table = 2", "this cell makes 'table' itself"),
    ],
)
def test_what_cannot_be_captured_is_told(world: World, made: dict[str, object], target: str, said: str):
    capture = world.capture([], target, "table", **made)
    if "builtin" in said:
        assert not capture.problems  # found by its own name wherever it runs
    else:
        assert said in "\n".join(problem.message for problem in capture.problems)


def test_one_that_nothing_uses_is_a_warning(world: World):
    capture = world.capture([], "x = 1", "table", table=[1])
    assert capture.warnings == ("--capture table: it travels, and nothing in the cell uses it",)


def test_a_name_that_a_magic_made_says_the_way_out(world: World):
    capture = world.capture(["files = !ls data"], "def model(): return files", files=["a"])
    (problem,) = capture.problems
    assert problem.message == (
        "this cell uses 'files', made by 'files = !ls data' in cell [1], which a job cannot repeat. "
        "Write it in Python, or add --capture files."
    )


TRAINED = [
    "import random, torch",
    "net = torch.nn.Linear(1, 1)\nopt = torch.optim.Adam(net.parameters())",
    "steps = torch.optim.lr_scheduler.StepLR(opt, 1)",
    "for _ in range(3):\n    net(torch.ones(1)).backward()\n    opt.step()\n    steps.step()",
]


@pytest.mark.parametrize(
    ("cell", "shared"),
    [
        ("", "next(net.parameters()) is opt.param_groups[0]['params'][0]"),
        ("", "steps.optimizer is opt and net.weight in opt.state"),
        ("kept = [net, {'net': net}]", "kept[0] is net and kept[1]['net'] is net"),
        ("ema = torch.optim.swa_utils.AveragedModel(net)\nkept = ema.module", "kept is ema.module"),
        ("other = torch.nn.Sequential(net, torch.nn.Linear(1, 1))", "other[0] is net"),
        ("kept = net.weight.detach()", "kept.data_ptr() == net.weight.data_ptr()"),
        ("kept = net.state_dict()", "kept['bias'].data_ptr() == net.bias.data_ptr()"),
        ("kept = torch.nn.Parameter(net.weight.detach()[:, :0])", "kept.shape == (1, 0)"),
        ("class Run: pass\nrun = Run()\nrun.net, run.losses, losses = net, (one := []), one", "run.losses is losses"),
    ],
)
def test_values_that_share_objects_share_them_in_the_job(world: World, cell: str, shared: str):
    capture = world.capture([*TRAINED, cell], f"def model(): return net, opt, steps\ndef train_data(): return {shared}")
    assert "backward" not in capture.source
    module = world.job(capture)
    assert module.train_data()
    for name, value in zip(("net", "opt", "steps"), module.model(), strict=True):
        assert repr(value.state_dict()) == repr(vars(world.main)[name].state_dict())
    assert not any(vars(module)["__captured__"].values())


def test_values_that_share_nothing_have_a_file_each(world: World):
    cells = ["import torch", "a, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)", "c, d = {1: 'x'}, {1: 'x'}"]
    capture = world.capture(cells, "def model(): return a, b, c, d", *"abcd")
    assert [(each.file, each.format) for each in capture.captured] == [
        (f"captured/{name}.pkl", "pickle") for name in "abcd"
    ]


class Model:
    """Substitute for a model of a library whose `compile` begins its training anew, and keeps what it is given."""

    def compile(self, loss: object) -> None:
        self.loss, self.steps = loss, 0


def test_what_a_job_has_trained_is_not_changed_by_statements_that_another_value_needs(world: World):
    cells = ["from collections import Counter", "loss = Counter()", "model = Model()\nmodel.compile(loss)"]
    vars(world.main).update(Model=Model)
    exec("\n".join(cells), vars(world.main))
    world.main.model.steps = 7
    capture = world.capture(cells, "def model_(): return model.steps, model.loss is loss", from_jobs=("model",), x=1)
    assert "compile" not in capture.source
    assert world.job(capture).model_() == (7, True)


def test_what_shares_an_object_is_named_with_its_file(world: World):
    capture = world.capture(["a = [1]", "b = (a, a)"], "def model(): return a, b", "a", "b")
    assert {(each.file, each.format) for each in capture.captured} == {("captured/a+b.pkl", "graph")}
    assert 'a = captured("a")  # list, ' in capture.source
    assert " with b, from the notebook" in capture.source
    assert [names for names, _ in capture.captured_files] == ["a, b"]


def test_a_pickle_of_an_earlier_version_is_read():
    net = torch.nn.Linear(2, 2)
    back = read("pickle", pickle.dumps(net, protocol=5), {})
    assert torch.equal(back.weight, net.weight)


Pair = namedtuple("Pair", "a b")


def test_named_tuples_keep_their_type():
    written = write([Pair(1, 2)])
    assert type(read(written.format, written.data, {})[0]) is Pair
