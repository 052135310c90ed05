"""Test that borrowed slots are reclaimed from a real gang, which later resumes without any difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.definition.script.parts import PROGRAM
from kernel_backend.scheduler.rules import Rules
from tests.support.shared_cluster import BORROWS, OWNS, Lent
from tests.support.submitted import submit_program
from tests.support.world import gone, until

pytestmark = pytest.mark.distributed

TRAINING = {"epochs": 4, "checkpoint_every": {"steps": 4}}  # of 8 steps
GRACE_S = 15.0  # in which ranks can save and go on a machine that is busy


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lent]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAYLIGHT_SLOTS", "2")
        made = Lent(tmp_path_factory.mktemp("lent"), Rules(min_run=0.0, grace=GRACE_S))
        yield made
        made.close()


@pytest.fixture(scope="module")
def undisturbed(lent: Lent) -> dict[str, str]:
    number = lent.asks(BORROWS, **TRAINING)
    assert lent.ended(number).state == "completed"
    return lent.weights(number)


def test_a_borrower_saves_and_goes_for_a_guarantee_and_comes_back_with_the_same_bits(
    lent: Lent, undisturbed: dict[str, str]
) -> None:
    borrower = lent.lasting(group=BORROWS, backend="torch", **TRAINING)
    queued_at = lent.checkpointed(borrower).trials[0].queued_at
    owner = lent.lasting(group=OWNS, backend="torch")
    lent.reached(owner, 1)
    waits = until(lambda: (found := lent.overview(borrower)).wait and found, "the borrower waits")
    assert waits.state == "queued"
    assert waits.trials[0].queued_at == queued_at
    first = waits.attempts[0]
    assert first.outcome == "released"
    assert any("was preempted: #" in each and "is within a guarantee" in each for each in waits.warnings)
    lent.hurry(owner)
    assert lent.ended(owner).state == "completed"
    lent.hurry(borrower)
    after = lent.ended(borrower)
    assert (after.state, after.trials[0].attempt, after.trials[0].failures) == ("completed", 2, 0)
    assert after.attempts[1].resume_from is not None
    assert lent.weights(borrower) == undisturbed


@pytest.mark.long
def test_a_borrower_that_does_not_answer_is_killed_after_the_grace_and_loses_what_came_after_its_checkpoint(
    lent: Lent, undisturbed: dict[str, str]
) -> None:
    borrower = lent.lasting(group=BORROWS, backend="torch", **TRAINING)
    lent.checkpointed(borrower)
    frozen = list(lent.ranks().values())
    for rank in frozen:
        rank.suspend()
    owner = lent.asks(OWNS, epochs=1)
    assert lent.ended(owner).state == "completed"
    assert all(gone(rank) for rank in frozen)
    lent.hurry(borrower)
    after = lent.ended(borrower)
    assert [attempt.outcome for attempt in after.attempts] == ["lost", "ok"]
    assert (after.state, after.trials[0].failures) == ("completed", 0)
    assert after.attempts[1].resume_from is not None
    assert lent.weights(borrower) == undisturbed


SCRIPT = """
import os, time
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(4):
    for _ in range(8):
        time.sleep(0.0 if os.path.exists("HURRY") else 0.5)
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item()!r}", flush=True)
"""


@pytest.mark.long
def test_a_training_loop_that_is_preempted_goes_on_to_the_bits_and_the_log_of_an_undisturbed_run(
    lent: Lent, tmp_path: Path
) -> None:
    hurry = tmp_path / "hurry"
    source = SCRIPT.replace("HURRY", str(hurry))
    line = f"--group={BORROWS}", "--checkpoint-every=4steps", "--", "python", "train.py"
    borrower = submit_program(lent, tmp_path / "code", source, *line)
    lent.checkpointed(borrower)
    owner = lent.lasting(group=OWNS, backend="torch")
    lent.reached(owner, 1)
    first = until(lambda: (found := lent.overview(borrower)).wait and found, "the borrower waits").attempts[0]
    assert first.outcome == "released"
    hurry.touch()
    lent.hurry(owner)
    after = lent.ended(borrower)
    assert (after.state, after.trials[0].attempt, after.trials[0].failures) == ("completed", 2, 0)
    assert after.attempts[1].resume_from is not None
    alone = submit_program(lent, tmp_path / "code", source, "--again", *line)
    assert lent.ended(alone).state == "completed"
    assert lent.weights(borrower)[PROGRAM] == lent.weights(alone)[PROGRAM]
    log = "attempts/{}.1-{}/rank-0.log"
    assert (lent.home / log.format(borrower, 2)).read_text() == (lent.home / log.format(alone, 1)).read_text()
