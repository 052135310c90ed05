"""Give Horovod, torch.distributed and a single process the same small interface for collective operations."""

from __future__ import annotations

import math
import os
import pickle
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import BackendChoice

# Pauses between two looks at an operation of Horovod, in seconds: each is twice the one before, up to the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.00002, 0.0002


class Handle(Protocol):
    """Handle of an all-reduce that was started, and may still be in progress."""

    def wait(self) -> None:
        """Wait until the tensor holds the sum over all ranks; raise the backend's error if a rank is lost."""


class Ranks(Protocol):
    """Process group as seen by one rank; every call except `allreduce_async` blocks until all ranks have made it."""

    rank: int
    size: int
    local_rank: int

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Start to replace a tensor by its sum over all ranks; return a handle that waits for the sum.

        `name` must be equal on all ranks, and not in use by another operation in progress.
        """

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Replace a tensor by its sum over all ranks, and return it."""

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Send `sends[r]` elements of a flat tensor to each rank r, and return what the ranks sent, in rank order.

        `receives[r]` is the number of elements that rank r sends to this one.
        """

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """Return the concatenated flat tensors of all ranks, in rank order; all must have the same length."""

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Overwrite the tensor with the one of rank `root`, and return it."""

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """Return the `value` that rank `root` has passed; the values of other ranks are ignored."""

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the values that all ranks have passed, in rank order."""

    def barrier(self) -> None:
        """Return once all ranks have called this."""

    def close(self) -> None:
        """Disconnect from the other ranks."""


class Choice(NamedTuple):
    """Backend for the communication between ranks, `horovod` or `torch`, and the reason for its choice as text."""

    name: str
    reason: str


def choose(backend: BackendChoice, kind: str) -> Choice:
    """Choose the backend for devices of `kind` (`cpu` or `cuda`): Horovod if it is usable for them, else torch.

    `backend` is the option `--backend`. Raises InvalidRequest if Horovod was requested and cannot be used.
    """
    if backend == "torch":
        return Choice("torch", "requested")
    problem = horovod_problem(kind)
    if problem is None:
        return Choice("horovod", "requested" if backend == "horovod" else f"built for {kind}")
    if backend == "horovod":
        raise InvalidRequest(
            f"backend horovod cannot be used: {problem}. Submit with --backend torch, or build Horovod into this "
            "environment (`make setup` does; the guide has it under Installation)",
            backend=backend,
        )
    return Choice("torch", problem)


def horovod_problem(kind: str) -> str | None:
    """Return the reason why Horovod cannot be used for devices of `kind`; None if it can."""
    try:
        import horovod.torch as hvd
    except ImportError as error:
        return f"Horovod is not installed ({error})" if error.name != "horovod" else "Horovod is not installed"
    # A Horovod without NCCL accepts CUDA tensors, too, but copies them before they are ready.
    if kind != "cpu" and not hvd.nccl_built():
        return f"Horovod is built without NCCL, which {kind} needs"
    if kind == "cpu" and not hvd.gloo_built():
        return "Horovod is built without Gloo"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "HOROVOD_GLOO_RENDEZVOUS_ADDR" not in os.environ:
        return "the launcher started no Horovod rendezvous"
    return None


def connect(choice: Choice, kind: str, patience: float) -> Ranks:
    """Connect this process to the other ranks, by the environment variables that the launcher has set.

    With a single rank, nothing is connected. `patience` is the number of seconds after which a silent rank counts as
    lost; the launcher detects dead and hung ranks much sooner.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if size == 1:
        return SingleRank()
    if choice.name == "horovod":
        return HorovodRanks(patience)
    return TorchRanks("nccl" if kind == "cuda" else "gloo", rank, size, local_rank, patience)


