"""Test that what a definition takes from the clock or from chance is told, and that what only measures is not."""

from __future__ import annotations

import pytest

from kernel_backend.runner.determinism.unrepeatable import unrepeatable


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("torch.manual_seed(int(time.time()))", "torch.manual_seed(int(time.time())) takes its seed from the clock"),
        ("now = time()\n random.seed(now)", "random.seed(now) takes its seed from the clock"),
        ("return np.random.default_rng(seed=time.time_ns())", "takes its seed from the clock"),
        ("return x + np.random.default_rng().normal()", "np.random.default_rng() draws anew"),
        ("rng = random.Random()\n return rng.random()", "rng draws anew in each run"),
        ("return os.urandom(3)", "os.urandom(3) draws anew"),
        ("for b in x:\n  if time.time() - began > 60: break", "time.time() - began > 60"),
        ("while time.monotonic() < end: step()", "the clock decides how much is trained"),
        ("spent = time.time() - t\n if spent > 60: control.should_training_stop = True", "spent > 60"),
        ("if self.rng is None:\n  self.rng = torch.Generator().manual_seed(3)", "self.rng is a generator that is made"),
        ("if not hasattr(self, 'rng'): self.rng = np.random.default_rng(3)", "made while the model computes"),
    ],
)
def test_a_definition_that_takes_from_the_clock_or_from_chance_has_no_guarantee(body: str, told: str) -> None:
    found = unrepeatable(f"def forward(self, x):\n {body}")
    assert found is not None
    assert found.startswith("not reproducible: forward(): ")
    assert told in found


@pytest.mark.parametrize(
    "source",
    [
        "def step(x):\n began = time.time()\n train(x)\n print(time.time() - began)",
        "def log(x):\n if time.time() - last < 5: return\n print(x)",
        "def wait():\n while time.time() < end: time.sleep(1)",
        "rng = np.random.default_rng()\ndef augment(x): return x + rng.normal()",
        "class Data:\n def __init__(self): self.r = default_rng()\n def __getitem__(self, i): return self.r.normal()",
        "def augment():\n rng = np.random.default_rng()\n def call(x): return x + rng.normal()\n return call",
        "def forward(self, x):\n self.g = torch.Generator().manual_seed(3)\n return torch.rand(3, generator=self.g)",
        "def forward(x):\n g = torch.Generator().manual_seed(3)\n return torch.rand(3, generator=g)",
        "def data():\n return np.random.default_rng(7).normal(size=9)",
        "def name(): return datetime.now().strftime('%H%M')",
    ],
)
def test_a_clock_that_measures_and_a_generator_that_is_seeded_limit_nothing(source: str) -> None:
    assert unrepeatable(source) is None
