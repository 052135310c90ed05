"""Test options of a training in real gangs: schedules, weight averages, mixed precision, random streams."""

from __future__ import annotations

import pytest
import torch
from gang import DIGITS, Trial

pytestmark = pytest.mark.distributed

COSINE = "def schedule(optimizer, steps): return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)\n"
PLATEAU = (
    "def schedule(optimizer): return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)\n"
)


def rates(trial: Trial) -> list[float]:
    """Return the learning rates in the newest checkpoint."""
    return [group["lr"] for group in trial.newest().state["optimizer"]["param_groups"]]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (DIGITS + COSINE, {"ema": 0.9, "amp": "fp16", "clip": 0.5}),
        (DIGITS + COSINE, {"amp": "bf16", "schedule_per": "epoch"}),
        (DIGITS + PLATEAU, {"rng": "stream"}),
        pytest.param(DIGITS + COSINE, {"rng": "stream", "ema": 0.99}, marks=pytest.mark.long),
    ],
    ids=["all", "bf16", "plateau", "stream"],
)
def test_whatever_has_a_state_comes_back_with_the_same_bits(tmp_path, source, options):
    whole = Trial(tmp_path / "whole", source=source, options=options)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    killed = Trial(tmp_path / "killed", source=source, options=options, every="2steps", params={"pause": 0.03})
    killed.start(hold=11).reaches(8).kill(1)
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
    assert (ran.started.total_steps, trial.newest().step, sorted(ran.reports("validation"))) == (9, 9, [6, 9])


def test_the_best_checkpoint_stays_whatever_came_after_it(tmp_path):
    """The weights deteriorate, so that the first epoch's are the best. `metrics` names an `accuracy` in lower case."""
    source = DIGITS.replace("lr=1e-2", "lr=5.0")
    trial = Trial(tmp_path / "trial", source=source, epochs=5, options={"metric": {"name": "Accuracy", "mode": "max"}})
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    accuracies = {step: values["Accuracy"] for step, values in ran.reports("validation").items()}
    best = max(accuracies, key=lambda step: (accuracies[step], -step))
    kept = {manifest.step: manifest.metrics for manifest in trial.home.committed()}
    assert best in kept
    assert kept[best]["Accuracy"] == accuracies[best]
    assert max(kept) == 30


def test_a_metric_that_nobody_reports_is_told(tmp_path):
    trial = Trial(tmp_path / "trial", epochs=1, options={"metric": {"name": "f1", "mode": "max"}})
    assert any(
        "--metric f1: the validation reports no such metric, only loss accuracy" in n for n in trial.run().notes()
    )


WRITES = {
    "by itself": "",
    "in its forward pass": "with torch.no_grad(): self.inner[0].weight.clamp_(-0.5, 0.5)",
    "by data": "self.inner[0].weight.data.clamp_(-0.5, 0.5)",
    "another buffer": "self.center = 0.9 * self.center + 0.1 * x.mean(0)",
}


def writing(how: str) -> str:
    """Return the standard definition with a model that changes its state in the forward pass."""
    net = f"""
class Net(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.register_buffer("center", torch.zeros(16))
    def forward(self, x):
        {WRITES[how] or "pass"}
        return self.inner(x - self.center)
"""
    inside = "nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 2)\n    )"
    assert inside in DIGITS
    return DIGITS.replace("return nn.Sequential(", "return Net(nn.Sequential(").replace(inside, f"{inside})") + net


@pytest.mark.parametrize("how", WRITES)
def test_whatever_a_model_changes_by_itself_is_in_its_checkpoints(tmp_path, how):
    whole = Trial(tmp_path / "whole", source=writing(how))
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    killed = Trial(tmp_path / "killed", source=writing(how), every="2steps", params={"pause": 0.03})
    first = killed.start(hold=11).reaches(9).kill(1)
    assert len(first.committed()) >= 2
    torn = "the model's forward pass changes its weights: checkpoints are copied at once"
    assert (torn in first.notes()) == (how == "in its forward pass")
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()


BESIDE = """
class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(2))
    def forward(self, output, target):
        if self.training:
            with torch.no_grad():
                self.center += 0.1 * (output.mean(0) - self.center)
        return nn.functional.cross_entropy(output - self.center, target)
criterion = Centered()
def teacher(): return nn.Linear(24, 2).requires_grad_(False).eval()
def loss(output, target, teacher, model, pause=0.0):
    time.sleep(pause)
    stand()
    with torch.no_grad():
        teacher.weight.lerp_(model[-1].weight, 0.1)
    return criterion(output, target) + 0.01 * (model[-1].weight - teacher.weight).square().sum()
"""


