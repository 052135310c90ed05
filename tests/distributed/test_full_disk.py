"""Test that a full disk costs checkpoints, but never ends the training."""

from __future__ import annotations

import pytest

from tests.support.disks import small_disk

pytestmark = pytest.mark.distributed


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 2**20) as mounted:
        yield mounted


def test_training_goes_on_over_a_full_disk_and_says_at_the_end_that_its_result_is_not_saved(disk, trial):
    # About 0.35 MB a checkpoint: two fit, the third does not.
    tight = trial(params={"width": 1300}, every="2steps", checkpoints=disk)
    ran = tight.run()
    assert ran.codes[0] == 1
    assert sorted(ran.reports("validation")) == [6, 12]
    first = ran.notes()[0]
    assert first.startswith("checkpoint at step 6 could not be written: No space left on device (")
    assert first.endswith("training goes on")
    failure = ran.failures()[0]
    assert failure.type == "CheckpointFailed"
    assert "the last checkpoint, at step 12, could not be written to /" in failure.message
    assert ": No space left on device (" in failure.message
    assert failure.message.endswith("the newest is 4-1. Make room")
    assert ran.committed() == ["2-1", "4-1"]
    assert [manifest.id for manifest in tight.home.committed()] == ["2-1", "4-1"]
    tight.home.verify(tight.newest())
    assert sorted(path.name for path in disk.iterdir() if path.is_dir()) == ["2-1", "4-1"]
