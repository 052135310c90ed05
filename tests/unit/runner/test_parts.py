"""Test small parts of a worker: seeds, buckets, cadence, sums, failures, the spool, the choice of a backend."""

from __future__ import annotations

import os
import random
import traceback
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from kernel_backend.errors import InvalidDefinition, InvalidRequest
from kernel_backend.model.experiment import Cadence
from kernel_backend.model.reports import Note
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.model.trial import Failure
from kernel_backend.runner.checkpoint.saving import Cost
from kernel_backend.runner.definition.load import load
from kernel_backend.runner.determinism.seeds import mix, reseed
from kernel_backend.runner.failure import describe, is_consequence, write
from kernel_backend.runner.gradients.reducer import ControlFlags, OwnGradients, SummedGradients, buckets, view_like
from kernel_backend.runner.gradients.tree import TreeGradients
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.loop.cadence import CadenceTimer, interval
from kernel_backend.runner.metrics.join import rows
from kernel_backend.runner.metrics.sums import Sums, evaluating
from kernel_backend.runner.ranks.backends import SingleRank, choose
from tests.support.spools import read_after

OFF = GradScaler("cpu", enabled=False)
NONE = ControlFlags()


def test_mixed_seeds_are_fixed_for_ever_and_differ_by_every_part():
    assert mix(0, "order", 1) == mix(0, "order", 1)
    parts = [("order", 1), ("order", 2), ("step", 1), ("step", 1, 0), ("step", 0, 1), ()]
    assert len({mix(seed, *each) for seed in (0, 1, 2**63 - 1) for each in parts}) == 18
    assert (mix(0), mix(0, "step", 7, 1)) == (8147104208329303767, 4739800786580972196)
    assert all(0 <= mix(seed, "a") < 2**63 for seed in range(50))


def test_reseeding_makes_all_three_generators_repeat_themselves():
    def draws():
        reseed(5)
        return random.random(), np.random.rand(), float(torch.rand(()))

    assert draws() == draws()


def test_buckets_hold_latest_parameters_first_and_one_dtype_each():
    sizes = [(torch.float32, 40), (torch.float32, 40), (torch.float16, 40), (torch.float32, 40), (torch.float32, 10)]
    assert buckets(sizes, 50) == [[4, 3], [2], [1, 0]]
    assert buckets(sizes, 1) == [[4], [3], [2], [1], [0]]
    assert buckets([]) == []


def test_a_bucket_is_sent_only_when_every_parameter_in_it_may_be_ready():
    sizes = [(torch.float32, 10), (torch.float16, 10)] * 4
    for plan in (buckets(sizes, 15), buckets(sizes, 100)):
        assert sorted(index for bucket in plan for index in bucket) == list(range(8))
        earliest = [min(bucket) for bucket in plan]
        assert earliest == sorted(earliest, reverse=True)


def test_a_gang_of_one_takes_the_plain_gradient():
    net = nn.Linear(2, 1)
    gradients = OwnGradients(dict(net.named_parameters()), OFF)
    gradients.begin()
    gradients.add(net(torch.ones(3, 2)).mean(), 3, 3, ControlFlags(report=True))
    word = gradients.finish()
    assert torch.equal(net.weight.grad, torch.ones(1, 2))
    assert (word.samples, word.flags) == (3, ControlFlags(report=True))


def summed(net):
    return SummedGradients(dict(net.named_parameters()), OFF, SingleRank())


def treed(net):
    return TreeGradients(dict(net.named_parameters()), OFF, SingleRank(), [range(1)])


def step(gradients, loss, samples=1, total=1, flags=NONE):
    gradients.begin()
    gradients.add(loss, samples, total, flags)
    return gradients.finish()


@pytest.mark.parametrize("reducer", [summed, treed])
def test_a_share_weighs_what_it_has_of_the_global_batch(reducer):
    net = nn.Linear(2, 1)
    gradients = reducer(net)
    for flags in (ControlFlags(checkpoint=True, logged=True), NONE):
        word = step(gradients, net(torch.ones(3, 2)).mean() * 0 + 8.0, 3, 12, flags)
        assert word == (3, 2.0, flags)
    step(gradients, net(torch.ones(3, 2)).mean(), 3, 12)
    assert net.weight.grad.tolist() == [[0.25, 0.25]]
    assert step(gradients, None, 0, 12) == (0, 0.0, NONE)
    assert net.weight.grad is None


def scaler():
    return GradScaler("cpu", init_scale=65536.0)


