"""Test that with logical workers the bits are the same on 1, 2 and 4 slots, and after a change of their number."""

from __future__ import annotations

import pytest
from gang import Trial

pytestmark = pytest.mark.distributed

FOUR = {"logical_workers": 4}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Provide the standard training with four logical workers in one process."""
    trial = Trial(tmp_path_factory.mktemp("alone") / "trial", slots=1, options=FOUR)
    attempt = trial.run()
    assert attempt.codes == [0], attempt.logs()
    assert (
        attempt.started.guarantee
        == "reproducible: a kill changes no bit of the result, on any number of slots and this kind of CPU"
    )
    return trial, attempt


@pytest.mark.parametrize(
    ("slots", "backend"), [(2, "horovod"), (2, "torch"), (4, "horovod"), (4, "torch"), (3, "torch")]
)
def test_any_number_of_slots_gives_the_bits_of_one(alone, trial, slots, backend):
    expected, attempt = alone
    several = trial(slots=slots, backend=backend, options=FOUR)
    ran = several.run()
    assert ran.codes == [0] * slots, ran.logs()
    assert several.parts() == expected.parts()
    assert ran.reports("validation") == attempt.reports("validation")
    assert ran.reports("training") == attempt.reports("training")


def test_a_training_that_changes_its_slots_in_mid_epoch_keeps_its_bits(alone, trial):
    expected, attempt = alone
    changing = trial(slots=4, options=FOUR, params={"pause": 0.03})
    resumed = None
    for slots in (4, 1, 2):
        changing.slots = slots
        if slots != 2:
            began = int(resumed.split("-")[0]) if resumed else 0
            ran = changing.start(resumed, hold=3).reaches(began + 3).terminate(rank=0).go().ended()
            assert set(ran.codes) == {85}, ran.logs()
            resumed = changing.newest().id
            assert int(resumed.split("-")[0]) % 6, "in mid-epoch"
        else:
            ran = changing.run(resumed)
            assert ran.codes == [0, 0], ran.logs()
        assert ran.notes() == []
    assert changing.parts() == expected.parts()
    assert ran.reports("validation")[12] == attempt.reports("validation")[12]