@pytest.mark.parametrize("options", [{}, {"logical_workers": 4}], ids=["plain", "four logical"])
def test_modules_beside_the_model_are_in_its_checkpoints_too(tmp_path, options):
    source = DIGITS[: DIGITS.index("def loss(")] + BESIDE + DIGITS[DIGITS.index("def metrics(") :]
    whole = Trial(tmp_path / "whole", source=source, options=options)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    assert {"beside", "buffers-0"} <= whole.parts().keys()
    killed = Trial(tmp_path / "killed", source=source, options=options, every="2steps", params={"pause": 0.03})
    killed.start(hold=11).reaches(9).kill(1)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()
    assert second.reports("validation")[12] == ran.reports("validation")[12]


WARMED = """
def schedule(optimizer):
    rates = torch.optim.lr_scheduler
    parts = [rates.LinearLR(optimizer, 0.1, total_iters=7), rates.MultiStepLR(optimizer, [2, 2, 4])]
    return rates.SequentialLR(optimizer, parts, milestones=[7])
"""


def test_a_schedule_that_was_left_in_its_warm_up_goes_on_into_the_next(tmp_path):
    whole = Trial(tmp_path / "whole", source=DIGITS + WARMED, slots=1)
    assert whole.run().codes == [0]
    killed = Trial(tmp_path / "killed", source=DIGITS + WARMED, slots=1, every="2steps", params={"pause": 0.03})
    killed.start(hold=11).reaches(4).kill(0)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0], second.logs()
    assert killed.parts() == whole.parts()
    assert rates(killed) == rates(whole) == [pytest.approx(1e-2 * 0.1**3)]


def test_an_optimizer_that_draws_draws_the_same_on_every_rank(tmp_path):
    noisy = (
        DIGITS
        + """
class Langevin(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for each in group["params"]: each.add_(0.01 * torch.randn_like(each))
"""
    )
    source = noisy.replace("torch.optim.AdamW(params, lr=lr)", "Langevin(params, lr=lr)")
    one, two = (
        Trial(tmp_path / str(slots), source=source, slots=slots, options={"logical_workers": 2}) for slots in (1, 2)
    )
    for trial in (one, two):
        ran = trial.run()
        assert set(ran.codes) == {0}, ran.logs()
    assert one.parts() == two.parts()


def test_a_training_killed_between_its_last_checkpoint_and_its_end_has_nothing_left_to_do(whole):
    done = whole("torch", 2).trial
    again = done.run(resume_from=done.newest().id)
    assert again.codes == [0, 0], again.logs()
    assert again.committed() == []
    assert again.reports("validation") == {}


def test_steps_that_end_within_an_epoch_end_with_a_validation(tmp_path):
    trial = Trial(tmp_path / "trial", options={"steps": 4})
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    assert list(ran.reports("validation")) == [4]
    assert trial.newest().metrics == ran.reports("validation")[4]


def test_streams_of_random_numbers_are_each_ranks_own(tmp_path):
    source = DIGITS.replace("time.sleep(pause)", "time.sleep(pause); print('drew', torch.rand(1).item(), flush=True)")
    ran = Trial(tmp_path / "trial", source=source, options={"rng": "stream"}).run()
    assert ran.codes == [0, 0], ran.logs()
    drew = [
        [line for line in log.read_text().splitlines() if line.startswith("drew")]
        for log in sorted(ran.folder.path.glob("rank-*.log"))
    ]
    assert len(drew[0]) == len(drew[1]) > 10
    assert not set(drew[0]) & set(drew[1])


# Without dropout and BatchNorm a batch is trained alike in one piece and in several, but for the order of sums.
SMOOTH = DIGITS.replace("nn.BatchNorm1d(width), ", "").replace("nn.Dropout(dropout), ", "")


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_batch_computed_in_parts_trains_what_the_whole_one_does(tmp_path, slots):
    whole = Trial(tmp_path / "whole", source=SMOOTH, slots=slots)
    parts = Trial(tmp_path / "parts", source=SMOOTH, slots=slots, options={"accumulate": 3, "clip": 0.5})
    clipped = Trial(tmp_path / "clipped", source=SMOOTH, slots=slots, options={"clip": 0.5})
    first, second, third = whole.run(), parts.run(), clipped.run()
    assert set(first.codes + second.codes + third.codes) == {0}, second.logs()
    assert second.started.total_steps == first.started.total_steps
    for name, tensor in clipped.model().items():
        torch.testing.assert_close(parts.model()[name], tensor, rtol=1e-4, atol=1e-5)
    losses = third.reports("training"), second.reports("training")
    assert losses[1][1]["loss"] == pytest.approx(losses[0][1]["loss"], rel=1e-5)


@pytest.mark.parametrize(
    "options",
    [pytest.param({"accumulate": 3}, marks=pytest.mark.long), {"accumulate": 2, "logical_workers": 4}],
    ids=str,
)
def test_a_training_in_parts_is_exact(tmp_path, options):
    """The training has BatchNorm and dropout, is killed, and runs on both backends and with logical workers."""
    whole = Trial(tmp_path / "whole", options=options)
    assert whole.run().codes == [0, 0]
    killed = Trial(tmp_path / "killed", options=options, every="2steps", params={"pause": 0.01}, backend="horovod")
    first = killed.start().reaches(5).kill(0)
    assert -9 in first.codes
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()
    if "logical_workers" in options:
        one = Trial(tmp_path / "one", options=options, slots=1)
        assert one.run().codes == [0]
        assert one.parts() == whole.parts()