@pytest.mark.parametrize(
    ("reducer", "share"),
    [
        (lambda net: OwnGradients(dict(net.named_parameters()), scaler()), 4096),
        (lambda net: SummedGradients(dict(net.named_parameters()), scaler(), SingleRank()), 2048),
        (lambda net: TreeGradients(dict(net.named_parameters()), scaler(), SingleRank(), [range(1)]), 2048),
    ],
    ids=["own", "summed", "tree"],
)
def test_a_scaled_loss_overflows_no_earlier_in_a_gang_than_alone(reducer, share):
    """The largest number of 16 bits is 65,504."""
    net = nn.Linear(4, 1)
    nn.init.constant_(net.weight, 0.1)
    nn.init.zeros_(net.bias)
    gradients, x = reducer(net), torch.full((share, 4), 0.5)
    with torch.autocast("cpu", torch.float16):
        loss = net(x).float().square().mean()
    step(gradients, loss, share, 4096)
    assert net.weight.grad.isfinite().all()


@pytest.mark.parametrize("reducer", [summed, treed])
def test_a_parameter_that_is_trained_though_it_was_frozen_at_the_start_is_named(reducer):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).requires_grad_(False)
    net[1].requires_grad_(True)
    net[0].weight.grad = torch.ones(2, 2)  # of a training before this one
    gradients = reducer(net)
    step(gradients, net(torch.ones(1, 2)).mean())
    assert net[0].weight.grad is None
    net[0].weight.requires_grad_(True)
    with pytest.raises(InvalidDefinition, match=r"parameter 0\.weight was frozen when the training began"):
        step(gradients, net(torch.ones(1, 2)).mean())


@pytest.mark.parametrize("reducer", [summed, treed])
def test_a_parameter_may_be_frozen_and_trained_again(reducer):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    gradients = reducer(net)
    for trained in (True, False, False, True):
        net[0].requires_grad_(trained)
        step(gradients, net(torch.ones(1, 2)).mean())
        assert (net[0].weight.grad is not None) == trained
        assert net[1].weight.grad is not None


def test_alone_a_parameter_may_thaw_and_its_gradients_do_not_pile_up():
    net = nn.Linear(2, 1).requires_grad_(False)
    gradients = OwnGradients(dict(net.named_parameters()), OFF)
    net.requires_grad_(True)
    for _ in range(2):
        step(gradients, net(torch.ones(1, 2)).mean())
        assert net.weight.grad.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    "parameter",
    [
        torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last),
        torch.randn(8, 3, 1, 1).to(memory_format=torch.channels_last),
        torch.randn(4, 6).t(),
        torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
        torch.randn(()),
        torch.randn(0, 3),
    ],
    ids=lambda each: str(tuple(each.shape)),
)
def test_gradients_lie_in_memory_as_their_parameters_do(parameter):
    flat = torch.arange(10.0 + parameter.numel())
    view = view_like(parameter, flat[10:])
    assert (view.shape, view.stride()) == (parameter.shape, parameter.stride())
    assert sorted(view.flatten().tolist()) == flat[10:].tolist()
    assert view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


@pytest.mark.parametrize("parameter", [torch.randn(4, 6)[:, ::2], torch.randn(4, 1).expand(4, 3)])
def test_a_parameter_with_gaps_or_overlaps_has_a_contiguous_gradient(parameter):
    assert view_like(parameter, torch.zeros(12)).is_contiguous()


@pytest.fixture
def clock(monkeypatch):
    """Stop the clock by which the speed of a training is measured."""
    monkeypatch.setattr("kernel_backend.runner.loop.cadence.time", SimpleNamespace(monotonic=lambda: 7.0))


def pace_of(per_epoch, every):
    return CadenceTimer(per_epoch, every, lambda: Cost(), lambda: False)


@pytest.mark.usefixtures("clock")
def test_reports_lie_on_a_grid_of_about_fifty_an_epoch_and_at_its_end():
    pace = pace_of(1003, Cadence(seconds=60))
    steps = [step for step in range(1, 2007) if pace.report(step)]
    assert steps[:3] == [20, 40, 60]
    assert 1003 in steps
    assert 1023 in steps
    assert 2006 in steps
    assert all(pace_of(7, Cadence(steps=1)).report(step) for step in range(1, 15))
    of_unknown_length = pace_of(None, None)
    assert [step for step in range(1, 160) if of_unknown_length.report(step)] == [*range(1, 51), 100, 150]


@pytest.mark.usefixtures("clock")
def test_checkpoints_are_due_by_steps_epochs_or_seconds():
    def due(**every):
        return [step for step in range(1, 13) if pace_of(4, Cadence(**every)).checkpoint(step)]

    assert due(steps=5) == [5, 10]
    assert due(epochs=2) == []
    assert [epoch for epoch in range(1, 7) if pace_of(None, Cadence(epochs=2)).after_epoch(epoch)] == [2, 4, 6]
    assert not pace_of(4, Cadence(steps=2)).after_epoch(2)
    assert due(seconds=1000) == []
    assert due(seconds=0) == list(range(1, 13))


