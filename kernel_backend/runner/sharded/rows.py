"""Convert between whole tensors and the rows that one rank holds, in the layout of torch's FSDP2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard


def own_rows(rows: int, ranks: int, rank: int) -> range:
    """Return the indices of the rows that rank `rank` of `ranks` holds, of a tensor with `rows` rows.

    The ranks hold consecutive chunks of equal length, the last ones shorter or empty.

    Examples
    --------
    >>> [own_rows(9, 4, rank) for rank in range(4)]
    [range(0, 3), range(3, 6), range(6, 9), range(9, 9)]
    """
    chunk = -(-rows // ranks)
    return range(min(rows, rank * chunk), min(rows, (rank + 1) * chunk))


def whole(tensor: Tensor) -> Tensor:
    """Return the whole tensor, gathered from all ranks if it is sharded; all ranks call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def from_rows(local: Tensor, shape: Sequence[int], mesh: DeviceMesh) -> DTensor:
    """Return the sharded tensor of shape `shape` whose rows on this rank are `local`."""
    size = torch.Size(shape)
    stride = torch.empty(size, device="meta").stride()
    local = local.to(mesh.device_type)
    made: DTensor = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=size, stride=stride)
    return made


def sharded_like(own: Any, value: Tensor) -> Tensor:
    """Return `value`, a whole tensor, sharded over the ranks as the tensor `own` is.

    If `own` is not sharded, return `value` unchanged.
    """
    if not isinstance(own, DTensor) or isinstance(value, DTensor) or value.shape != own.shape:
        return value
    mesh = own.device_mesh
    rows = own_rows(value.shape[0], mesh.size(), mesh.get_local_rank())
    return from_rows(value[rows.start : rows.stop].clone(), value.shape, mesh)
