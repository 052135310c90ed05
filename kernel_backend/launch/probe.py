"""Test a node of a pool: versions, files, service, clock, devices, and the network between two nodes.

`srun python -P -m kernel_backend.launch.probe REQUEST` runs this program as one task on each node. It prints its
answers as lines of JSON, and reads two orders (to connect, and to run an all-reduce) from its standard input. Without
REQUEST it prints the versions of this interpreter. In a pod, `kernel_backend.launch.pod_probe` exchanges answers and
orders with the service instead.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import platform
import socket
import sys
import time
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Thread
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from kernel_backend import __version__, devices
from kernel_backend.errors import InvalidRequest
from kernel_backend.launch import torch as torch_variables
from kernel_backend.launch.joining import Probed, reached_addresses
from kernel_backend.launch.node import node_name, rank_variables, slurm_node_index
from kernel_backend.launch.ports import Ports
from kernel_backend.launch.rendezvous import RendezvousInfo, rank_assignments
from kernel_backend.launch.service_address import CONNECT_S, announced, connected
from kernel_backend.model.launch.nodes import NodeIndex
from kernel_backend.model.launch.probe import (
    AllReduceOrder,
    AllReduceResult,
    DataTest,
    PeerAddresses,
    ProbeRequest,
    ServiceTest,
    Versions,
    WriteTest,
)
from kernel_backend.model.resources import Share
from kernel_backend.network import device_of, network_devices

SIZE = 64 * 10**6  # bytes of the all-reduce
DATA_S = 15.0  # time for remote data, so that the addresses are still told in time
TIMES = 3  # number of measured all-reduces, after one that opens connections
WRITTEN = 2**20  # bytes written to each folder, more than a full disk may still accept
TIMEOUT = timedelta(seconds=20)  # timeout of the connection between nodes, and of each all-reduce
NONCE = "nonce"  # name of the file in the request's folder

Order = TypeVar("Order", PeerAddresses, AllReduceOrder)


class Channel(Protocol):
    """Channel by which a probe program sends its answers to the check that started it, and gets orders from it."""

    def tell(self, **part: Any) -> None:
        """Send some answers to the check, without waiting for a reply."""

    def order(self, kind: type[Order]) -> Order:
        """Wait for an order of this kind and return it; raise SystemExit if the check has ended."""


class StandardStreams:
    """Channel by lines of JSON: answers are written to standard output, orders are read from standard input."""

    def __init__(self, nonce: str, node: int) -> None:
        self._nonce, self._node = nonce, node

    def tell(self, **part: Any) -> None:
        """Print some answers as one line, after the check's nonce."""
        print(f"{self._nonce} {json.dumps({'node': self._node, **part})}", flush=True)

    def order(self, kind: type[Order]) -> Order:
        """Read the next line as an order of this kind; raise SystemExit if the input was closed."""
        line = sys.stdin.readline()
        if not line:
            raise SystemExit(0)
        return kind.model_validate_json(line)


