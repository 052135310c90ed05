"""What the flags of a training do, in real gangs: schedules, averages, mixed precision, streams of random numbers."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

pytestmark = pytest.mark.distributed

COSINE = "def schedule(optimizer, steps): return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)\n"
PLATEAU = (
    "def schedule(optimizer): return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)\n"
)


def rates(trial: Trial) -> list[float]:
    """The learning rates in the newest checkpoint."""
    return [group["lr"] for group in trial.newest().state["optimizer"]["param_groups"]]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (DIGITS + COSINE, {"ema": 0.9, "amp": "fp16", "clip": 0.5}),
        (DIGITS + COSINE, {"amp": "bf16", "schedule_per": "epoch"}),
        (DIGITS + PLATEAU, {"rng": "stream"}),
        (DIGITS + COSINE, {"rng": "stream", "ema": 0.99}),
    ],
    ids=["all", "bf16", "plateau", "stream"],
)
def test_whatever_has_a_state_comes_back_with_the_same_bits(tmp_path, source, options):
    whole = Trial(tmp_path / "whole", source=source, options=options)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    killed = Trial(tmp_path / "killed", source=source, options=options, every="2steps", params={"pause": 0.03})
    killed.start().reaches(8).kill(1)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()
    for part in ("optimizer", "schedule", "scaler"):
        assert killed.newest().state.get(part) == whole.newest().state.get(part)
    assert second.reports("validation")[12] == ran.reports("validation")[12]


def test_a_cosine_schedule_ends_at_zero_and_averages_are_what_is_validated(tmp_path):
    plain = Trial(tmp_path / "plain", source=DIGITS + COSINE)
    averaged = Trial(tmp_path / "averaged", source=DIGITS + COSINE, options={"ema": 0.9})
    first, second = plain.run(), averaged.run()
    assert first.codes == second.codes == [0, 0], first.logs() + second.logs()
    assert rates(plain) == pytest.approx([0.0])
    assert plain.parts()["model"] == averaged.parts()["model"]
    assert first.reports("training") == second.reports("training")
    assert first.reports("validation")[12] != second.reports("validation")[12]
    assert "ema" in averaged.parts()


def test_steps_may_be_counted_instead_of_epochs(tmp_path):
    trial = Trial(tmp_path / "trial", options={"steps": 9})
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    assert (ran.started.total_steps, trial.newest().step, sorted(ran.reports("validation"))) == (9, 9, [6])


def test_the_best_checkpoint_stays_whatever_came_after_it(tmp_path):
    """The weights get worse by themselves: the first epoch's are the best."""
    source = DIGITS.replace("lr=1e-2", "lr=5.0")
    trial = Trial(tmp_path / "trial", source=source, epochs=5, options={"metric": {"name": "accuracy", "mode": "max"}})
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    accuracies = {step: values["accuracy"] for step, values in ran.reports("validation").items()}
    best = max(accuracies, key=lambda step: (accuracies[step], -step))
    kept = {manifest.step: manifest.metrics for manifest in trial.home.committed()}
    assert best in kept
    assert kept[best]["accuracy"] == accuracies[best]
    assert max(kept) == 30


def test_a_metric_that_nobody_reports_is_told(tmp_path):
    trial = Trial(tmp_path / "trial", epochs=1, options={"metric": {"name": "f1", "mode": "max"}})
    assert any(
        "--metric f1: the validation says nothing of that name, only loss accuracy" in n for n in trial.run().notes()
    )