@pytest.mark.usefixtures("clock")
def test_adaptive_checkpoints_cost_at_most_a_hundredth_of_the_time_and_half_of_the_disks():
    assert interval(Cost()) == 5.0
    assert interval(Cost(stall=0.1, write=0.2)) == pytest.approx(10.0)
    assert interval(Cost(stall=0.001, write=12.0)) == 24.0
    assert interval(Cost(stall=5.0, write=1.0)) == 60.0
    assert not any(pace_of(4, None).checkpoint(step) for step in range(1, 13))


def test_sums_take_one_value_a_sample_or_a_mean():
    sums = Sums()
    sums.add("accuracy", torch.tensor([1.0, 0.0, 1.0]), 3)
    sums.add("accuracy", torch.tensor([1.0]), 1)
    sums.add("wide", torch.tensor([[1.0, 3.0], [5.0, 7.0]]), 2)
    sums.add("mean", torch.tensor(2.0), 3)
    sums.add("mean", 6, 1)
    assert sums.means(SingleRank()) == {"accuracy": 0.75, "wide": 4.0, "mean": 3.0}
    assert sums
    assert not Sums()
    with pytest.raises(InvalidDefinition, match="metric f1 has 2 values for a batch of 3 samples"):
        sums.add("f1", torch.ones(2), 3)


def test_some_rows_of_nested_values_are_taken_and_what_has_none_stays_whole():
    column, scale = torch.arange(4), torch.tensor(2.0)
    value = {"pair": (column, np.arange(4)), "names": ["a", "b", "c", "d"], "scale": scale, "epoch": 3}
    some = rows(value, 4, slice(1, 3))
    assert [each.tolist() for each in some["pair"]] == [[1, 2], [1, 2]]
    assert (some["names"], some["epoch"]) == (["b", "c"], 3)
    assert some["scale"] is scale
    columns = rows([column] * 4, 4, slice(1, 3))  # as many columns as samples
    assert [each.tolist() for each in columns] == [[1, 2]] * 4


def test_validation_leaves_every_module_in_the_mode_it_had():
    net = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2).eval())
    with evaluating(net):
        assert not any(module.training for module in net.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in net] == [True, False]


def failure_of(source, tmp_path, name="definition.py"):
    path = tmp_path / name
    path.write_text(source)
    piece = Piece(cell=9, line=1, count=10, cell_line=3)
    environment = Environment(python="", implementation="", platform="", cpu="", cores=1, distributions={})
    snapshot = Snapshot(version="", numerics=1, pieces=(piece,), roles_from=1, environment=environment)
    try:
        exec(compile(source, str(path), "exec"), {"torch": torch})
    except BaseException as error:
        return describe(error, 1, 7, tmp_path, tmp_path, snapshot)
    raise AssertionError("nothing was raised")


def test_a_failure_shows_the_users_own_frames_by_cell(tmp_path):
    failure = failure_of("def loss():\n    torch.ones(2) @ torch.ones(3)\n\nloss()\n", tmp_path)
    assert [(frame.function, frame.where) for frame in failure.frames] == [
        ("<module>", "cell [9] line 6"),
        ("loss", "cell [9] line 4"),
    ]
    assert failure.frames[1].text == "torch.ones(2) @ torch.ones(3)"
    assert (failure.type, failure.step, failure.consequence) == ("RuntimeError", 7, False)
    assert "inconsistent tensor size" in failure.message


def test_a_project_file_is_shown_by_its_own_name(tmp_path):
    failure = failure_of("raise KeyError('a')", tmp_path, "helpers.py")
    assert [frame.where for frame in failure.frames] == ["helpers.py line 1"]


def test_a_syntax_error_points_at_its_line(tmp_path):
    failure = failure_of("x = 1\ny = = 2\n", tmp_path)
    assert (failure.frames[-1].where, failure.frames[-1].text) == ("cell [9] line 4", "y = = 2")


def test_a_traceback_begins_with_the_first_line_that_the_user_wrote(tmp_path):
    lines = [
        "def model(): raise KeyError('a') from ValueError('b')",
        "def train_data(): ...",
        "def loss(output): ...",
        "model()",
    ]
    (tmp_path / "definition.py").write_text("\n".join(lines))
    with pytest.raises(KeyError) as caught:
        load(tmp_path, tmp_path)
    failure = describe(caught.value.with_traceback(caught.tb.tb_next), 0, None, tmp_path, tmp_path, None)
    files = [line for line in failure.traceback.splitlines() if line.startswith("  File")]
    assert files[0] == f'  File "{tmp_path}/definition.py", line 4, in <module>'
    assert "ValueError: b" in failure.traceback