def versions() -> Versions:
    """Return the versions of Daylight, Python and torch in this interpreter, without importing torch."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return Versions(daylight=__version__, python=platform.python_version(), torch=torch)


def probe(request: ProbeRequest, index: NodeIndex, channel: Channel) -> None:
    """Test this node, and send the answers through `channel`; then take part in the network tests of the check."""
    tell = channel.tell
    tell(name=node_name(os.environ), versions=versions().to_json())
    tell(home=write_test(Path(request.folder), request.nonce).to_json())
    if request.checkpoints:
        test = store_test if "://" in request.checkpoints else lambda where: write_test(Path(where))
        tell(checkpoints=test(request.checkpoints).to_json())
    urls = dict.fromkeys((*announced(Path(request.home)), *request.urls))
    tell(service=[service_test(url) for url in urls], unresolved=unresolved(request.host) if request.host else "")
    tell(**_devices())
    if request.data:
        tell(data=data_test(request.data).to_json())
    _exchange(request, index, channel)


def data_test(url: str) -> DataTest:
    """Return whether remote data can be listed and read, and how fast."""
    from kernel_backend.inputs.reach import tested  # imported only if asked for

    found: list[DataTest] = []
    test = Thread(target=lambda: found.append(tested(url)), daemon=True)
    test.start()
    test.join(DATA_S)
    return found[0] if found else DataTest(says=f"{url}: no answer within {DATA_S:g} s", todo="look at its network")


def write_test(folder: Path, nonce: str = "") -> WriteTest:
    """Return whether files can be written to the folder, and how much space is free.

    With `nonce`, the folder must also contain the file NONCE, which the service wrote with `nonce` as content: both
    machines then see the same folder. If it does not, the result is `missing`.
    """
    try:
        if not folder.is_dir() or (nonce and (folder / NONCE).read_text() != nonce):
            return WriteTest(missing=True)
        status = os.statvfs(folder)
        free = status.f_bavail * status.f_frsize
    except FileNotFoundError:
        return WriteTest(missing=True)
    except OSError as error:
        return WriteTest(problem=error.strerror or str(error))
    path = folder / f".probe-{uuid4().hex}"
    try:
        with path.open("wb") as file:
            file.write(os.urandom(WRITTEN))
            file.flush()
            os.fsync(file.fileno())  # a network file system may report only now that it is full
    except OSError as error:
        return WriteTest(problem=error.strerror or str(error), free=free)
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return WriteTest(free=free)


def store_test(url: str) -> WriteTest:
    """Return whether an object can be written to an object store, read from it, and deleted."""
    import fsspec  # imported only if checkpoints are in an object store

    data = os.urandom(1024)
    try:
        store, root = fsspec.core.url_to_fs(url)
        name = f"{root.rstrip('/')}/.probe-{uuid4().hex}"
        store.pipe_file(name, data)
        read = store.cat_file(name)
        store.rm_file(name)
    except Exception as error:  # any error of the store's client is the answer
        text = str(error).strip().splitlines() or [type(error).__name__]
        return WriteTest(problem=text[0][:300])
    return WriteTest(problem="" if read == data else "what was written reads otherwise")


def service_test(url: str) -> ServiceTest:
    """Return whether the service answers at a URL.

    The request has no token, so that the service must answer with status 401; any other status is a problem.
    """
    try:
        with connected(url) as connection:
            connection.settimeout(CONNECT_S)
            connection.sendall(b"POST /api/attempts/1.1-1/join HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
            answer = http.client.HTTPResponse(connection, method="POST")
            answer.begin()
            return ServiceTest(url, "" if answer.status == 401 else f"another server answers ({answer.status})")
    except socket.gaierror:
        return ServiceTest(url, "its name has no address")
    except (OSError, http.client.HTTPException) as error:
        return ServiceTest(url, getattr(error, "strerror", None) or str(error) or type(error).__name__)


def unresolved(host: str) -> str:
    """Return why a host name cannot be resolved on this node; "" if it can."""
    try:
        socket.getaddrinfo(host, None, family=socket.AF_INET)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def all_reduce(index: NodeIndex, address: str, own: str, port: int) -> AllReduceResult:
    """Run an all-reduce with the probe programs of the other nodes, and return how long it took or why it failed.

    The programs connect at `address` and `port` of node 0. `own` is the address of this node in the same network.
    """
    device = device_of(own)
    placement = tuple(Share(node=str(node), kind="cpu", address=own, slots=(0,)) for node in range(index.nodes))
    info = RendezvousInfo(address, device, port, None)
    kept = rank_variables(os.environ)
    os.environ.clear()
    os.environ.update(kept | torch_variables.env(rank_assignments(placement)[index.node], info))
    found = AllReduceResult(size=SIZE, own=own, device=device or "")
    try:
        return found.model_copy(update={"seconds": _seconds()})
    except Exception as error:  # any error of torch is the answer
        text = str(error).strip().splitlines() or [type(error).__name__]
        return found.model_copy(update={"problem": text[0][:300]})


def _seconds() -> float:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=TIMEOUT)
    numbers = torch.ones(SIZE // 4)
    dist.all_reduce(numbers)
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(TIMES):
        dist.all_reduce(numbers)
    seconds = (time.perf_counter() - begun) / TIMES
    dist.barrier()  # no node exits before the other has finished
    return seconds


def _devices() -> dict[str, Any]:
    try:
        here = devices.local_node()
    except InvalidRequest as error:
        return {"devices_problem": error.message}
    return {"kind": here.kind, "devices": here.devices, "cores": here.cores}


def _exchange(request: ProbeRequest, index: NodeIndex, channel: Channel) -> None:
    """Take part in the network tests: connect to node 0, then run an all-reduce, each when the check orders it.

    The answers are sent by `channel`. Node 0 answers the connections of the others.
    """
    ports = Ports("", index.node == 0, horovod=False, ranks=0)
    probed = Probed(request.nonce) if index.node == 0 else None
    port = probed.port if probed is not None else 0
    channel.tell(addresses=network_devices(), probe_port=port, torch_port=ports.torch)
    peer = channel.order(PeerAddresses)
    channel.tell(clock=time.time())
    reached = reached_addresses(peer.addresses, peer.port, request.nonce) if index.node else ()
    channel.tell(reached=reached)
    order = channel.order(AllReduceOrder)
    if order.address:
        own = next((each.own for each in reached if each.address == order.address), order.address)
        channel.tell(all_reduce=all_reduce(index, order.address, own, order.port).to_json())


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(versions().model_dump_json(), flush=True)
    else:
        asked, place = ProbeRequest.model_validate_json(sys.argv[1]), slurm_node_index(os.environ)
        probe(asked, place, StandardStreams(asked.nonce, place.node))
        sys.stdout.flush()
        os._exit(0)  # do not wait for the threads of gloo and of the listener
