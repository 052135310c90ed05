"""Test data that a program's setup creates: unchanged data is stored by reference, changed data is saved."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pandas  # noqa: F401  # once, not in each forked process
import pytest
import torch
import torch._dynamo
from sklearn.utils import Bunch  # noqa: F401

from kernel_backend.runner.forms.script.state.setup_data import Versions
from kernel_backend.runner.forms.script.state.values import large_tree
from tests.support.script_runs import run

PROGRAM = """
import collections, dataclasses, os, types
import numpy as np, torch
from torch import nn
@dataclasses.dataclass
class Data:
    x: object
@dataclasses.dataclass(slots=True)
class Slotted:
    x: object
class Mine(dict):
    pass
class MyList(list):
    pass
Pair = collections.namedtuple("Pair", "x y")
seed = int(open("seed.txt").read())
def array():
    return np.random.default_rng(seed).random(50_000)
def text(i):
    return f"word {{i + seed}}"
torch.manual_seed(0)
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{setup}
for step in range(4):
    loss = model(torch.ones(1, 2)).square().mean()
    loss.backward()
    opt.step()
    if step == {at}:
        {change}
print(repr(({told})), loss.item())
"""
INNER = "x[9] += 1"  # of an array within
CASES = {
    "array": ("data = array()", "data[9] += 1", "data.sum()"),
    "fortran": ("data = np.asfortranarray(array().reshape(100, 500))", "data[9, 3] += 1", "data[9].sum()"),
    "shape": ("data = array()", "data.shape = (100, 500)", "data.shape"),
    "tensor": ("data = torch.from_numpy(array())", "data[9] += 1", "data.sum().item()"),
    "dict": ("data = {'x': array()}", "data['x'][9] += 1", "data['x'].sum()"),
    "ordered": ("data = collections.OrderedDict(x=array())", "data['x'][9] += 1", "data['x'].sum()"),
    "default": ("data = collections.defaultdict(list, x=array())", "data['x'][9] += 1", "data['x'].sum()"),
    "dataclass": ("data = Data(array())", f"data.{INNER}", "data.x.sum()"),
    "slots": ("data = Slotted(array())", f"data.{INNER}", "data.x.sum()"),
    "namespace": ("data = types.SimpleNamespace(x=array())", f"data.{INNER}", "data.x.sum()"),
    "namedtuple": ("data = Pair(torch.from_numpy(array()), 1)", f"data.{INNER}", "data.x.sum().item()"),
    "user dict": ("data = Mine(x=[array()])", "data['x'][0][9] += 1", "data['x'][0].sum()"),
    "user list": ("data = MyList([array()])", "data[0][9] += 1", "data[0].sum()"),
    "bunch": (
        "from sklearn.utils import Bunch\ndata = Bunch(x=array(), inner=Bunch(y=array()))",
        "data.inner.y[9] += 1",
        "data.inner.y.sum()",
    ),
    "frame": (
        "import pandas\ndata = pandas.DataFrame({'a': array(), 'b': [text(i) for i in range(50_000)]})",
        "data.loc[9, 'b'] = 'other'",
        "data.a.sum(), data.b.sum()",
    ),
    "series": ("import pandas\ndata = pandas.Series(array())", "data[9] = 1", "data.sum()"),
    "images": (
        "from PIL import Image\ndata = [Image.fromarray(array().view(np.uint8).reshape(400, 1000))]",
        "data[0].putpixel((3, 4), 5)",
        "data[0].tobytes()",
    ),
    "tokens": ("data = [seed + i for i in range(50_000)]", "data[9] = 1.0 * data[9]", "data[:20], sum(data)"),
    "sentences": (
        "data = {'train': [[i + seed] * 20 for i in range(9000)]}",
        "data['train'][7][3] = 8",
        "sum(map(sum, data['train']))",
    ),
    "samples": ("data = [(text(i), i) for i in range(9000)]", "data[7] = ('', 3)", "sum(i for _, i in data)"),
    "vocabulary": ("data = {text(i): i for i in range(20_000)}", "data[text(3)] = 7", "sum(data.values())"),
}  # fmt: skip


def made(folder, case, at, seed=0):
    setup, change, told = case
    folder.mkdir(exist_ok=True)
    (folder / "seed.txt").write_text(f"{seed}")
    (folder / "program.py").write_text(PROGRAM.format(setup=setup, change=change, told=told, at=at))
    return folder / "program.py"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_unchanged_data_is_not_stored_and_another_setup_is_noticed(tmp_path, case):
    program = made(tmp_path / "form", case, at=9)
    whole = run(program, save_at=range(1, 9))
    assert (whole.error, whole.notes) == ("", [])
    assert len(whole.checkpoints[2]) < 50_000
    resumed = run(program, checkpoint=whole.checkpoints[2])
    assert (resumed.error, resumed.printed, resumed.values) == ("", whole.printed, whole.values)
    made(tmp_path / "form", case, at=9, seed=1)
    assert "was made with other contents after the restart" in run(program, checkpoint=whole.checkpoints[2]).error


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_data_that_the_training_changes_in_place_is_saved(tmp_path, case):
    program = made(tmp_path / "form", case, at=1)
    whole = run(program, save_at=range(1, 9))
    assert (whole.error, whole.notes) == ("", [])
    for head in 2, 3:
        resumed = run(program, checkpoint=whole.checkpoints[head])
        assert (resumed.error, resumed.printed, resumed.values) == ("", whole.printed, whole.values)


WRITES = {
    "version": "data[9] = 1",
    "data": "data.data[9] = 1",
    "numpy": "data.numpy()[9] = 1",
    "storage": "data.untyped_storage()[9] = 1",
    "view": "data[3:12].mul_(2)",
    "detached": "data.detach()[9] = 1",
}


@pytest.mark.parametrize("change", WRITES.values(), ids=WRITES)
def test_any_write_to_a_large_tensor_is_noticed(tmp_path, change):
    setup = "data = torch.rand(500_000, generator=torch.Generator().manual_seed(seed))"
    program = made(tmp_path / "form", (setup, change, "data.sum().item()"), at=2)
    whole = run(program, save_at=range(1, 9))
    assert len(whole.checkpoints[1]) < 50_000 < 2_000_000 <= len(whole.checkpoints[3])
    for head in 2, 3:
        resumed = run(program, checkpoint=whole.checkpoints[head])
        assert (resumed.error, resumed.printed) == ("", whole.printed)


def test_a_large_tensor_is_not_digested_again_while_torch_counts_no_write():
    known, data = Versions(counted=True), torch.ones(9)
    known.put(data, "a")
    assert known.digest(data) == "a"
    data.mul_(1)
    assert known.digest(data) is None
    known.put(data, "b")
    assert known.digest(data.clone()) is None
    data.numpy()
    assert known.digest(data) is None


def test_a_list_of_an_unchanged_corpus_stays_the_one_that_a_name_refers_to(tmp_path):
    setup = "corpus = [[i + seed] * 20 for i in range(9000)]\nnames = []"
    change = "sentence = corpus[8]\n    if step == 3:\n        sentence.append(5)"
    program = made(tmp_path / "form", (setup, change, "len(corpus[8]), sentence is corpus[8]"), at=1)
    whole = run(program, save_at=range(1, 9))
    assert whole.printed.startswith("(21, True)")
    assert len(whole.checkpoints[3]) < 50_000
    resumed = run(program, checkpoint=whole.checkpoints[3])
    assert (resumed.error, resumed.printed) == ("", whole.printed)


def test_a_corpus_that_holds_a_list_twice_is_no_tree():
    twice = [0]
    assert large_tree([[1] * 3000, twice, [twice]], None) is None
    assert large_tree([[1] * 3000, (), ((), ())], None) is not None
    assert large_tree({("a", 1): [1] * 3000}, None) is not None
    assert large_tree([[1] * 3000, {1}], None) is None


MAPPED = ("data = np.memmap('data.bin', mode='r', dtype=np.float32, offset=8)[5:]", "pass", "data.sum(), type(data)")


def test_a_file_that_is_mapped_read_only_is_mapped_again(tmp_path):
    program = made(tmp_path / "form", MAPPED, at=9)
    data = np.random.default_rng(0).random(50_000, np.float32)
    data.tofile(program.parent / "data.bin")
    whole = run(program, save_at=range(1, 9))
    assert len(whole.checkpoints[2]) < 50_000
    assert pickle.loads(whole.checkpoints[2])[0] == 2
    for _ in "as it was", "written anew with the same content":
        resumed = run(program, checkpoint=whole.checkpoints[2])
        assert (resumed.error, resumed.printed) == ("", whole.printed)
        data.tofile(program.parent / "data.bin")
        os.utime(program.parent / "data.bin", (1, 1))
    (data + 1).tofile(program.parent / "data.bin")
    assert "has changed since the checkpoint" in run(program, checkpoint=whole.checkpoints[2]).error