def test_an_import_that_fails_shows_the_users_line_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    failure = failure_of("import broken", tmp_path)
    assert [frame.where for frame in failure.frames] == ["cell [9] line 3", "broken.py line 1"]


def test_an_error_that_cannot_be_put_into_words_is_told_all_the_same(tmp_path):
    mute = "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute()"
    assert failure_of(mute, tmp_path).message == "its text is not available: __str__ raised RuntimeError"
    torn = failure_of("raise ValueError('half \\ud800 of a pair')", tmp_path)
    write(torn, tmp_path)
    assert torn.message == r"half \ud800 of a pair"
    assert Failure.model_validate_json((tmp_path / f"failure-{torn.rank}.json").read_bytes()) == torn


def test_an_error_of_our_own_keeps_its_frames(tmp_path):
    with pytest.raises(InvalidRequest) as caught:
        choose("horovod", "tpu")
    failure = describe(caught.value.with_traceback(caught.tb.tb_next), 0, None, tmp_path, tmp_path, None)
    assert "backends.py" in failure.traceback


def test_leaving_the_process_is_a_failure_that_says_so(tmp_path):
    assert failure_of("raise SystemExit(0)", tmp_path).message == "the program ended itself by sys.exit(0)"


def test_a_program_that_leaves_shows_the_last_lines_that_it_printed(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_text("epoch 1\n\nno data in /data\n")
    failure = describe(SystemExit(1), 0, None, tmp_path, tmp_path, None, log)
    first, *rest = failure.message.splitlines()
    assert first == "the program ended itself by sys.exit(1)"
    assert rest == ["the last lines that it printed:", "  epoch 1", "  no data in /data"]
    log.write_text("epoch 1 took 3.1 s\n")
    assert failure.same_as(describe(SystemExit(1), 0, None, tmp_path, tmp_path, None, log))


def test_a_lost_peer_is_a_consequence_and_an_error_of_the_user_is_none():
    class HorovodInternalError(RuntimeError): ...

    assert is_consequence(HorovodInternalError("anything"))
    assert is_consequence(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:9"))
    assert not is_consequence(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_consequence(ConnectionResetError("Connection reset by peer"))  # of a download, say


def test_records_are_numbered_from_one_and_only_rank_0_speaks(tmp_path):
    Spool(tmp_path / "spool", rank=1).say(Note(text="unheard"))
    spool = Spool(tmp_path / "spool", rank=0)
    spool.say(Note(text="one"))
    spool.say(Note(text="two"))
    found = read_after(tmp_path / "spool", 0)
    assert [(each.number, each.text) for each in found] == [(1, "one"), (2, "two")]
    assert found[0].at > 0


@pytest.mark.parametrize("written", [0, 20])
def test_a_record_that_finds_the_disk_full_is_written_with_the_next(tmp_path, monkeypatch, written):
    spool = Spool(tmp_path / "spool", rank=0)
    spool.say(Note(text="one"))
    real = os.write

    def full(descriptor, data):
        real(descriptor, data[:written])
        if written == 0:
            raise OSError(28, "No space left on device")
        return written

    monkeypatch.setattr("os.write", full)
    spool.say(Note(text="two"))
    monkeypatch.setattr("os.write", real)
    spool.say(Note(text="three"))
    assert [(each.number, each.text) for each in read_after(tmp_path / "spool", 0)] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]


def test_torch_is_chosen_when_asked_for():
    assert choose("torch", "cpu").name == "torch"


def test_horovod_on_a_device_that_it_is_not_built_for_is_an_error_with_the_way_out(monkeypatch):
    pytest.importorskip("horovod.torch").nccl_built() and pytest.skip("this Horovod is built for CUDA")
    with pytest.raises(InvalidRequest, match="--backend torch"):
        choose("horovod", "cuda")
    assert choose("auto", "cuda").reason == "Horovod is built without NCCL, which cuda needs"


def test_horovod_without_a_rendezvous_is_not_chosen(monkeypatch):
    pytest.importorskip("horovod.torch")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", raising=False)
    assert choose("auto", "cpu") == ("torch", "the launcher started no Horovod rendezvous")
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
    assert choose("auto", "cpu") == ("horovod", "built for cpu")


def test_a_deep_recursion_shows_its_innermost_frames(tmp_path):
    failure = failure_of("def f(): f()\nf()\n", tmp_path)
    assert failure.type == "RecursionError"
    assert len(failure.frames) == 30
    assert len(failure.traceback) < 100 * len(traceback.format_exc()) + 100_000
