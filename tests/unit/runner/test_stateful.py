"""Test the state of a rank besides weights: buffers of logical ranks, averages, random states, versions."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from kernel_backend.model.experiment import Config
from kernel_backend.runner.checkpoint.ema import WeightAverage
from kernel_backend.runner.definition.auxiliary_modules import AuxiliaryModules, auxiliary_modules
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.ranks.backends import SingleRank

CPU = torch.device("cpu")


def norm():
    return nn.Sequential(nn.BatchNorm1d(2))


def test_every_logical_rank_has_statistics_of_its_own():
    together, apart = norm(), [norm() for _ in range(3)]
    together.register_buffer("mask", torch.ones(3))
    together.register_buffer("table", torch.arange(4.0), persistent=False)
    logical = LogicalRanks(together, range(3), 3)
    for step in range(2):
        for rank, alone in zip(logical.mine, apart, strict=True):
            batch = torch.full((3, 2), float(rank + step)) + torch.arange(3.0)[:, None]
            logical.take(rank)
            together(batch)
            alone(batch)
    saved = logical.gather(SingleRank())
    assert saved[0].keys() == dict(together.named_buffers()).keys()
    # What all have alike, as the variance here, is there once.
    assert saved[1].keys() == saved[2].keys() == {"0.running_mean"}
    for rank, alone in enumerate(apart):
        mine = saved[0] | saved[rank]
        assert all(torch.equal(mine[name], buffer) for name, buffer in alone.named_buffers())

    fresh = norm()
    fresh.register_buffer("mask", torch.zeros(3))
    fresh.register_buffer("table", torch.zeros(4), persistent=False)
    another = LogicalRanks(fresh, range(1, 3), 3)  # a rank of another attempt, whose share is another
    another.restore(saved)
    for rank in another.mine:
        another.take(rank)
        mine = saved[0] | saved[rank]
        assert all(torch.equal(mine[name], buffer) for name, buffer in fresh.named_buffers())

    logical.share(SingleRank())
    assert [len(buffers) for buffers in logical.gather(SingleRank()).values()] == [5, 0, 0]


class Centered(nn.Module):
    """Module that replaces its buffer's tensor, like DINO and VQ-VAE."""

    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(2))

    def forward(self, x):
        self.center = 0.5 * self.center + x.mean(0)
        return x


def test_a_buffer_that_is_put_in_anothers_place_is_each_logical_ranks_own():
    together, apart = Centered(), [Centered() for _ in range(2)]
    logical = LogicalRanks(together, range(2), 2)
    for step in range(3):
        for rank, alone in enumerate(apart):
            batch = torch.full((3, 2), float(10 * rank + step))
            logical.take(rank)
            together(batch)
            alone(batch)
    found = logical.gather(SingleRank())
    assert [found[rank]["center"].tolist() for rank in range(2)] == [alone.center.tolist() for alone in apart]


def test_buffers_of_modules_beside_the_model_are_each_logical_ranks_own():
    together, apart = (norm(), Centered()), [(norm(), Centered()) for _ in range(2)]
    logical = LogicalRanks(together[0], range(2), 2, {"criterion()": together[1]})
    for rank, alone in enumerate(apart):
        logical.take(rank)
        for module in (*together, *alone):
            module(torch.full((3, 2), 1.0 + rank))
    found = logical.gather(SingleRank())
    fresh = (norm(), Centered())
    restored = LogicalRanks(fresh[0], range(2), 2, {"criterion()": fresh[1]})
    restored.restore(found)
    for rank, (model, criterion) in enumerate(apart):
        restored.take(rank)
        assert torch.equal(fresh[0][0].running_mean, model[0].running_mean)
        assert torch.equal(fresh[1].center, criterion.center)


def test_what_has_not_changed_since_the_last_time_is_not_copied_again():
    model = norm()
    model.register_buffer("mask", torch.ones(3))
    logical = LogicalRanks(model, range(1), 1)
    first = logical.gather(SingleRank())[0]
    model(torch.randn(4, 2))
    second = logical.gather(SingleRank())[0]
    assert second["mask"] is first["mask"]
    assert torch.equal(first["0.running_mean"], torch.zeros(2))  # what was copied stays as it was
    assert torch.equal(second["0.running_mean"], model[0].running_mean)


AT_TOP_LEVEL = norm()


def test_modules_beside_the_model_are_found_where_cells_make_them():
    model, criterion, inner = norm(), nn.Sequential(norm()), nn.ReLU()
    model.append(inner)
    wrapper, several = nn.Sequential(model, nn.Identity()), {"a": nn.Linear(1, 1), "b": (1, 2)}

    def loss(output, teacher=criterion[0]):
        return AT_TOP_LEVEL, criterion, inner, wrapper, several

    found = auxiliary_modules(model, loss=lambda **values: loss(**values), metrics=None)
    assert set(found.values()) == {AT_TOP_LEVEL, criterion, wrapper[1], several["a"]}
    assert found == auxiliary_modules(model, loss=lambda **values: loss(**values), metrics=None)


