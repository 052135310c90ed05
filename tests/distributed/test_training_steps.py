"""Test training steps and several models: the bits of a plain loop, on every backend and after every kill."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from gang import STAND, Trial

from kernel_backend.checkpoints.writer import decode, unflatten
from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.runner.determinism.seeds import mix, reseed

pytestmark = pytest.mark.distributed

# A GAN as its author would write it, with BatchNorm and dropout, a schedule for each optimizer, and what it logs.
GAN = f"""
import time
import torch
from torch import nn
{STAND}
bce = nn.functional.binary_cross_entropy_with_logits
def train_data():
    x = torch.randn(70, 4, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x @ torch.tensor([[2.0, 0, 1, 0]] * 4))
def validation_data(train_data): return torch.utils.data.Subset(train_data, range(20))
def model(width=16):
    gen = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 4))
    disc = nn.Sequential(nn.Linear(4, width), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(width, 1))
    return {{"gen": gen, "disc": disc}}
def optimizer(gen, disc, g_lr=1e-2, d_lr=2e-2):
    return {{"gen": torch.optim.Adam(gen.parameters(), lr=g_lr), "disc": torch.optim.AdamW(disc.parameters(), lr=d_lr)}}
def schedule(optimizer, steps):
    return {{key: torch.optim.lr_scheduler.OneCycleLR(each, 0.05, steps) for key, each in optimizer.items()}}
def step_disc(gen, disc, batch, pause=0.0):
    time.sleep(pause)
    stand()
    (real,) = batch
    scores, fakes = disc(real), disc(gen(torch.randn(len(real), 3)))
    loss = bce(scores, torch.ones_like(scores)) + bce(fakes, torch.zeros_like(fakes))
    return {{"loss": loss, "right": (scores > 0).float()}}
def step_gen(gen, disc, batch):
    fakes = disc(gen(torch.randn(len(batch[0]), 3)))
    return {{"loss": bce(fakes, torch.ones_like(fakes))}}
def metrics(gen, batch): return {{"spread": (gen(torch.ones(len(batch[0]), 3)) - batch[0]).abs().mean(1)}}
"""


def by_hand(path, epochs=2):
    """Train the GAN in a plain loop, with only the random numbers of the runner."""
    spec = importlib.util.spec_from_file_location("by_hand", path)
    cell = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cell)
    (x,) = cell.train_data().tensors
    reseed(mix(0, "init", "model"))
    models = cell.model()
    optimizers = cell.optimizer(**models)
    schedules = cell.schedule(optimizers, 12)
    step = 0
    for epoch in range(epochs):
        for rows in Permutation(0, epoch, 70).slice(0, 70).split(12):
            for key in ("disc", "gen"):
                reseed(mix(0, "step", step, 0, f"step_{key}"))
                optimizers[key].zero_grad()
                getattr(cell, f"step_{key}")(**models, batch=(x[rows],))["loss"].backward()
                optimizers[key].step()
            for schedule in schedules.values():
                schedule.step()
            step += 1
    state = torch.nn.ModuleDict(models).state_dict()
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Provide uninterrupted trainings by backend and number of slots."""
    made: dict[tuple[str, int], tuple[Trial, object]] = {}

    def of(backend: str, slots: int):
        if (backend, slots) not in made:
            trial = Trial(tmp_path_factory.mktemp("gan") / "trial", source=GAN, backend=backend, slots=slots)
            ran = trial.run()
            assert ran.codes == [0] * slots, ran.logs()
            made[backend, slots] = trial, ran
        return made[backend, slots]

    return of


def test_a_gan_on_one_slot_equals_the_loop_written_by_hand(whole):
    trial, ran = whole("torch", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert trial.weights() == by_hand(trial.folder / "code" / "definition.py")
    finally:
        torch.set_num_threads(threads)
    assert ran.reports("training")[1].keys() == {"disc_loss", "gen_loss", "right"}
    assert ran.reports("validation")[6].keys() == {"disc_loss", "gen_loss", "right", "spread"}
    assert {"optimizer.gen", "optimizer.disc"} <= trial.parts().keys()


def test_both_backends_give_the_same_bits(whole):
    (horovod, one), (gloo, other) = whole("horovod", 2), whole("torch", 2)
    assert horovod.parts() == gloo.parts()
    assert one.reports("validation") == other.reports("validation")


@pytest.mark.parametrize(("slots", "backend"), [(1, "torch"), (2, "horovod")])
def test_a_killed_gan_ends_with_the_same_bits(whole, trial, slots, backend):
    expected, ran = whole(backend, slots)
    killed = trial(source=GAN, slots=slots, backend=backend, every="2steps", params={"pause": 0.03})
    first = killed.start(hold=9).reaches(5).kill(slots - 1)
    assert first.codes[slots - 1] == -9
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0] * slots, second.logs()
    assert killed.parts() == expected.parts()
    assert second.reports("validation")[12] == ran.reports("validation")[12]