class SingleRank:
    """Process group with a single rank, in which collective operations have nothing to do."""

    rank, size, local_rank = 0, 1, 0

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Return a handle whose `wait` returns at once: with one rank, the tensor is the sum already."""
        return _Done()

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Return the tensor unchanged."""
        return tensor

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Return the tensor unchanged."""
        return tensor

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """Return the tensor unchanged."""
        return tensor

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Return the tensor unchanged."""
        return tensor

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """Return the value unchanged."""
        return value

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the value in a list of one."""
        return [value]

    def barrier(self) -> None:
        """Do nothing, as there is no other rank."""

    def close(self) -> None:
        """Do nothing, as there is no other rank."""


class _Done:
    def wait(self) -> None: ...


class HorovodRanks:
    """Process group of Horovod without its tensor fusion, which makes sums depend on timing."""

    def __init__(self, patience: float) -> None:
        os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(math.ceil(patience))
        os.environ.setdefault("HOROVOD_FUSION_THRESHOLD", "0")
        os.environ.setdefault("HOROVOD_CYCLE_TIME", "1")
        import horovod.torch as hvd

        hvd.init()
        self._hvd = hvd
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Start to replace a tensor by its sum over all ranks; return a handle that waits for the sum."""
        sent = torch.view_as_real(tensor) if tensor.is_complex() else tensor  # Horovod knows no complex numbers
        return _HorovodHandle(self._hvd, self._hvd.allreduce_async_(sent, name=name, op=self._hvd.Sum))

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Replace a tensor by its sum over all ranks, and return it."""
        self.allreduce_async(tensor, name).wait()
        return tensor

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Send `sends[i]` elements of the tensor to rank i; return what all ranks sent to this one, in rank order."""
        splits = torch.tensor(sends, dtype=torch.int32)
        got, _ = self._result(self._hvd.alltoall_async(tensor, splits=splits, name=f"{name}.exchange"))
        return cast("Tensor", got)

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """Return the concatenated flat tensors of all ranks, in rank order."""
        return cast("Tensor", self._result(self._hvd.allgather_async(tensor, name=f"{name}.join")))

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Overwrite the tensor with the one of rank `root`, and return it."""
        self._result(self._hvd.broadcast_async_(tensor, root, name="broadcast"))
        return tensor

    # Horovod has functions for objects, which wait as its `synchronize` does: at full speed of a core.

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """Return the `value` that rank `root` has passed."""
        packed = _packed(value) if self.rank == root else torch.empty(0, dtype=torch.uint8)
        size = self.broadcast(torch.tensor([packed.numel()]), root)
        if self.rank != root:
            packed = packed.new_empty(int(size))
        self.broadcast(packed, root)
        return value if self.rank == root else _unpacked(packed)

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the values that all ranks have passed, in rank order."""
        packed = _packed(value)
        sizes = self.all_gather(torch.tensor([packed.numel()]), "objects.sizes").tolist()
        return [_unpacked(part) for part in self.all_gather(packed, "objects").split_with_sizes(sizes)]

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.allreduce_sum(torch.zeros(1), "barrier")

    def close(self) -> None:
        """Shut Horovod down."""
        self._hvd.shutdown()

    def _result(self, handle: int) -> Any:
        return _HorovodHandle(self._hvd, handle).result()


class _HorovodHandle:
    def __init__(self, hvd: Any, handle: int) -> None:
        self._hvd, self._handle = hvd, handle

    def wait(self) -> None:
        self.result()

    def result(self) -> Any:
        """Wait until the operation has ended, and return its tensors; raises Horovod's error if a rank is lost.

        Horovod's own `synchronize` occupies a core while it waits, which takes it from the ranks that others wait for.
        """
        pause = _FIRST_PAUSE_S
        while not self._hvd.poll(self._handle):
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return self._hvd.synchronize(self._handle)


def _packed(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _unpacked(packed: Tensor) -> Any:
    return pickle.loads(packed.numpy().tobytes())


class TorchRanks:
    """Process group of torch.distributed: gloo on CPUs, nccl on CUDA devices."""

    def __init__(self, backend: str, rank: int, size: int, local_rank: int, patience: float) -> None:
        import torch.distributed as dist

        dist.init_process_group(backend, rank=rank, world_size=size, timeout=timedelta(seconds=patience))
        self._dist = dist
        self.rank, self.size, self.local_rank = rank, size, local_rank

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Start to replace a tensor by its sum over all ranks; return a handle that waits for the sum."""
        work: Handle = self._dist.all_reduce(tensor, async_op=True)
        return work

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Replace a tensor by its sum over all ranks, and return it."""
        self._dist.all_reduce(tensor)
        return tensor

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Send `sends[i]` elements of the tensor to rank i; return what all ranks sent to this one, in rank order."""
        got = tensor.new_empty(sum(receives))
        self._dist.all_to_all_single(got, tensor, list(receives), list(sends))
        return got

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """Return the concatenated flat tensors of all ranks, in rank order."""
        joined = tensor.new_empty(tensor.numel() * self.size)
        self._dist.all_gather(list(joined.chunk(self.size)), tensor)
        return joined

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Overwrite the tensor with the one of rank `root`, and return it."""
        self._dist.broadcast(tensor, root)
        return tensor

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """Return the `value` that rank `root` has passed."""
        box = [value]
        self._dist.broadcast_object_list(box, root)
        return box[0]

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the values that all ranks have passed, in rank order."""
        values: list[Any] = [None] * self.size
        self._dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for all ranks."""
        # Not dist.barrier, which with nccl guesses a device.
        self.allreduce_sum(torch.zeros(1, device=self._device()), "barrier")
        if self._dist.get_backend() == "nccl":
            torch.cuda.synchronize()

    def close(self) -> None:
        """Leave the process group."""
        self._dist.destroy_process_group()

    def _device(self) -> str:
        return "cuda" if self._dist.get_backend() == "nccl" else "cpu"
