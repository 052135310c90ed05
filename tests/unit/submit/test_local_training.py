"""Test that `--local` trains in this process, and restores the process's state."""

from __future__ import annotations

import random
import sys
import traceback
from pathlib import Path

import pytest
import torch

from jupyter_ext.capture import capture_file
from jupyter_ext.submit.local import train_locally
from jupyter_ext.submit.submit import check, read
from kernel_backend.artifacts.run import run
from kernel_backend.errors import InvalidRequest
from kernel_backend.spec.option_parser import OptionParser, add_options

CELL = """
import torch
from torch import nn
taken = []
def data(): return [(torch.full((1,), index / 8), torch.ones(1)) for index in range(8)]
def train_data(data): return data
def validation_data(data): return data
def model(): return nn.Linear(1, 1)
def optimizer(params, lr=0.5): return torch.optim.SGD(params, lr=lr)
def loss(output, target, fails=0):
    taken.append(len(taken))
    if len(taken) == fails:
        raise KeyboardInterrupt if fails == 3 else ZeroDivisionError("of mine")
    return (output - target).square().mean()
"""
LOOP = """
import torch
def train(run, lr=0.1):
    model = torch.nn.Linear(1, 1)
    run.restore(model=model)
    for step in run.steps(3):
        run.report(loss=float(step))
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def trained(line: str, source: str = CELL):
    Path("train.py").write_text(source)
    parser = OptionParser()
    add_options(parser, "notebook")
    asked = read(parser.parse_mixed(line.split()))
    path = Path("train.py")
    capture = capture_file(path)
    return train_locally(check(capture, asked.given, asked.wanted, path, space=asked.space, config=asked.config), asked)


def test_a_definition_trains_here_and_gives_its_model(capsys):
    modules, path, threads, before = set(sys.modules), list(sys.path), torch.get_num_threads(), dict(vars(run))
    torch.manual_seed(1)
    random.seed(1)
    states = torch.get_rng_state(), random.getstate()
    net = trained("--epochs 20 --batch-size 4")
    printed = capsys.readouterr().out
    assert "validation at step 40 (epoch 20): loss" in printed
    assert net(torch.ones(1)).item() == pytest.approx(1, abs=0.3)
    assert not net.training
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (path, threads, before) == (sys.path, torch.get_num_threads(), dict(vars(run)))
    assert "definition" not in set(sys.modules) - modules


def test_a_loop_trains_here_and_gives_its_model(capsys):
    assert isinstance(trained("", LOOP), torch.nn.Linear)
    assert "training at step 3" in capsys.readouterr().out


def test_an_error_keeps_its_traceback_and_names_the_line():
    with pytest.raises(ZeroDivisionError, match="of mine") as error:
        trained("fails=2")
    told = "".join(traceback.format_exception(error.value))
    assert 'raise KeyboardInterrupt if fails == 3 else ZeroDivisionError("of mine")' in told
    assert "raised in train.py line 13" in told


def test_an_interrupt_gives_the_model_as_it_is(capsys):
    assert isinstance(trained("--batch-size 2 --epochs 9 fails=3"), torch.nn.Linear)
    assert "interrupted at step 2" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["--slots 2", "--search grid lr=0.1,0.2", "--from 3", "--max-time 8h"])
def test_what_needs_a_job_is_refused(line):
    with pytest.raises(InvalidRequest, match="--local trains once, in this process: leave --"):
        trained(line)


def test_remote_data_at_a_path_is_refused_as_the_folder_is_the_users_own(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a").write_text("a")
    data = f"./pictures=file://{tmp_path}/images"
    with pytest.raises(InvalidRequest, match=rf"leave --data {data} out, or leave --local out"):
        trained(f"--data {data}", f"where = 'pictures/a'\n{CELL}")
