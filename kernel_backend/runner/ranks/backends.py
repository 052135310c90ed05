"""How the ranks of an attempt talk: one small object, with Horovod or torch.distributed behind it, or nobody."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import BackendChoice


class Handle(Protocol):
    """A sum on its way."""

    def wait(self) -> None:
        """Return when the tensor holds the sum; raises the backend's error where a peer is gone."""


class Ranks(Protocol):
    """The ranks of a gang as one of them sees it. Every call but `allreduce_async` blocks until all have made it."""

    rank: int
    size: int
    local_rank: int

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Begin to sum a tensor over all ranks, in place; the name is the same on every rank, and free."""

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Sum a tensor over all ranks, in place."""

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Send consecutive pieces of a flat tensor, so many elements to each rank; the pieces of all, in order."""

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """The flat tensors of all ranks, of equal length, one after the other."""

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Overwrite the tensor by that of rank `root`, in place."""

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The value that rank `root` gave; those of other ranks are ignored."""

    def all_gather_object(self, value: Any) -> list[Any]:
        """What every rank gave, in order of rank."""

    def barrier(self) -> None:
        """Return when all ranks have come here."""

    def close(self) -> None:
        """Take leave of the others."""


class Choice(NamedTuple):
    """The backend, and a sentence that says why."""

    name: str
    reason: str


def choose(backend: BackendChoice, kind: str) -> Choice:
    """The backend for devices of `kind`: Horovod where it is built for them, else torch.

    Raises InvalidRequest where Horovod was asked for and cannot be had.
    """
    if backend == "torch":
        return Choice("torch", "asked for")
    problem = horovod_problem(kind)
    if problem is None:
        return Choice("horovod", "asked for" if backend == "horovod" else f"built for {kind}")
    if backend == "horovod":
        raise InvalidRequest(
            f"backend horovod cannot be used: {problem}. Submit with --backend torch, or build Horovod into this "
            "environment (`make setup` does; the guide has it under Installation)",
            backend=backend,
        )
    return Choice("torch", problem)


def horovod_problem(kind: str) -> str | None:
    """Why Horovod cannot serve devices of `kind` here; None where it can."""
    try:
        import horovod.torch as hvd
    except ImportError as error:
        return f"Horovod is not installed ({error})" if error.name != "horovod" else "Horovod is not installed"
    # A Horovod without NCCL takes CUDA tensors too, and copies them before they are ready.
    if kind != "cpu" and not hvd.nccl_built():
        return f"Horovod is built without NCCL, which {kind} needs"
    if kind == "cpu" and not hvd.gloo_built():
        return "Horovod is built without Gloo"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "HOROVOD_GLOO_RENDEZVOUS_ADDR" not in os.environ:
        return "the launcher started no Horovod rendezvous"
    return None


def connect(choice: Choice, kind: str, patience: float) -> Ranks:
    """This process among its peers, by the variables that its launcher has set. One rank alone connects to nobody.

    `patience` is how many seconds a peer may be silent; a launcher sees a dead or hung one long before.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if size == 1:
        return SingleRank()
    if choice.name == "horovod":
        return HorovodRanks(patience)
    return TorchRanks("nccl" if kind == "cuda" else "gloo", rank, size, local_rank, patience)


class SingleRank:
    """A gang of one: there is nobody to talk to."""

    rank, size, local_rank = 0, 1, 0

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """A handle that has nothing to wait for."""
        return _Done()

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """The tensor as it is."""
        return tensor

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """The tensor as it is."""
        return tensor

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """The tensor as it is."""
        return tensor

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """The tensor as it is."""
        return tensor

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The value as it is."""
        return value

    def all_gather_object(self, value: Any) -> list[Any]:
        """A list of one."""
        return [value]

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """Nobody to take leave of."""


class _Done:
    def wait(self) -> None: ...


class HorovodRanks:
    """Ranks over Horovod; fusion is off, for our buckets are the fusion and Horovod's depends on timing."""

    def __init__(self, patience: float) -> None:
        os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(math.ceil(patience))
        os.environ.setdefault("HOROVOD_FUSION_THRESHOLD", "0")
        os.environ.setdefault("HOROVOD_CYCLE_TIME", "1")
        import horovod.torch as hvd

        hvd.init()
        self._hvd = hvd
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Begin to sum in place."""
        return _HorovodHandle(self._hvd, self._hvd.allreduce_async_(tensor, name=name, op=self._hvd.Sum))

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Sum in place."""
        self.allreduce_async(tensor, name).wait()
        return tensor

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Exchange pieces."""
        got, _ = self._hvd.alltoall(tensor, splits=torch.tensor(sends, dtype=torch.int32), name=f"{name}.exchange")
        return cast("Tensor", got)

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """Join pieces."""
        return cast("Tensor", self._hvd.allgather(tensor, name=f"{name}.join"))

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Overwrite by the tensor of rank `root`."""
        self._hvd.broadcast_(tensor, root, name="broadcast")
        return tensor

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The value of rank `root`."""
        return self._hvd.broadcast_object(value, root, name="object")

    def all_gather_object(self, value: Any) -> list[Any]:
        """What every rank gave."""
        return list(self._hvd.allgather_object(value, name="objects"))

    def barrier(self) -> None:
        """Wait for all."""
        self._hvd.barrier()

    def close(self) -> None:
        """Shut Horovod down."""
        self._hvd.shutdown()


class _HorovodHandle:
    def __init__(self, hvd: Any, handle: int) -> None:
        self._hvd, self._handle = hvd, handle

    def wait(self) -> None:
        # Horovod looks once a millisecond; asking more often by `poll` makes it slower, not faster.
        self._hvd.synchronize(self._handle)


class TorchRanks:
    """Ranks over torch.distributed: gloo for the CPU, nccl for CUDA."""

    def __init__(self, backend: str, rank: int, size: int, local_rank: int, patience: float) -> None:
        import torch.distributed as dist

        dist.init_process_group(backend, rank=rank, world_size=size, timeout=timedelta(seconds=patience))
        self._dist = dist
        self.rank, self.size, self.local_rank = rank, size, local_rank

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Begin to sum in place."""
        work: Handle = self._dist.all_reduce(tensor, async_op=True)
        return work

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Sum in place."""
        self._dist.all_reduce(tensor)
        return tensor

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Exchange pieces."""
        got = tensor.new_empty(sum(receives))
        self._dist.all_to_all_single(got, tensor, list(receives), list(sends))
        return got

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """Join pieces."""
        joined = tensor.new_empty(tensor.numel() * self.size)
        self._dist.all_gather(list(joined.chunk(self.size)), tensor)
        return joined

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Overwrite by the tensor of rank `root`."""
        self._dist.broadcast(tensor, root)
        return tensor

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The value of rank `root`."""
        box = [value]
        self._dist.broadcast_object_list(box, root)
        return box[0]

    def all_gather_object(self, value: Any) -> list[Any]:
        """What every rank gave."""
        values: list[Any] = [None] * self.size
        self._dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for all."""
        # Not dist.barrier: with nccl it guesses a device.
        self.allreduce_sum(torch.zeros(1, device=self._device()), "barrier")
        if self._dist.get_backend() == "nccl":
            torch.cuda.synchronize()

    def close(self) -> None:
        """Leave the process group."""
        self._dist.destroy_process_group()

    def _device(self) -> str:
        return "cuda" if self._dist.get_backend() == "nccl" else "cpu"
