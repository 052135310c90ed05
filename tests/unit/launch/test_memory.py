"""Test the detection of processes that the kernel has killed for lack of memory, with files as the kernel has them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from kernel_backend.launch.gang_outcome import result_of
from kernel_backend.launch.watch.memory import MemoryWatch
from kernel_backend.model.reports import NodeEnd
from kernel_backend.model.trial import Failure

NO_LIMIT = 9223372036854771712  # as version 1 of control groups says it


class Kernel:
    """Files of a kernel about the control groups and the memory of a machine."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        self.write("proc/vmstat", "pgpgin 5\noom_kill 3\noom_kill_other 9\n")

    def write(self, name: str, text: str) -> None:
        path = self.proc.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def watch(self) -> MemoryWatch:
        return MemoryWatch(self.proc, self.groups)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_a_kill_in_a_group_of_version_2_is_named_with_the_lowest_limit_above_it(kernel: Kernel) -> None:
    kernel.write("proc/self/cgroup", "0::/user.slice/jupyter.scope\n")
    events = "cgroup/user.slice/jupyter.scope/memory.events"
    kernel.write(events, "low 0\noom 0\noom_kill 1\noom_group_kill 0\n")
    kernel.write("cgroup/user.slice/jupyter.scope/memory.max", "max\n")
    kernel.write("cgroup/user.slice/memory.max", "2000000000\n")
    watch = kernel.watch()
    assert watch.lack() == ""
    kernel.write("proc/vmstat", "oom_kill 4\n")  # of another group
    assert watch.lack() == ""
    kernel.write(events, "low 0\noom 1\noom_kill 2\noom_group_kill 0\n")
    assert watch.lack() == "the limit here is 2.0 GB"


@pytest.mark.parametrize("inside", ["docker/f00", ""])  # in a container, the host's path may not be visible
def test_a_kill_in_a_group_of_version_1_is_named_with_its_limit(kernel: Kernel, inside: str) -> None:
    kernel.write("proc/self/cgroup", "5:cpu,cpuacct:/docker/f00\n4:memory:/docker/f00\n0::/\n")
    folder = f"cgroup/memory/{inside}/"
    kernel.write(folder + "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    kernel.write(folder + "memory.stat", "cache 12\nhierarchical_memory_limit 1500000000\n")
    watch = kernel.watch()
    assert watch.lack() == ""
    kernel.write(folder + "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert watch.lack() == "the limit here is 1.5 GB"
    kernel.write(folder + "memory.stat", f"cache 12\nhierarchical_memory_limit {NO_LIMIT}\n")
    assert watch.lack() == f"this node has {psutil.virtual_memory().total / 1e9:.1f} GB"


def test_without_groups_the_kills_of_the_machine_count(kernel: Kernel) -> None:
    kernel.write("proc/self/cgroup", "0::/\n")  # the root has no counter of its own
    watch = kernel.watch()
    assert watch.lack() == ""
    kernel.write("proc/vmstat", "oom_kill 4\n")
    assert watch.lack().startswith("this node has ")


@pytest.mark.parametrize("text", ["", "garbage", "1:memory\n::\n", "oom_kill many\n"])
def test_without_a_counter_nothing_is_detected(kernel: Kernel, text: str) -> None:
    kernel.write("proc/self/cgroup", text)
    kernel.write("proc/vmstat", text)
    watch = kernel.watch()
    kernel.write("proc/vmstat", "oom_kill 4\n")
    assert watch.lack() == ""


def of_two(memory: str, codes: dict[int, int], *failures: Failure) -> list[NodeEnd]:
    """Return the ends of two nodes with a rank each; `memory` is what the second says of its memory."""
    names = ("a", "b")
    first = NodeEnd(node=0, names=names, size=2, codes={0: codes[0]}, ended_at=1.0)
    return [
        first,
        NodeEnd(node=1, names=names, size=2, codes={1: codes[1]}, failures=failures, memory=memory, ended_at=2.0),
    ]


def test_a_rank_that_the_kernel_killed_fails_as_out_of_memory() -> None:
    failure = result_of(of_two("the limit here is 2.0 GB", {0: 0, 1: -9})).failure
    assert failure is not None
    assert (failure.rank, failure.type) == (1, "OutOfMemory")
    assert failure.message == (
        "rank 1 was ended by SIGKILL. The kernel had no memory left for it (the limit here is 2.0 GB): "
        "a smaller batch or fewer loader workers need less"
    )


def test_a_loader_worker_that_the_kernel_killed_is_named_with_its_cause() -> None:
    worker = Failure(rank=1, type="RuntimeError", message="DataLoader worker (pid 7) is killed by signal: Killed. ")
    failure = result_of(of_two("this node has 16.0 GB", {0: 0, 1: 1}, worker)).failure
    assert failure is not None
    assert failure.type == "OutOfMemory"
    assert failure.message.startswith("DataLoader worker (pid 7) is killed by signal: Killed. The kernel had no memory")


@pytest.mark.parametrize(("codes", "kind"), [({0: -9, 1: 0}, "SIGKILL"), ({0: 0, 1: -11}, "SIGSEGV")])
def test_what_was_killed_elsewhere_or_by_another_signal_is_not_blamed_on_memory(
    codes: dict[int, int], kind: str
) -> None:
    failure = result_of(of_two("the limit here is 2.0 GB", codes)).failure
    assert failure is not None
    assert failure.type == kind
    assert "memory left" not in failure.message
