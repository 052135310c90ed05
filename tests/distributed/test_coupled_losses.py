"""A loss that compares samples with one another changes with the number of slots, and that is told."""

from __future__ import annotations

import pytest
from gang import DIGITS

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
