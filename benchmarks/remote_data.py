"""Compare ways to read a folder of an S3 store, which is 20 ms away and sends 40 MB/s at most.

The bound is the bytes over the bandwidth. An epoch reads all files in an order that is shuffled anew, by four threads,
as loader workers do. Each way has an epoch without anything on the node, and a second one; then 80 threads read one
object that is not there yet, and what they got is compared with the object.

    python benchmarks/remote_data.py [--objects 200] [--rounds 20]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import fsspec
from s3fs import S3FileSystem

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.data.declared import declare
from kernel_backend.inputs.fetch import FetchRequest, Input, fetch
from tests.support.bad_network import BadNetwork, distant_store

LATENCY_S, BANDWIDTH, BYTES, READERS, WORKERS = 0.02, 40e6, 1_000_000, 80, 4


def asked(url: str, root: Path, folder: Path) -> FetchRequest:
    """Return the request of a training that has declared a URL now."""
    found = declare([f"train={url}"], folder)
    listed = folder / f"{found.data[0].digest}.tsv"
    listed.write_bytes(found.files[found.data[0].listed])
    return FetchRequest(
        root=str(root), inputs=(Input(name="train", url=url, digest=found.data[0].digest, listed=str(listed)),)
    )


def epoch(names: list[str], read: Callable[[str], bytes], seed: int) -> float:
    """Return how many seconds reading all files in a shuffled order takes."""
    order = random.Random(seed).sample(names, len(names))
    began = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as workers:
        total = sum(len(data) for data in workers.map(read, order))
    assert total == len(names) * BYTES
    return time.perf_counter() - began


@contextmanager
def network(objects: int) -> Iterator[tuple[str, BadNetwork, list[str]]]:
    """Provide a bucket's folder of objects behind the network, and the objects' names."""
    with distant_store(LATENCY_S, BANDWIDTH) as (url, way):
        names = [f"{number % 10}/{number:05}.bin" for number in range(objects)]
        store = fsspec.filesystem("s3")
        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(lambda name: store.pipe(f"{url}/train/{name}", os.urandom(BYTES)), names))
        yield url, way, names


def torn(url: str, root: Path, folder: Path, rounds: int) -> tuple[int, int]:
    """Return how many of 80 concurrent readers got other bytes, by fsspec's simplecache and by ours, of all rounds."""
    theirs = ours = 0
    for number in range(rounds):
        path, data = f"{url}/one/{number}.bin", os.urandom(400_000)
        fsspec.filesystem("s3").pipe(path, data)
        request = asked(path, root, folder)
        cache = str(root / f"simplecache-{number}")

        def simple(_: int, path: str = path, cache: str = cache, data: bytes = data) -> bool:
            with fsspec.open(f"simplecache::{path}", simplecache={"cache_storage": cache}) as file:
                return bool(file.read() != data)

        def cached(_: int, request: FetchRequest = request, data: bytes = data) -> bool:
            with ExitStack() as held:
                found = fetch(request, lambda text: None, held)
                return Path(found.places["train"]).read_bytes() != data

        with ThreadPoolExecutor(READERS) as readers:
            theirs += sum(readers.map(_or_error(simple), range(READERS)))
        with ThreadPoolExecutor(4) as readers:  # processes of four trainings; threads of theirs read what is whole
            ours += sum(readers.map(cached, range(4)))
    return theirs, ours


def _or_error(read: Callable[[int], bool]) -> Callable[[int], bool]:
    def reads(number: int) -> bool:
        try:
            return read(number)
        except Exception:
            return True

    return reads


def main(objects: int, rounds: int) -> None:
    """Print the seconds of each way, as ratios to the bound and to a local folder."""
    with network(objects) as (url, way, names), tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bound = objects * BYTES / BANDWIDTH
        way.requests.clear()
        request = asked(f"{url}/train", folder / "cache", folder)
        listing = len(way.requests)
        way.requests.clear()
        with ExitStack() as held:
            began = time.perf_counter()
            places = fetch(request, lambda text: None, held).places
            first = time.perf_counter() - began
            requests = len(way.requests)
            began = time.perf_counter()
            fetch(request, lambda text: None, held)
            again = time.perf_counter() - began
            root = Path(places["train"])
            local = folder / "local"
            for name in names:
                (local / name).parent.mkdir(parents=True, exist_ok=True)
                (local / name).write_bytes((root / name).read_bytes())
            plain = [epoch(names, lambda name: (local / name).read_bytes(), seed) for seed in range(5)]
            second = [epoch(names, lambda name: (root / name).read_bytes(), seed) for seed in range(5)]
        print(f"bound {bound:.2f} s for {objects:,} objects; {requests:,} requests fetch them, {listing:,} lists them")
        print(
            f"ours: all of it {first:.2f} s ({first / bound:.2f} of the bound), and then an epoch {min(second):.3f} s"
        )
        print(f"      ({min(second) / min(plain):.2f} of a local folder); a second training begins after {again:.2f} s")
        store = S3FileSystem(use_listings_cache=False)
        for kind, read in [
            ("s3fs", lambda name: store.cat(f"{url}/train/{name}")),
            ("simplecache", lambda name: _simple(f"{url}/train/{name}", str(folder / "simple"))),
        ]:
            seconds = [epoch(names, read, seed) for seed in range(2)]
            print(
                f"{kind}: first epoch {seconds[0] / bound:.2f} of the bound, second {seconds[1] / min(plain):.1f} of "
                "a local folder"
            )
        theirs, ours = torn(url, folder / "other", folder, rounds)
        print(f"{READERS} readers of a new object, {rounds} rounds: simplecache {theirs} torn or failed, ours {ours}")


def _simple(path: str, cache: str) -> bytes:
    with fsspec.open(f"simplecache::{path}", simplecache={"cache_storage": cache}) as file:
        return bytes(file.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    main(given.objects, given.rounds)
