"""Test the warnings, with name and line, about code that keeps a program from resuming exactly."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.script.loops import training_loops
from kernel_backend.definition.script.signs import presumed, signs
from tests.support.programs import PROGRAMS

# All others of the corpus are presumed exact to the step.
LOWER = {
    "class_body": "presumed from the start, with the same bits: "
    "a training loop in the body of a class or a coroutine is not saved, line 11",
    "thread_queue": "presumed exact to the epoch: worker = Thread(...) is a thread next to the loop, line 22",
    "time_seed": "presumed exact to the step, with other bits in each run: "
    "torch.manual_seed(seed) has another seed each time, line 7",
    "weakrefs": "presumed from the start, with the same bits: id(s) is another number after a restart, line 20",
    "worker_process": "presumed from the start, with the same bits: "
    "process = Process(...) is a process next to the loop, line 20",
}


def found(source: str, **modules: str) -> str:
    tree, others = ast.parse(source), {name: ast.parse(text) for name, text in modules.items()}
    return presumed(signs(tree, training_loops(tree, others), others))


@pytest.mark.parametrize("name", PROGRAMS)
def test_signs_in_the_corpus(name):
    assert found(PROGRAMS[name].read_text()) == LOWER.get(name, "presumed exact to the step")


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("rng = np.random.default_rng()", "rng = default_rng() has no seed"),
        ("rng = np.random.default_rng(seed=None)", "rng = default_rng() has no seed"),
        ("np.random.seed()", "seed() has no seed"),
        ("self.dice = random.SystemRandom()", "SystemRandom() has no seed"),
        ("torch.seed()", "seed() has no seed"),
        ("seed_everything(int(time.time()))", "seed_everything(int(time.time())) has another seed each time"),
        ("s = time.time_ns() % 7; torch.manual_seed(s)", "torch.manual_seed(s) has another seed each time"),
        ("random.seed(os.urandom(8))", "random.seed(os.urandom(8)) has another seed each time"),
        ("g = Random(uuid.uuid4().int)", "g = Random(uuid.uuid4().int) has another seed each time"),
    ],
)
def test_what_differs_in_each_process(line, sign):
    head = "import os, random, time, torch, uuid; import numpy as np; from random import Random"
    source = f"{head}\n{line}\nfor x in data: loss(x).backward()"
    assert found(source) == f"presumed exact to the step, with other bits in each run: {sign}, line 2"


@pytest.mark.parametrize(
    "line",
    [
        "rng = np.random.default_rng(3)",
        "torch.manual_seed(args.seed)",
        "started = time.time()",
        "name = f'run-{uuid.uuid4()}'",
        "seed = 4; torch.manual_seed(seed)",
        "time = nn.Embedding(4, 2); seed_everything(time)",
    ],
)
def test_what_is_alike_in_each_process(line):
    head = "import torch, uuid; import numpy as np" + ("" if line.startswith("time =") else ", time")
    assert found(f"{head}\n{line}\nfor x in data: loss(x).backward()") == "presumed exact to the step"


def test_a_loop_that_ends_by_the_clock():
    source = "import time\nend = time.time() + 60\nwhile time.time() < end: loss().backward()"
    said = "while time.time() < end ends by the clock, line 3"
    assert found(source) == f"presumed exact to the step, with other bits in each run: {said}"


def test_a_thread_before_the_loop_cannot_be_started_at_an_epoch():
    source = "from threading import Thread\nThread(target=fill).start()\nfor x in q: loss(x).backward()"
    assert found(source).startswith("presumed from the start, with the same bits: Thread(...) is a thread")


def test_the_worst_sign_of_all_modules_counts():
    source = "import data, threading\nfor epoch in range(3):\n    t = threading.Thread()\n    loss(data.x).backward()"
    assert found(source, data="from random import seed\nseed()").endswith("seed() has no seed, line 2 of data")
