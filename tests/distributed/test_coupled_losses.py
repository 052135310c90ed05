"""Test the warning that a loss which compares samples depends on the number of slots."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

from kernel_backend.checkpoints.writer import decode

pytestmark = pytest.mark.distributed

LOSS = "return nn.functional.cross_entropy(output, target)"
CONTRASTIVE = "return nn.functional.cross_entropy(output @ output.T, torch.arange(len(output)))"
WARNING = "the training depends on how many slots share a batch"


def test_a_loss_that_compares_samples_is_told_with_both_values(trial):
    ran = trial(source=DIGITS.replace(LOSS, CONTRASTIVE), epochs=1).run()
    assert ran.codes == [0, 0], ran.logs()
    (text,) = [text for text in ran.notes() if WARNING in text]
    assert text.startswith("the loss of the first batch as a whole is 2.")
    assert "the mean over its 2 shares 1." in text


@pytest.mark.parametrize(
    ("loss", "slots"),
    [
        (LOSS, 2),
        (f"{LOSS} + torch.rand(())", 2),  # it draws, so nothing can be said
        ("assert len(output) == 6; " + LOSS, 2),  # nor here
        (CONTRASTIVE, 1),
    ],
)
def test_any_other_loss_is_not(trial, loss, slots):
    ran = trial(source=DIGITS.replace(LOSS, loss), epochs=1, slots=slots, options={"steps": 2}).run()
    assert set(ran.codes) <= {0, 1}
    assert not [text for text in ran.notes() if WARNING in text]
    assert ran.reports("training"), ran.logs()


OF_THE_VALIDATION = "is not that of all samples at once"
WEIGHTED = "return nn.functional.cross_entropy(output, target, weight=torch.tensor([1.0, 9.0]))"
IGNORING = "return nn.functional.cross_entropy(output, target.where(target.cumsum(0) % 3 > 0, -100))"
WHOLE = """def metrics(output, target): return {"loss": loss(output, target)}
"""
BEFORE_LOSS, METRICS = DIGITS[: DIGITS.index("def loss")], DIGITS[DIGITS.index("def metrics") :]
ASSIGNED = "criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0]))\n"
SORTED = "Subset(dataset, sorted(range(90), key=lambda each: dataset[each][1].item()))"


@pytest.mark.parametrize(
    ("loss", "data", "slots"),
    [
        (WEIGHTED, "", 1),
        ("", "", 1),  # a criterion that is assigned
        (WEIGHTED, SORTED, 1),  # each batch but one has samples of one class
        (WEIGHTED, "", 2),
        (IGNORING, "", 1),
        ("return nn.functional.mse_loss(output[:, 0], target.float()).sqrt()", "", 1),
    ],
)
def test_a_validation_whose_loss_depends_on_the_size_of_batches_is_told_once(trial, loss, data, slots):
    source = DIGITS.replace(LOSS, loss) if loss else f"{BEFORE_LOSS}{ASSIGNED}{METRICS}"
    source = source.replace("Subset(dataset, range(70, 90))", data or "Subset(dataset, range(90))")
    ran = trial(source=source, slots=slots).run()
    assert ran.codes == [0] * slots, ran.logs()
    assert len(ran.reports("validation")) == 2
    (text,) = [text for text in ran.notes() if OF_THE_VALIDATION in text]
    assert "the mean over pairs of them" in text


def test_a_resumed_training_does_not_tell_it_again(trial):
    trained = trial(source=DIGITS.replace(LOSS, WEIGHTED), slots=1, every="1steps")
    first = trained.start(hold=9).reaches(8).kill(0)
    second = trained.run(trained.pinned())
    assert second.codes == [0], second.logs()
    told = [[text for text in each.notes() if OF_THE_VALIDATION in text] for each in (first, second)]
    assert [len(each) for each in told] == [1, 0]


def test_the_loss_of_all_samples_is_a_metric(tmp_path):
    def validated(size):
        source = DIGITS.replace(LOSS, WEIGHTED)
        source = source[: source.index("def metrics")] + WHOLE
        source = source.replace("lr=1e-2", "lr=0.0").replace("nn.BatchNorm1d(width), ", "")
        ran = Trial(tmp_path / f"{size}", source=source, slots=1, epochs=1, batch_size=size).run()
        assert ran.codes == [0], ran.logs()
        assert not [text for text in ran.notes() if OF_THE_VALIDATION in text]
        (found,) = ran.reports("validation").values()
        return found["loss"]

    assert validated(3) == pytest.approx(validated(20), rel=1e-6)


@pytest.mark.parametrize(("loss", "slots"), [(LOSS, 1), (LOSS, 2), (f"{LOSS} + torch.rand(())", 1)])
def test_no_other_validation_is(trial, loss, slots):
    ran = trial(source=DIGITS.replace(LOSS, loss), slots=slots, epochs=1).run()
    assert ran.codes == [0] * slots, ran.logs()
    assert ran.reports("validation")
    assert not [text for text in ran.notes() if OF_THE_VALIDATION in text]


BESIDE = """
class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(2))
        self.weight = nn.Parameter(torch.zeros(2), requires_grad=False)
    def forward(self, output, target):
        self.center += 1
        with torch.no_grad():
            self.weight += 1
        return nn.functional.cross_entropy(output, target)
criterion = Centered()
"""


def test_comparing_leaves_no_trace_in_a_loss_with_a_state(trial):
    source = DIGITS.replace(LOSS, "return criterion(output, target)").replace("def loss(", BESIDE + "def loss(")
    trained = trial(source=source, options={"steps": 2})
    ran = trained.run()
    assert ran.codes == [0, 0], ran.logs()
    (weight,) = decode(trained.home.read(trained.newest(), "beside")).values()
    (center,) = decode(trained.home.read(trained.newest(), "buffers-0")).values()
    calls = 2 + 2  # in two steps, and for two batches of the validation
    assert weight.tolist() == center.tolist() == [calls, calls]


DRAWING = """
class Noisy(torch.optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.noise = torch.Generator().manual_seed(1)
    def step(self, closure=None):
        print("drew", torch.rand((), generator=self.noise).item())
        super().step()
def optimizer(params, lr=1e-2): return Noisy(params, lr)
"""


def test_ranks_whose_optimizers_draw_go_on_alike(trial):
    source = DIGITS.replace("def optimizer(params, lr=1e-2): return torch.optim.AdamW(params, lr=lr)", DRAWING)
    ran = trial(source=source, epochs=1, options={"rng": "stream"}).run()
    assert ran.codes == [0, 0], ran.logs()
    first, second = (
        [line for line in log.read_text().splitlines() if line.startswith("drew")]
        for log in sorted(ran.folder.path.glob("rank-*.log"))
    )
    assert len(first) == 6
    assert first == second
