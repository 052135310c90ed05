"""Test which local variables of a `train(run)` are found that it carries from step to step."""

from __future__ import annotations

import linecache

import pytest

from kernel_backend.runner.external_loop.loop_variables import carried_variables

PROGRAM = """
class Meter:
    def __init__(self): self.mean = 0
    def add(self, value): self.mean += value
class Settings:
    def __init__(self): self.rate = 0
def train(run, rate=0.1):
    net = optimizer = object()
    seen, mean, losses, kept, best = 0, None, [], {"steps": 0}, 0.0
    meter, settings = Meter(), None
    own = Meter()
    fixed = Settings()
    run.restore(model=net, kept=kept)
    for epoch in run.epochs():
        total, count = 0.0, 0
        for number, (x, y) in enumerate(run.loader(DATA)):
            loss = net(x)
            STEP
            run.report(loss=loss)
        right = 0
        for x, y in run.loader(DATA, validation=True):
            right += x
        EPOCH
"""
CARRIED = {
    ("seen += 1", ""): ["seen"],
    ("mean = loss if mean is None else 0.9 * mean + loss", ""): ["mean"],
    ("total += loss; count += 1", "run.report(total=total / count)"): ["count", "total"],
    ("losses.append(loss)", ""): ["losses"],
    ("kept['steps'] += 1", ""): [],
    ("own.add(loss)", ""): ["own"],
    ("print(fixed.rate, rate)", ""): [],
    ("", "if right > best: best = right"): ["best"],
    ("best = loss; print(best)", ""): [],
    ("", "seen = right; print(seen)"): [],
    ("print([seen for seen in losses])", ""): [],
    ("optimizer.zero_grad(); loss.backward(); optimizer.step()", ""): [],
}


@pytest.mark.parametrize(("lines", "expected"), CARRIED.items(), ids=map(str, CARRIED))
def test_what_a_loop_carries_from_step_to_step_is_found(lines, expected):
    source = PROGRAM.replace("STEP", lines[0] or "pass").replace("EPOCH", lines[1] or "pass")
    file = f"/program/{abs(hash(source))}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    held = {"__name__": "program"}
    exec(compile(source, file, "exec"), held)
    assert carried_variables(held["train"]) == expected
