"""Test which loops of a program are found to train, and their nesting."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.script.loops import summary, training_loops

MADE = "net = Net(); opt = Adam(net.parameters())"
COPY = "net = deepcopy(base); opt = Adam(net.parameters())"


def found(source, **modules):
    loops = training_loops(ast.parse(source), {name: ast.parse(text) for name, text in modules.items()})
    return [(each.module, each.line, each.depth) for each in loops]


NESTED = """
for epoch in range(3):
    for x, y in loader:
        loss(model(x), y).backward()
    for x, y in validation:
        score(model(x), y)
"""
FUNCTIONS = """
def train_epoch(loader):
    for x in loader:
        model(x).backward()
def evaluate(loader):
    for x in loader:
        model(x)
def main():
    for epoch in range(3):
        train_epoch(loader)
        evaluate(loader)
if __name__ == "__main__":
    main()
"""
TRAINER = """
class Trainer:
    def fit(self, epochs):
        while self.epoch < epochs:
            self.run_epoch()
    def run_epoch(self):
        for batch in self.loader:
            self.step(batch)
    def step(self, batch):
        self.model(batch).backward()
Trainer().fit(3)
"""
FOLDS = """
for fold in folds:
    for epoch in range(3):
        for x in fold:
            model(x).backward()
"""
CLOSURE = """
for step in range(9):
    def closure():
        loss = model(x)
        loss.backward()
        return loss
    optimizer.step(closure)
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (NESTED, [("", 2, 0), ("", 3, 1)]),
        (FUNCTIONS, [("", 3, 1), ("", 9, 0)]),
        (TRAINER, [("", 4, 0), ("", 7, 1)]),
        (CLOSURE, [("", 2, 0)]),
        ("def f(n):\n    for x in n:\n        x.backward()\n        f(x)\nf(3)", [("", 2, 0)]),
        ("while step(x) > 1:\n    pass\ndef step(x):\n    x.backward()", [("", 1, 0)]),
        ("def unused():\n    for x in y:\n        x.backward()", []),
        ("for x in y:\n    def f():\n        x.backward()", []),
        ("for x in y:\n    model.fit(x)", []),
        ("with a:\n    try:\n        for x in y:\n            x.backward()\n    finally:\n        pass", [("", 3, 0)]),
    ],
)
def test_loops_train_where_their_bodies_reach_backward(source, expected):
    assert found(source) == expected


def test_loops_in_modules_of_the_project_train():
    engine = "def epoch(loader):\n    for x in loader:\n        x.backward()"
    source = "import engine\nfor number in range(3):\n    engine.epoch(loader)"
    assert found(source, engine=engine) == [("", 2, 0), ("engine", 2, 1)]


def test_a_loop_in_the_body_of_a_class_runs_without_checkpoints():
    loops = training_loops(ast.parse("class Net:\n    for x in y:\n        x.backward()\nNet()"))
    assert [(each.line, each.saved) for each in loops] == [(2, False)]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("train(1)", 1),
        ("if a: train(1)", 1),
        ("train(1); train(2)", 2),
        ("losses = [train(rate) for rate in rates]", 2),
        ("study.optimize(train)", 2),
        ("def main(): train(1)\nmain()", 1),
        ("def main(): train(1)\nmain(); main()", 2),
        ("def main(n): train(1); main(n - 1)\nmain(9)", 2),
        ("for rate in rates: train(rate)", 0),
        ("for rate in rates: train(rate)\ntrain(1)", 1),
    ],
)
def test_how_often_a_loop_may_run_outside_of_others(calls, expected):
    loops = training_loops(ast.parse(f"def train(rate):\n    for x in data: model(x).backward()\n{calls}"))
    assert loops[0].outside == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (NESTED, "epochs in line 2, batches in line 3"),
        ("for x in y:\n    x.backward()", "steps in line 1"),
        (FOLDS, "rounds in line 2, epochs in line 3, batches in line 4"),
        (f"for fold in folds:\n  {MADE}\n  for x in y: net(x).backward()", "rounds in line 1, steps in line 3"),
        (NESTED + NESTED, "epochs in lines 2 and 8, batches in lines 3 and 9"),
    ],
)
def test_the_summary_says_where_the_loops_are(source, expected):
    assert summary(training_loops(ast.parse(source))) == expected


def rounds(program: str) -> list[str]:
    """Return the first lines of the loops of a program that have trainings for iterations."""
    lines = program.replace("EPOCHS", "while go(): net(x).backward()").splitlines()
    loops = training_loops(ast.parse("\n".join(lines)))
    assert any(each.depth == 1 for each in loops)
    return [lines[each.line - 1] for each in loops if each.rounds]


