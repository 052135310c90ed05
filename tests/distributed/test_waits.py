"""Test that ranks that wait for another one leave the processor to it."""

from __future__ import annotations

import re

import pytest
from gang import DIGITS, Trial

pytestmark = pytest.mark.distributed

WAIT_S = 2.0
# In the fourth step, rank 0 is late. Each rank prints the processor time of its main thread at the begin of its steps.
LATE = DIGITS.replace(
    "    stand()\n",
    f"""    if torch.is_grad_enabled():
        stand()
        print("began at", time.thread_time())
        if taken == 4 and os.environ["RANK"] == "0":
            time.sleep({WAIT_S})
""",
    1,
)


def test_a_rank_waits_for_a_late_one_without_occupying_a_core(trial):
    late: Trial = trial(backend="horovod", source=LATE)
    ran = late.run()
    assert ran.codes == [0, 0], ran.logs()
    began = [float(each) for each in re.findall(r"began at (\S+)", (ran.folder.path / "rank-1.log").read_text())]
    assert len(began) == 12
    assert began[4] - began[3] < WAIT_S / 4
