"""Test random generators held by a dataset, a model, a loss function or an optimizer: equal bits after a kill."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

from kernel_backend.model.reports import Guarantee

pytestmark = pytest.mark.distributed

OWN = DIGITS.replace(
    "def train_data(dataset): return torch.utils.data.Subset(dataset, range(70))",
    """
import random
import numpy as np

class Noisy(torch.utils.data.Dataset):
    def __init__(self, dataset): self.dataset, self.rng = dataset, np.random.default_rng(3)
    def __len__(self): return 70
    def __getitem__(self, index):
        x, y = self.dataset[index]
        return x + 0.1 * float(self.rng.normal()), y
def train_data(dataset): return Noisy(dataset)

class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = torch.Generator().manual_seed(3)
    def forward(self, x): return x + 0.1 * torch.randn(x.shape, generator=self.noise)

class Langevin(torch.optim.SGD):
    noise = np.random.RandomState(3)
    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for each in group["params"]: each.add_(0.01 * self.noise.normal())
smoothing = random.Random(3)
""",
)
for before, after in [
    ("nn.ReLU(), nn.Dropout(dropout)", "nn.ReLU(), Drawing()"),
    ("torch.optim.AdamW(params, lr=lr)", "Langevin(params, lr=lr)"),
    ("cross_entropy(output, target)", "cross_entropy(output, target, label_smoothing=0.1 * smoothing.random())"),
]:
    assert before in OWN
    OWN = OWN.replace(before, after)


def test_generators_of_its_own_stand_after_a_kill_where_they_would_have_stood(tmp_path):
    options = {"ema": 0.9, "logical_workers": 2}
    whole = Trial(tmp_path / "whole", source=OWN, options=options | {"loader_workers": 0})
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    assert ran.started.guarantee.startswith("reproducible: a kill changes no bit of the result, on any number of slots")
    more = {"source": OWN, "options": options | {"loader_workers": 2}, "params": {"pause": 0.03}}
    killed = Trial(tmp_path / "killed", every="2steps", **more)
    killed.start(hold=11).reaches(8).kill(1)
    killed.slots = 1
    again = killed.run(resume_from=killed.pinned())
    assert again.codes == [0], again.logs()
    assert killed.parts() == whole.parts()
    assert again.reports("validation")[12] == ran.reports("validation")[12]


def test_with_streams_of_random_numbers_one_of_its_own_is_told_to_be_lost(tmp_path):
    ran = Trial(tmp_path / "trial", source=OWN, slots=1, options={"rng": "stream", "steps": 1}).run()
    assert ran.codes == [0], ran.logs()
    assert ran.started.guarantee == (
        "not reproducible: optimizer.Langevin.noise is a random generator of its own, which --rng stream does not save"
    )


def test_a_generator_without_a_seed_that_a_function_makes_leaves_no_guarantee(tmp_path):
    late = DIGITS.replace("stand()\n    return", "loss.noise = float(np.random.default_rng().normal())\n    return")
    ran = Trial(tmp_path / "trial", source=f"import numpy as np\n{late}", slots=1, options={"steps": 1}).run()
    assert ran.codes == [0], ran.logs()
    assert ran.started.guarantee.startswith("not reproducible: loss(): np.random.default_rng() draws anew in each run")


def test_an_optimizer_of_the_loss_itself_leaves_no_guarantee(tmp_path):
    own = "tau = torch.zeros(1, requires_grad=True)\nbeside = torch.optim.SGD([tau], lr=0.1)\n"
    once = "(tau - 1).square().sum().backward(), beside.step(), beside.zero_grad()"
    steps = f"stand()\n    if torch.is_grad_enabled(): {once}\n    return"
    source = DIGITS.replace("stand()\n    return", steps)
    ran = Trial(tmp_path / "trial", source=f"import torch\n{own}{source}", slots=1, options={"steps": 3}).run()
    assert ran.codes == [0], ran.logs()
    (limited,) = (each.text for each in ran.records if isinstance(each, Guarantee))
    assert limited.startswith(
        "not reproducible: a further SGD trains weights from step to step, and no checkpoint holds them"
    )
