"""Test that an experiment tracker in a definition creates one run, on any number of slots."""

from __future__ import annotations

import importlib.util

import pytest
from gang import DIGITS

pytestmark = pytest.mark.distributed

LOSS = "return nn.functional.cross_entropy(output, target)"
TRACKED = """
    value = nn.functional.cross_entropy(output, target)
    if torch.is_grad_enabled():
        writer.add_scalar("loss", value.item(), taken)
        writer.add_histogram("output", output.detach(), taken)
        writer.flush()
    return value
from tensorboardX import SummaryWriter
writer = SummaryWriter("runs")
print("wandb", os.environ.get("WANDB_MODE"), "writes to", writer.logdir)
"""


@pytest.mark.skipif(importlib.util.find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
def test_ranks_other_than_0_write_to_no_tracker(trial):
    trained = trial(source=DIGITS.replace(LOSS, TRACKED), epochs=1)
    ran = trained.run()
    assert ran.codes == [0, 0], ran.logs()
    (events,) = (trained.folder / "runs").iterdir()
    assert b"output" in events.read_bytes()
    said = [log.read_text() for log in sorted(ran.folder.path.glob("rank-*.log"))]
    assert "wandb None writes to runs" in said[0]
    assert "wandb disabled writes to runs" in said[1]
