"""Test the code for CUDA: copies on a side stream, random states, mixed precision, determinism, NCCL."""

from __future__ import annotations

import pytest
import torch
from gang import DIGITS, Trial

from kernel_backend.model.experiment import AutoBatch
from kernel_backend.model.facts import BatchSize
from kernel_backend.model.reports import Fact
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.random_states import RandomStates

pytestmark = pytest.mark.gpu

COSINE = "def schedule(optimizer, steps): return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)\n"
# Each sample needs a 32nd of the GPU's memory in the backward pass.
WIDE = """def loss(output, target, pause=0.0):
    share = torch.cuda.get_device_properties(0).total_memory // 4 // 32
    output = output + output.sum(1, keepdim=True).expand(-1, share // 2).sigmoid().mean(1, keepdim=True)"""
ALL = {"ema": 0.9, "amp": "fp16", "clip": 0.5}


def test_a_copy_on_the_side_stream_is_the_state_before_the_update_that_follows():
    device = torch.device("cuda")
    weights = {f"w{index}": torch.randn(1000, 1000, device=device) for index in range(20)}
    memory = HostCopy(device)
    for _ in range(20):
        expected = {name: tensor.cpu() for name, tensor in weights.items()}
        copying = memory.begin({"model": weights}, lazily=True)
        busy = weights["w0"] @ weights["w1"]  # the next step's work, which changes nothing
        assert copying.join()
        for tensor in weights.values():
            tensor.add_(busy.mean().clamp(-1, 1))  # else infinite after some rounds, and changes nothing more
        copying.arrived()
        assert all(torch.equal(copying.copies["model"][name], tensor) for name, tensor in expected.items())
        copying.done()


def test_a_weight_that_is_written_to_meanwhile_is_seen():
    weight = torch.randn(1000, 1000, device="cuda")
    copying = HostCopy(torch.device("cuda")).begin({"model": {"weight": weight}}, lazily=True)
    weight.clamp_(-1, 1)
    assert not copying.join()


def test_the_devices_generator_is_seeded_and_saved_with_the_others():
    torch.cuda.init()
    seeds.reseed(5)
    first = torch.rand(10, device="cuda")
    seeds.reseed(5)
    assert torch.equal(torch.rand(10, device="cuda"), first)
    streams = RandomStates()
    states = streams.state_dict()
    expected = torch.rand(10, device="cuda")
    streams.load_state_dict(states)
    assert torch.equal(torch.rand(10, device="cuda"), expected)


def test_two_runs_on_a_gpu_give_the_same_bits_and_a_killed_one_too(tmp_path):
    source = DIGITS + COSINE
    whole = Trial(tmp_path / "whole", source=source, slots=1, kind="cuda", options=ALL)
    again = Trial(tmp_path / "again", source=source, slots=1, kind="cuda", options=ALL)
    first, second = whole.run(), again.run()
    assert first.codes == second.codes == [0], first.logs() + second.logs()
    assert first.started.guarantee.startswith("reproducible: a kill changes no bit of the result, on 1 slot and ")
    assert whole.parts() == again.parts()
    killed = Trial(
        tmp_path / "killed", source=source, slots=1, kind="cuda", options=ALL, every="2steps", params={"pause": 0.05}
    )
    killed.start(hold=11).reaches(8).kill(0)
    resumed = killed.run(resume_from=killed.newest().id)
    assert resumed.codes == [0], resumed.logs()
    assert killed.parts() == whole.parts()
    assert resumed.reports("validation")[12] == first.reports("validation")[12]


def test_the_memory_of_a_gpu_limits_the_batch_size_and_the_bits_are_those_of_a_fixed_one(tmp_path):
    source = DIGITS.replace("def loss(output, target, pause=0.0):", WIDE)
    auto = Trial(tmp_path / "auto", source=source, slots=1, kind="cuda", options={"auto_batch": AutoBatch()})
    ran = auto.run()
    assert ran.codes == [0], ran.logs()
    (fact,) = [each.value for each in ran.records if isinstance(each, Fact) and each.name == "batch"]
    batch = BatchSize.model_validate(fact)
    assert 2 <= batch.size < 70
    assert " does not fit in " in batch.reason
    fixed = Trial(tmp_path / "fixed", source=source, slots=1, kind="cuda", batch_size=batch.size)
    assert fixed.run().codes == [0]
    assert auto.parts() == fixed.parts()


def test_logical_workers_on_one_gpu(tmp_path):
    trial = Trial(tmp_path / "trial", slots=1, kind="cuda", options={"logical_workers": 4})
    again = Trial(tmp_path / "again", slots=1, kind="cuda", options={"logical_workers": 4})
    assert trial.run().codes == again.run().codes == [0]
    assert trial.parts() == again.parts()


def test_a_machine_with_gpus_trains_on_its_cpu_when_asked(tmp_path):
    trial = Trial(tmp_path / "trial", slots=2, kind="cuda", options={"device": "cpu"})
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    assert ran.started.runtime["device"] == "cpu"


@pytest.mark.gpu(devices=2)
def test_two_gpus_over_nccl_give_the_same_bits_in_every_run(tmp_path):
    trials = [Trial(tmp_path / str(index), slots=2, kind="cuda", options=ALL) for index in range(2)]
    for trial in trials:
        ran = trial.run()
        assert ran.codes == [0, 0], ran.logs()
    assert trials[0].parts() == trials[1].parts()
