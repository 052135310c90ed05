"""Test that a restart is rehearsed during the training, and that its result becomes the guarantee."""

from __future__ import annotations

import os
import signal
import time
import uuid

import pytest

from kernel_backend.model.reports import Guarantee, Note

pytestmark = pytest.mark.distributed

PATIENCE_S = 800  # up to three processes import torch, one after the other, at a low priority

# Long enough for a second process to import torch on a busy machine; killed once the verdict is there.
PROGRAM = """
import os, time, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters())
seen = []
for epoch in range(10**6):
    for _ in range(20):
        time.sleep(0.02)
        loss = model(torch.randn(4, 8)).pow(2).mean() + COUNTED
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen = [*seen[-9:], loss.item()]
"""
OUTSIDE = """
def counted():
    os.environ["COUNT"] = str(int(os.environ.get("COUNT", "0")) + 1)
    return int(os.environ["COUNT"])
"""


def verdict(trial, source: str, **settings: str) -> tuple[str, list[str]]:
    """Return the last rehearsed guarantee of a training, and its checkpoints."""
    uid = uuid.uuid4().hex
    one = trial(source=source, slots=1, epochs=10**6, options={"rehearse": True}, uid=uid, **settings)
    attempt = one.start()

    def said() -> list[str]:
        return [each.text for each in attempt.records if isinstance(each, Guarantee)]

    try:
        deadline = time.monotonic() + PATIENCE_S
        while not any(not each.startswith("presumed") for each in said()):
            assert time.monotonic() < deadline, attempt.logs()
            assert attempt.codes in ([], [None]), attempt.logs()
            assert not [each.text for each in attempt.records if isinstance(each, Note) and "rehears" in each.text]
            time.sleep(0.1)
        assert attempt.started.guarantee == "presumed exact to the step"
        return said()[-1], [each.id for each in one.home.committed()]
    finally:
        for pid in attempt.pids():
            os.kill(pid, signal.SIGKILL)
        attempt.ended()


def test_a_program_that_goes_on_exactly_is_exact_to_the_step(trial):
    text, checkpoints = verdict(trial, PROGRAM.replace("COUNTED", "0"))
    assert text.startswith(
        "exact to the step: a kill changes no bit of the result, on 1 slot and this kind of CPU; rehearsed at steps "
    )
    assert checkpoints


@pytest.mark.long
def test_a_checkpoint_is_rehearsed_though_newer_ones_have_replaced_it(trial):
    text, _ = verdict(trial, PROGRAM.replace("COUNTED", "0"), every="1steps")
    assert text.startswith(
        "exact to the step: a kill changes no bit of the result, on 1 slot and this kind of CPU; rehearsed at steps "
    )


def test_a_program_with_state_outside_of_its_names_begins_anew(trial):
    text, checkpoints = verdict(trial, OUTSIDE + PROGRAM.replace("COUNTED", "counted()"))
    assert text.startswith("from the start, with the same bits: ")
    assert "after a restart, at step " in text
    assert checkpoints == []  # those that nothing could go on from are set aside