def test_weights_beside_the_model_are_held_once_something_writes_to_them():
    teacher, frozen = nn.Linear(2, 2), nn.Linear(2, 2)
    modules = {"teacher()": teacher, "frozen()": frozen}
    beside = AuxiliaryModules(modules, unseen=False)
    assert beside.state_dict() == {}
    with torch.no_grad():
        teacher.weight.lerp_(torch.ones(2, 2), 0.5)
    saved = {name: each.detach().clone() for name, each in beside.state_dict().items()}
    assert saved.keys() == {"teacher().weight"}
    again = nn.Linear(2, 2)
    restored = AuxiliaryModules({"teacher()": again, "frozen()": frozen}, unseen=False)
    restored.load_state_dict(saved)
    assert torch.equal(again.weight, teacher.weight)
    assert restored.state_dict().keys() == saved.keys()  # from now on it is held, whatever writes to it
    assert len(AuxiliaryModules(modules, unseen=True).state_dict()) == 4


def test_averages_of_a_model_whose_buffers_its_first_forward_pass_makes():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("early", None)
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            self.early = x.mean(0) if self.early is None else self.early
            return self.norm(x - self.early)

    model = Lazy()
    average = WeightAverage(model, 0.9)
    model(torch.arange(8.0).reshape(4, 2))
    average.update(model)
    average.take_buffers(model)
    assert torch.equal(average.module.early, model.early)
    assert torch.equal(average.module.norm.running_var, model.norm.running_var)
    again = WeightAverage(Lazy(), 0.9)
    again.load_state_dict(average.state_dict())
    assert torch.equal(again.module.early, model.early)


def test_averaged_weights_follow_and_come_back_bit_by_bit():
    model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    average = WeightAverage(model, 0.9)
    by_hand = None
    for step in range(4):
        with torch.no_grad():
            model[0].weight.fill_(float(step))
        average.update(model)
        by_hand = float(step) if by_hand is None else by_hand * 0.9 + step * 0.1
    assert average.module[0].weight[0, 0].item() == pytest.approx(by_hand)
    other = WeightAverage(nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)), 0.9)
    other.load_state_dict(average.state_dict())
    for each in (average, other):
        each.update(model)
    assert all(torch.equal(other.module.state_dict()[name], t) for name, t in average.module.state_dict().items())


def draws():
    return random.random(), float(np.random.rand()), float(torch.rand(1)), float(np.random.randn())


def test_random_streams_go_on_where_they_were_saved():
    streams = RandomStates()
    draws()
    states = streams.state_dict()
    expected = draws()
    draws()
    streams.load_state_dict(states)
    assert draws() == expected


def test_what_samples_draw_leaves_the_streams_alone():
    streams = RandomStates()
    states = streams.state_dict()
    undisturbed = [draws() for _ in range(3)]
    streams.load_state_dict(states)

    def samples():
        for _ in range(3):
            torch.default_generator.manual_seed(5)
            yield draws()

    assert [draws() for _ in streams.isolated(samples())] == undisturbed


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (Config(), "reproducible: a kill changes no bit of the result, on 2 slots and this kind of CPU"),
        (
            Config(logical_workers=4, reproducible="portable"),
            "reproducible: a kill changes no bit of the result, on any number of slots and any x86-64 CPU",
        ),
        (Config(reproducible="off"), "not reproducible: --reproducible off"),
    ],
)
def test_a_training_says_what_it_guarantees(config, says):
    assert exactness.guarantee(config, 2, CPU, asks_rank=False) == says
    if config.logical_workers:
        assert "on 2 slots and" in exactness.guarantee(config, 2, CPU, asks_rank=True)


def test_what_has_changed_since_a_checkpoint_is_named():
    before = exactness.numerics(CPU, Config(), 2, "torch")
    assert exactness.differences(before, exactness.numerics(CPU, Config(), 2, "horovod")) is None
    assert exactness.differences(before, before | {"torch": "9.9"}) == f"torch {torch.__version__} -> 9.9"
    threads = int(before["threads"])
    with_one_more = before | {"threads": str(threads + 1), "slots": "4"}  # whatever this machine has
    assert exactness.differences(before, with_one_more) == f"threads {threads} -> {threads + 1}"
    elastic = Config(logical_workers=4)
    sizes = [exactness.numerics(CPU, elastic, size, "torch") for size in (2, 4)]
    assert exactness.differences(*sizes) is None


def test_a_rank_tells_what_its_libraries_are():
    facts = exactness.libraries(CPU, "torch")
    assert facts["interop_threads"] == str(torch.get_num_interop_threads())
    assert facts["openmp"].isdigit()
    assert not facts.keys() & exactness.numerics(CPU, Config(), 2, "torch").keys()
    assert "driver" not in facts


def test_an_operation_without_a_deterministic_kernel_is_told_once(monkeypatch, recwarn):
    told = []
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    exactness.hear_nondeterminism(told.append)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning(
            UserWarning("cumsum_cuda does not have a deterministic implementation, but"), UserWarning, "a", 1
        )
        warnings.showwarning(
            UserWarning("cumsum_cuda does not have a deterministic implementation, but"), UserWarning, "a", 1
        )
        warnings.showwarning(UserWarning("something else"), UserWarning, "a", 1)
    assert told == ["cumsum_cuda"]


@pytest.mark.parametrize(
    ("source", "unseen"),
    [
        ("import torch\nx = torch.utils.data.TensorDataset\n", False),
        ("class A:\n    def f(self): return self.data\n", False),
        ("def loss(model): model.weight.data.clamp_(0, 1)\n", True),
        ("def f(self): self.weight.data = 3\n", True),
    ],
)
def test_only_tensors_that_are_written_to_by_data_make_copies_eager(tmp_path, source, unseen):
    (tmp_path / "definition.py").write_text(source)
    model = norm()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    assert exactness.writes_unseen(model, [optimizer], [tmp_path, tmp_path]) is unseen