@pytest.mark.parametrize(
    "program",
    [
        f"for fold in range(5):\n  {MADE}\n  EPOCHS",
        f"for seed in (1, 2):\n  {MADE}\n  for epoch in range(3):\n    EPOCHS",
        "for net in nets:\n  opt = SGD(net.parameters())\n  EPOCHS",
        "for number in range(2):\n  net = nets[number]; opt = SGD(net.parameters())\n  EPOCHS",
        "for start in range(3):\n  w = torch.randn(3, requires_grad=True); opt = SGD([w])\n  EPOCHS",
        "net = Net()\nfor fold in range(5):\n  net.load_state_dict(first); opt = SGD(net.parameters())\n  EPOCHS",
        "for fold in range(5):\n  net = Net().to(0); net = net.cuda(); opt = AdamW(groups(net.parameters()))\n  EPOCHS",
        "for fold in range(5):\n  net = copy.deepcopy(base); opt = SGD(net.parameters())\n  EPOCHS",
        "for fold in range(5):\n  net = deepcopy(base).to(dev)\n  opt = SGD(net.parameters())\n  EPOCHS",
        "for fold in range(5):\n  net.load_state_dict(deepcopy(first)); opt = SGD(net.parameters())\n  EPOCHS",
        f"for fold in range(5):\n  {MADE}; net.load_state_dict(base.state_dict())\n  EPOCHS",
        "def fit(a):\n  net = deepcopy(a); opt = SGD(net.parameters())\n  EPOCHS\nfor fold in range(2):\n  fit(base)",
        f"def main():\n  base = Net()\n  for fold in range(2):\n    {COPY}\n    EPOCHS\nmain()",
        f"def run(seed):\n  {MADE}\n  EPOCHS\nwhile more():\n  run(0)",
        "def fit(net):\n  opt = SGD(net.parameters())\n  EPOCHS\nfor fold in range(2):\n  fit(net=Net())",
        "def make(): net = Net(); return net, SGD(net.parameters())\nfor fold in range(2):\n  a, b = make()\n  EPOCHS",
        """
class Trainer:
  def __init__(self, net):
    self.net = net
    self.opt = SGD(self.net.parameters())
  def fit(self):
    EPOCHS
for fold in range(2):
  trainer = Trainer(Net())
  trainer.fit()""",
    ],
)
def test_a_loop_that_makes_what_its_inner_loop_trains_has_trainings_for_iterations(program: str):
    (line,) = rounds(program)
    assert line.strip().startswith(("for", "while more"))


@pytest.mark.parametrize(
    "program",
    [
        f"{MADE}\nfor epoch in range(5):\n  EPOCHS",
        f"for epoch in range(9):\n  {MADE}\n  net(x).backward()\n  EPOCHS",
        "net = Net()\nfor epoch in range(5):\n  opt = SGD(net.parameters(), lr=lr(epoch))\n  EPOCHS",
        f"for task in tasks:\n  {COPY}\n  EPOCHS\n  move(base, net)",
        f"for task in tasks:\n  {COPY}\n  EPOCHS\n  base = mean(base, net)",
        f"for round in range(9):\n  for client in clients:\n    {COPY}\n    EPOCHS\n  base.load_state_dict(mean)",
        f"def fit(base):\n  {COPY}\n  EPOCHS\nfor round in range(2):\n  fit(whole)\n  mix(whole)",
        "while go():\n  net.load_state_dict(deepcopy(best)); opt = SGD(net.parameters())\n  EPOCHS\n  best = net()",
        "for stage in range(3):\n  net = deepcopy(net); opt = SGD(net.parameters())\n  EPOCHS",
        f"for task in tasks:\n  {MADE}; net.load_state_dict(meta.state_dict())\n  EPOCHS\n  meta_opt.step()",
        "for x in data:\n  noise = zeros(3); opt = SGD([noise])\n  EPOCHS\n  net(x + noise).backward(); own.step()",
        "def make(net): return SGD(net.parameters())\nnet = Net()\nfor epoch in range(2):\n  opt = make(net)\n  EPOCHS",
        "for fold in range(5):\n  net = net.to(dev); opt = SGD(net.parameters())\n  EPOCHS",
    ],
)
def test_a_loop_that_goes_on_with_what_it_trains_has_epochs_or_steps_for_iterations(program: str):
    assert not rounds(program)
