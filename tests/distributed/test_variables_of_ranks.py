"""Test that ranks keep their own variables for rank and peers if a definition sets these."""

from __future__ import annotations

import pytest
from gang import DIGITS

pytestmark = pytest.mark.distributed

# As notebooks have them that try torch.distributed by themselves.
SET = """
import os
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="nowhere.invalid", MY_DATA="x")
os.environ["WANDB_MODE"] = "offline"
assert os.environ["WORLD_SIZE"] == "1"
"""
ASKED = """
    assert (world, os.environ["WORLD_SIZE"], os.environ["MY_DATA"]) == (2, "2", "x")
    assert os.environ["WANDB_MODE"] == ("disabled" if rank else "offline")
    stand()
"""


def test_a_gang_trains_as_one_whatever_a_cell_says_about_ranks(trial):
    source = SET + DIGITS.replace("    stand()\n", ASKED).replace(
        "def loss(output, target,", "def loss(output, target, rank, world,"
    )
    ran = trial(source=source, epochs=1).run()
    assert ran.codes == [0, 0], ran.logs()
    assert [each for each in ran.notes() if "MASTER_ADDR, WORLD_SIZE" in each] == [
        "the cells set MASTER_ADDR, WORLD_SIZE, which tell each rank its place: the job goes on with its launcher's"
    ]