def test_validations_may_follow_steps_or_several_epochs(tmp_path):
    steps = Trial(tmp_path / "steps", options={"validate_every": {"steps": 4}, "validate_first": True}).run()
    epochs = Trial(tmp_path / "epochs", options={"validate_every": {"epochs": 2}}, epochs=3).run()
    assert steps.codes == epochs.codes == [0, 0], steps.logs() + epochs.logs()
    assert sorted(steps.reports("validation")) == [0, 4, 8, 12]
    assert sorted(epochs.reports("validation")) == [12, 18]


def test_validations_within_epochs_are_exact(tmp_path):
    options = {"validate_every": {"steps": 4}, "rng": "stream", "schedule_per": "epoch"}
    source = DIGITS + "def schedule(optimizer): return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)\n"
    whole = Trial(tmp_path / "whole", source=source, options=options)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    assert rates(whole) == [0.0025]
    for held in (4, 6):  # a release right after a validation's step, and right after an epoch's end
        released = Trial(tmp_path / str(held), source=source, options=options)
        attempt = released.start(hold=held - 1).reaches(held - 1)
        attempt.tell("release").heard().go().ended()
        assert attempt.codes == [85, 85], attempt.logs()
        second = released.run(resume_from=released.pinned())
        assert second.codes == [0, 0], second.logs()
        assert released.parts() == whole.parts()
        reported = attempt.reports("validation") | second.reports("validation")
        assert reported == ran.reports("validation")


@pytest.mark.parametrize("cut", [False, True])
def test_patience_ends_a_training_without_progress(tmp_path, cut):
    source = DIGITS.replace("lr=1e-2", "lr=5.0")
    trial = Trial(tmp_path / "trial", source=source, epochs=20, options={"patience": 2}, every="2steps")
    if cut:
        trial.start(hold=14).reaches(13).kill(0)
    ran = trial.run(resume_from=trial.pinned() if cut else None)
    assert ran.codes == [0, 0], ran.logs()
    losses = [values["loss"] for _, values in sorted(ran.reports("validation").items())]
    end = trial.newest().step
    assert end < 120
    if not cut:
        assert min(losses) == losses[-3] == min(losses[-3:])
    (note,) = [each for each in ran.notes() if each.startswith("stopped early")]
    assert f"after epoch {end // 6}: 2 validations without a better loss" in note
    again = trial.run(resume_from=trial.pinned())
    assert (again.codes, again.reports("training")) == ([0, 0], {})


def test_a_validation_that_is_never_finite_ends_the_training(tmp_path):
    source = DIGITS.replace("target).float()}", "target).float(), 'odd': output.sum() * float('nan')}")
    options = {"metric": {"name": "odd", "mode": "max"}}
    ran = Trial(tmp_path / "trial", source=source, epochs=5, options=options).run()
    assert set(ran.codes) == {1}
    assert sorted(ran.reports("validation")) == [6, 12, 18]
    assert "the validation's odd is nan at step 18" in ran.failures()[0].message
    goes_on = Trial(tmp_path / "goes-on", source=source, epochs=4, options={**options, "on_nan": "go-on"}).run()
    assert goes_on.codes == [0, 0]
    assert any("the validation's odd is nan at step 6" in each for each in goes_on.notes())


def test_batches_are_counted_and_cut_as_asked(tmp_path):
    each = Trial(tmp_path / "each", options={"per_slot_batch": True}, epochs=1)
    both = Trial(tmp_path / "both", batch_size=24, epochs=1)
    dropped = Trial(tmp_path / "dropped", options={"uneven": "drop"}, epochs=1)
    ran = [each.run(), both.run(), dropped.run()]
    assert [attempt.codes for attempt in ran] == [[0, 0]] * 3
    assert [attempt.started.total_steps for attempt in ran] == [3, 3, 5]
    assert each.parts() == both.parts()


def test_a_compiled_model_trains_exactly(tmp_path):
    whole = Trial(tmp_path / "whole", options={"compile": True}, slots=1)
    ran = whole.run()
    assert ran.codes == [0], ran.logs()
    killed = Trial(tmp_path / "killed", options={"compile": True}, slots=1, every="2steps")
    killed.start(hold=8).reaches(7).kill(0)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0], second.logs()
    assert killed.parts() == whole.parts()
    plain = Trial(tmp_path / "plain", slots=1)
    assert plain.run().codes == [0]
    for name, tensor in plain.model().items():
        torch.testing.assert_close(whole.model()[name], tensor, rtol=1e-3, atol=1e-4)
