"""Convert between whole tensors and the rows of them that a rank has, as torch's FSDP2 shards them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard


def own_rows(rows: int, ranks: int, rank: int) -> range:
    """Return the rows of a tensor that a rank has: chunks of one length, of which the last ones may be cut.

    Examples
    --------
    >>> [own_rows(9, 4, rank) for rank in range(4)]
    [range(0, 3), range(3, 6), range(6, 9), range(9, 9)]
    """
    chunk = -(-rows // ranks)
    return range(min(rows, rank * chunk), min(rows, (rank + 1) * chunk))


def whole(tensor: Tensor) -> Tensor:
    """Return all rows of a tensor; called by all ranks."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def from_rows(local: Tensor, shape: Sequence[int], mesh: DeviceMesh) -> DTensor:
    """Return the tensor of this shape of which this rank has the rows `local`."""
    size = torch.Size(shape)
    stride = torch.empty(size, device="meta").stride()
    local = local.to(mesh.device_type)
    made: DTensor = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=size, stride=stride)
    return made


def sharded_like(own: Any, value: Tensor) -> Tensor:
    """Return a whole `value` sharded as `own` is, by taking this rank's rows; any other value unchanged."""
    if not isinstance(own, DTensor) or isinstance(value, DTensor) or value.shape != own.shape:
        return value
    mesh = own.device_mesh
    rows = own_rows(value.shape[0], mesh.size(), mesh.get_local_rank())
    return from_rows(value[rows.start : rows.stop].clone(), value.shape, mesh)
