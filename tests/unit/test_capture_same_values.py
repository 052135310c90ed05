"""A job sees what the kernel saw: each case is a history whose captured module is executed and compared."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ext.capture import Cell, capture_cell

USE = "def result(): return {}"
CASES: dict[str, tuple[list[str], str]] = {
    "the last definition wins": (["x = 1", "x = 2"], "x"),
    "an import": (["import math"], "math.pi"),
    "an import with another name": (["from os import path as p"], "p.join('a', 'b')"),
    "submodules of one package": (["import xml.dom", "import xml.sax"], "xml.dom.Node, xml.sax.parse"),
    "a submodule before a plain import": (["import xml.dom.minidom", "import xml"], "xml.dom.minidom.Node.TEXT_NODE"),
    "a function and what it reads": (["k = 3", "def f(x):\n    return x * k", "k = 4"], "f(2)"),
    "a value computed before its input changed": (["k = 3", "y = k * 2", "k = 100"], "y"),
    "a function used before its helper changed": (
        ["def g(): return 1", "def f(): return g()", "y = f()", "def g(): return 2"],
        "y, f()",
    ),
    "a helper defined after its user": (["def f(): return g()", "def g(): return 5"], "f()"),
    "a class that names a later one": (["class A:\n    def b(self): return B()", "class B:\n    v = 1"], "A().b().v"),
    "inheritance": (["class A: v = 1", "class B(A): pass", "class A: v = 2"], "B().v"),
    "an item set later": (["cfg = {'lr': 1}", "cfg['lr'] = 2"], "cfg"),
    "an attribute set later": (["class C: pass", "c = C()", "c.v = 3"], "c.v"),
    "a method that changes": (["xs = []", "xs.append(1)", "xs.extend([2, 3])"], "xs"),
    "a function that changes its argument": (["def add(xs): xs.append(9)", "xs = []", "add(xs)"], "xs"),
    "a function that only looks": (["def look(xs): return len(xs)", "xs = [1]", "look(xs)"], "xs"),
    "a loop that changes": (
        ["class P:\n    g = 1", "ps = [P(), P()]", "for p in ps:\n    p.g = 0"], "[p.g for p in ps]",
    ),
    "an alias": (["a = [1]", "b = a", "b.append(2)"], "a"),
    "an alias of a part": (["a = {'x': [1]}", "b = a['x']", "b.append(2)"], "a"),
    "a holder": (["a = [1]", "h = {'a': a}", "h['a'].append(2)"], "a"),
    "an object that holds another's parts": (
        ["class Net:\n    w = [1]\n    def parameters(self): return self.w",
         "class Opt:\n    def __init__(self, w): self.w = w\n    def step(self): self.w.append(2)",
         "net = Net()", "opt = Opt(net.parameters())", "opt.step()"],
        "net.w",
    ),
    "augmented assignment": (["n = 1", "n += 2", "n *= 3"], "n"),
    "augmented assignment through an alias": (["a = [1]", "b = a", "b += [2]"], "a"),
    "a tuple": (["a, (b, *c) = 1, (2, 3, 4)"], "a, b, c"),
    "with": (["import io\nwith io.StringIO('x') as f:\n    text = f.read()"], "text"),
    "a loop that binds": (["total = 0\nfor i in range(4):\n    total += i"], "total, i"),
    "a branch not taken keeps what was before": (["n = 1", "if False:\n    n = 2"], "n"),
    "both branches": (["import os\nif os.sep == '/':\n    n = 1\nelse:\n    n = 2"], "n"),
    "try": (["try:\n    import nothing_of_this_name as m\nexcept ImportError:\n    m = None"], "m"),
    "while": (["n = 0\nwhile n < 5:\n    n += 1"], "n"),
    "match": (["match 3:\n    case int(k):\n        pass"], "k"),
    "a walrus": (["if (n := 4) > 3:\n    pass"], "n"),
    "a global written by a function": (["n = 1\ndef up():\n    global n\n    n += 1", "up()", "up()"], "n"),
    "a registry filled by a decorator": (
        ["REG = {}\ndef register(name):\n    def put(f):\n        REG[name] = f\n        return f\n    return put",
         "@register('a')\ndef one(): return 1", "@register('b')\ndef two(): return 2"],
        "{name: f() for name, f in REG.items()}",
    ),
    "a registry filled by a method": (
        ["class Reg(dict):\n    def add(self, f):\n        self[f.__name__] = f\n        return f\nreg = Reg()",
         "@reg.add\ndef one(): return 1"],
        "sorted(reg)",
    ),
    "setattr": (["class C: pass", "setattr(C, 'v', 7)"], "C.v"),
    "a patched class": (["class C:\n    def f(self): return 1", "def g(self): return 2", "C.f = g"], "C().f()"),
    "a setting of a module": (["import random", "random.seed(3)", "x = random.random()"], "x"),
    "a patched module": (["import math", "math.tau2 = 5"], "math.tau2"),
    "two statements on a line": (["a = 1; b = 2"], "a + b"),
    "a comprehension keeps its own names": (["i = 7", "xs = [i for i in range(3)]"], "xs, i"),
    "a lambda": (["k = 2", "f = lambda x: x * k", "k = 5"], "f(1)"),
    "a default is read at once": (["k = 2", "def f(x=k): return x", "k = 5"], "f()"),
    "a decorator is run at once": (
        ["def d(f): return lambda: f() + 1", "@d\ndef f(): return 1", "def d(f): return f"], "f()",
    ),
    "a nested function": (["k = 1", "def outer():\n    def inner(): return k\n    return inner", "k = 2"], "outer()()"),
    "a closure's own name": (["k = 1", "def outer(k):\n    def inner(): return k\n    return inner"], "outer(9)()"),
    "a star import": (["from math import *"], "floor(pi)"),
    "a deleted item": (["d = {'a': 1, 'b': 2}", "del d['a']"], "d"),
    "a name redefined from itself": (["x = 1", "x = x + 1", "x = x * 10"], "x"),
    "a cell run twice": (["x = 1", "x = x + 1", "x = x + 1"], "x"),
    "a future import": (["from __future__ import annotations\ndef f(a: Nothing): return a"], "f(1)"),
    "text over several lines": (['t = """a\n# no comment\n  b"""'], "t"),
    "a class body that reads": (["k = 3", "class C:\n    v = k", "k = 4"], "C.v"),
    "keyword arguments": (["def fill(into, n): into['n'] = n", "d = {}", "fill(into=d, n=3)"], "d"),
    "a result kept in underscore": (["def fill(d): d['n'] = 1; return d", "d = {}", "_ = fill(d)"], "d"),
    "exploration in between": (["xs = [3, 1]", "print(len(xs))", "sorted(xs)", "ys = xs + [1]"], "xs"),
    "a class that extends itself": (["class A:\n    v = 1", "class A(A):\n    w = 2"], "A.v + A.w"),
    "a loop over itself": (["x = [1, 2]", "for x in x:\n    pass"], "x"),
    "a swap": (["a, b = [1], [2]", "a, b = b, a", "c = a", "c.append(3)"], "a, b"),
    "windows line ends": (["a = 1\r\nb = a + 1\r\n"], "b"),
}  # fmt: skip


