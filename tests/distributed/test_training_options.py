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


WRITES = {
    "by itself": "",
    "in its forward pass": "with torch.no_grad(): self.inner[0].weight.clamp_(-0.5, 0.5)",
    "by data": "self.inner[0].weight.data.clamp_(-0.5, 0.5)",
    "another buffer": "self.center = 0.9 * self.center + 0.1 * x.mean(0)",
}


def writing(how: str) -> str:
    """The standard definition with a model that changes something in its forward pass."""
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