def test_logical_workers_give_the_same_bits_on_any_slots(trial, tmp_path):
    options = {"logical_workers": 4}
    one, two = (Trial(tmp_path / str(slots), source=GAN, slots=slots, options=options) for slots in (1, 2))
    for each in (one, two):
        ran = each.run()
        assert set(ran.codes) == {0}, ran.logs()
    assert one.parts() == two.parts()


def test_the_gradients_of_two_slots_are_those_of_the_whole_batch(trial, tmp_path):
    """Without dropout, BatchNorm and random inputs, two slots train like one, up to the order of sums."""
    plain = GAN.replace("nn.BatchNorm1d(width), ", "").replace("nn.Dropout(0.2), ", "")
    plain = plain.replace("torch.randn(len(real), 3)", "real[:, :3]")
    plain = plain.replace("torch.randn(len(batch[0]), 3)", "batch[0][:, :3]")
    one, two = (Trial(tmp_path / str(slots), source=plain, slots=slots) for slots in (1, 2))
    first, second = one.run(), two.run()
    assert (first.codes, second.codes) == ([0], [0, 0]), first.logs() + second.logs()
    for name, tensor in one.model().items():
        torch.testing.assert_close(two.model()[name], tensor, rtol=1e-4, atol=1e-5)
    assert first.reports("validation")[12] == pytest.approx(second.reports("validation")[12], rel=1e-4)


STEP = """
import torch
from torch import nn
def train_data():
    x = torch.randn(70, 4, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
def validation_data(train_data): return torch.utils.data.Subset(train_data, range(20))
def model(): return nn.Linear(4, 1)
def optimizer(params): return torch.optim.SGD(params, lr=0.1)
"""
PLAIN = STEP + "def loss(output, target): return nn.functional.mse_loss(output, target)\n"


def test_a_step_that_computes_the_loss_itself_trains_what_loss_does(tmp_path):
    step = "def step(model, batch):\n    x, y = batch\n    return nn.functional.mse_loss(model(x), y)\n"
    stepped = Trial(tmp_path / "step", source=STEP + step)
    plain = Trial(tmp_path / "plain", source=PLAIN)
    first, second = stepped.run(), plain.run()
    assert (first.codes, second.codes) == ([0, 0], [0, 0]), first.logs()
    assert stepped.parts() == plain.parts()
    assert first.reports("training") == second.reports("training")
    assert first.reports("validation") == second.reports("validation")


def test_a_step_that_returns_none_trains_nothing_in_that_step(trial):
    every_third = "def step_gen(gen, disc, batch, index):\n    if index % 3: return None"
    one = trial(source=GAN.replace("def step_gen(gen, disc, batch):", every_third), epochs=1)
    ran = one.run()
    assert ran.codes == [0, 0], ran.logs()
    assert [step for step, values in ran.reports("training").items() if "gen_loss" in values] == [1, 4]
    assert all("disc_loss" in values for values in ran.reports("training").values())
    manifest = one.newest()
    optimizer = unflatten(manifest.state["optimizer.gen"], decode(one.home.read(manifest, "optimizer.gen")))
    assert optimizer["state"][0]["step"] == 2


def test_a_step_that_returns_none_on_some_ranks_alone_is_refused_on_all(trial):
    step = "def step(model, batch, rank):\n    return model(batch[0]).mean() if rank else None\n"
    ran = trial(source=STEP + step).run()
    assert ran.codes == [1, 1]
    assert "step() returned None for a part of a global batch" in ran.failures()[0].message


def test_a_gradient_penalty_trains_and_validates(trial):
    penalty = """    x = real.clone().requires_grad_()
    (slope,) = torch.autograd.grad(disc(x).sum(), x, create_graph=True)
    loss = loss + 10 * (slope.norm(dim=1) - 1).square().mean()
    return {"loss": loss, "right\""""
    ran = trial(source=GAN.replace('    return {"loss": loss, "right"', penalty)).run()
    assert ran.codes == [0, 0], ran.logs()
    assert "disc_loss" in ran.reports("validation")[6]


def test_a_loss_that_is_not_finite_names_its_step(trial):
    ran = trial(source=GAN.replace('"loss": bce(fakes', '"loss": bce(fakes / 0 * 0'), epochs=1).run()
    assert set(ran.codes) == {1}
    assert "the loss is nan since step 1 (cell [4] line" in ran.failures()[0].message
    assert "what step_gen() computes of them is not" in ran.failures()[0].message


@pytest.mark.parametrize("options", [{"amp": "bf16", "clip": 1.0, "ema": 0.9}, {"rng": "stream"}])
def test_options_go_with_several_models(tmp_path, options):
    source = GAN.replace("def metrics(gen, batch)", "def other(gen, batch)") if "ema" in options else GAN
    killed = Trial(tmp_path / "killed", source=source, options=options, every="2steps", params={"pause": 0.03})
    killed.start(hold=9).reaches(5).kill(0)
    ran = killed.run(resume_from=killed.pinned())
    assert ran.codes == [0, 0], ran.logs()
    whole = Trial(tmp_path / "whole", source=source, options=options)
    assert whole.run().codes == [0, 0]
    assert killed.parts() == whole.parts()