def run(cells: list[str]) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells:
        exec(compile(cell, "cell", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("name", CASES)
def test_the_job_sees_what_the_kernel_saw(name: str):
    history, expression = CASES[name]
    target = USE.format(expression)
    kernel = run([*history, target])
    capture = capture_cell(history, target)
    assert capture.problems == ()
    job = run([capture.source])
    assert repr(job["result"]()) == repr(kernel["result"]()), capture.source


def test_exploration_stays_behind():
    history = ["x = 1", "import seaborn as sns", "sns.set()", "y = x + 1\nprint(y)", "z = [y] * 1000"]
    capture = capture_cell(history, USE.format("x"))
    assert capture.source == "# cell [1]\nx = 1\n\n# cell [6]\ndef result(): return x\n"


def test_a_shown_value_is_no_change():
    history = [Cell("xs = [1]"), Cell("f = print"), Cell("f(xs)", displayed=True), Cell("xs.append(2)", displayed=True)]
    source = capture_cell(history, USE.format("xs")).source
    assert "f(xs)" not in source
    assert "append" in source


def test_paths_and_variables_come_along_though_nothing_names_them():
    capture = capture_cell(["import sys", "sys.path.append('lib')", "import math"], USE.format("math.pi"))
    assert "sys.path.append('lib')" in capture.source


def test_a_failed_cell_gives_what_came_before_the_failure():
    history = [Cell("a = 1\nb = 1 / 0\nc = 3", error_line=2)]
    assert capture_cell(history, USE.format("a")).problems == ()
    (problem,) = capture_cell(history, USE.format("c")).problems
    assert "cell [1] did not come to" in problem.message


def test_a_required_argument_of_a_role_brings_the_function_of_that_name():
    history = ["def root(): return 'x'", "def dataset(root): return root", "def unused(): ..."]
    source = capture_cell(history, "def train_data(dataset): return dataset").source
    assert "def root" in source
    assert "def dataset" in source
    assert "unused" not in source


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_agree(seed: int):
    history = _random_history(seed)
    target = USE.format("[a, b, c, d]")
    kernel = run([*history, target])
    capture = capture_cell(history, target)
    assert repr(run([capture.source])["result"]()) == repr(kernel["result"]()), capture.source


def _random_history(seed: int) -> list[str]:
    import random

    draw = random.Random(seed)
    forms = [
        "{x} = [{n}]",
        "{x} = list({y})",
        "{x} = {y}",
        "{x}.append({n})",
        "{x} += [{n}]",
        "for i in range({n} % 3):\n    {x}.append(i)",
        "if {n} % 2:\n    {x} = {y} + [{n}]",
        "def f{n}(v=0):\n    {x}.append(v)\n    return {y}\nf{n}(5)",
        "def g{n}(v):\n    v.append({n})\ng{n}({x})",
        "h = {{'k': {x}}}\nh['k'].append({n})",
        "{x}, {y} = {y}, {x}",
        "try:\n    {x} = {y} + 1\nexcept TypeError:\n    {x}.append(0)",
    ]
    cells = [f"{name} = [0]" for name in "abcd"]
    for _ in range(25):
        x, y = draw.sample("abcd", 2)
        cells.append(draw.choice(forms).format(x=x, y=y, n=draw.randrange(9)))
    return cells
