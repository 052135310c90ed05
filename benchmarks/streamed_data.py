"""Compare ways to train on data of an S3 store, 20 ms and 20 MB/s away, that is not on the node when training begins.

Each way reads 300 samples of 400 kB by torch's DataLoader with two workers, shuffled anew in each of three epochs, once
with room for all of the data, and once with room for half of it. Figures are the seconds to the first batch, and each
epoch over the bound, which is the bytes over the bandwidth; an epoch without the store takes nearly none of it.
MosaicML Streaming reads data that was converted for it; its interpreter may be another one.

    python benchmarks/streamed_data.py [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

SAMPLES, BYTES, BATCH, EPOCHS, WORKERS = 300, 400_000, 10, 3, 2
LATENCY_S, BANDWIDTH, SHARD = 0.02, 20e6, 4_000_000
HALF = SAMPLES * BYTES // 2
Epochs = Iterable[Iterable[Any]]  # of batches
_began: list[float] = []  # when the reading of each way began, after its data had been prepared


def ours(url: str, folder: Path, room: int | None) -> Epochs:
    """Read files of a folder, as a definition's `train_data` does."""
    import torch

    from benchmarks.remote_data import asked
    from kernel_backend.model.cluster.input_cache import LIMIT, ROOT
    from kernel_backend.runner.data.batches import Batches
    from kernel_backend.runner.data.inputs import _brought
    from kernel_backend.runner.data.source import source
    from kernel_backend.runner.ipc import Instructions, Spool
    from kernel_backend.runner.progress import Progress

    os.environ[ROOT] = str(folder / "cache")
    if room:
        os.environ[LIMIT] = str(room / 1e9)
    _began.append(time.perf_counter())
    inputs = asked(f"{url}/files", folder / "cache", folder).inputs
    found = _brought(inputs, Instructions(), Spool(folder / "spool", 0), Progress(folder, 0), patience=0.0)
    root = Path(found["places"]["train"])

    class Files(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.paths = sorted(str(path) for path in root.iterdir())

        def __len__(self) -> int:
            return len(self.paths)

        def __getitem__(self, index: int) -> Any:
            return torch.frombuffer(bytearray(Path(self.paths[index]).read_bytes()), dtype=torch.uint8)

    data = source(Files(), "train_data")
    batches = Batches(data, BATCH, 0, "sample", range(1), 1, WORKERS, torch.device("cpu"))
    steps = iter(batches.steps(0, EPOCHS * SAMPLES // BATCH))
    for _ in range(EPOCHS):
        yield (next(steps) for _ in range(SAMPLES // BATCH))


def mosaicml(url: str, folder: Path, room: int | None) -> Epochs:
    """Read shards of MosaicML Streaming."""
    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    local = folder / "mds"
    if not (folder.parent / "mds-written").exists():
        os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = os.environ["NEAR"]
        with MDSWriter(out=f"{url}/mds", columns={"x": "bytes"}, size_limit=SHARD, progress_bar=False) as writer:
            for _ in range(SAMPLES):
                writer.write({"x": os.urandom(BYTES)})
        os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = os.environ["FAR"]
        (folder.parent / "mds-written").touch()
    _began.append(time.perf_counter())
    data = StreamingDataset(remote=f"{url}/mds", local=str(local), shuffle=True, batch_size=BATCH, cache_limit=room)
    loader: Any = DataLoader(data, batch_size=BATCH, num_workers=WORKERS, collate_fn=list)
    for _ in range(EPOCHS):
        yield loader


def datasets(url: str, folder: Path, room: int | None) -> Epochs:
    """Read Parquet files by `datasets` as a stream, which keeps nothing on the node."""
    import s3fs
    from datasets import Dataset, load_dataset
    from torch.utils.data import DataLoader

    store = s3fs.S3FileSystem(endpoint_url=os.environ["NEAR"], skip_instance_cache=True)
    if not store.exists(f"{url}/parquet"):
        each = SHARD // BYTES
        for number in range(SAMPLES // each):
            path = folder / "part.parquet"
            Dataset.from_dict({"x": [os.urandom(BYTES) for _ in range(each)]}).to_parquet(path)
            store.put_file(str(path), f"{url}/parquet/{number:03}.parquet")
    _began.append(time.perf_counter())
    names = [f"s3://{name}" for name in store.ls(f"{url}/parquet")]
    data: Any = load_dataset("parquet", data_files=names, streaming=True, split="train")
    for epoch in range(EPOCHS):
        shuffled = data.shuffle(seed=epoch, buffer_size=4 * SHARD // BYTES)
        yield DataLoader(shuffled, batch_size=BATCH, num_workers=WORKERS, collate_fn=list)


def s3fs(url: str, folder: Path, room: int | None) -> Epochs:
    """Read each sample by s3fs, which keeps nothing on the node."""
    from s3fs import S3FileSystem
    from torch.utils.data import DataLoader

    _began.append(time.perf_counter())
    names = [f"{url}/files/{number:05}.bin" for number in range(SAMPLES)]

    class Objects:
        store: Any = None

        def __len__(self) -> int:
            return len(names)

        def __getitem__(self, index: int) -> bytes:
            self.store = self.store or S3FileSystem(skip_instance_cache=True)  # in the loader worker
            return bytes(self.store.cat_file(names[index]))

    loader: Any = DataLoader(Objects(), BATCH, shuffle=True, num_workers=WORKERS, collate_fn=list)  # type: ignore[arg-type]
    for _ in range(EPOCHS):
        yield loader


WAYS = {each.__name__: each for each in (ours, mosaicml, datasets, s3fs)}
KEEPS = ("ours", "mosaicml")


def measure(name: str, url: str, folder: Path, room: int | None) -> dict[str, Any]:
    """Return the seconds to the first batch and those of each epoch; what prepares the data does not count."""
    first, seconds = None, []
    for epoch in WAYS[name](url, folder, room):
        at = time.perf_counter()
        batches = 0
        for _ in epoch:
            first = time.perf_counter() - _began[0] if first is None else first
            batches += 1
        assert batches == SAMPLES // BATCH, batches
        seconds.append(time.perf_counter() - at)
    return {"first": first, "seconds": seconds}


def main(peers: str) -> None:
    """Print the figures of each way."""
    import fsspec

    from tests.support.bad_network import bad_network
    from tests.support.object_store import object_store

    bound = SAMPLES * BYTES / BANDWIDTH
    with tempfile.TemporaryDirectory() as temporary, object_store() as url:
        near = os.environ["AWS_ENDPOINT_URL"]
        for number in range(SAMPLES):
            fsspec.filesystem("s3").pipe(f"{url}/files/{number:05}.bin", os.urandom(BYTES))
        print(f"bound of an epoch: {bound:.1f} s")
        for name, room in [*((each, None) for each in WAYS), *((each, HALF) for each in KEEPS)]:
            python = peers if name == "mosaicml" else sys.executable
            with tempfile.TemporaryDirectory(dir=temporary) as folder, bad_network(near, LATENCY_S, BANDWIDTH) as way:
                environ = os.environ | {"NEAR": near, "FAR": way.address, "AWS_ENDPOINT_URL": way.address}
                command = [python, __file__, "--way", name, "--url", url, "--folder", folder, "--room", str(room or 0)]
                done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=600)
            lines = [line for line in done.stdout.splitlines() if line.startswith('{"first"')]
            label = f"{name}{', room for half of it' if room else ''}"
            if not lines:
                print(f"{label}: failed: {done.stderr.strip()[-300:]}", flush=True)
                continue
            said = json.loads(lines[-1])
            epochs = ", ".join(f"{seconds / bound:.2f}" for seconds in said["seconds"])
            print(f"{label}: first batch after {said['first']:.1f} s; epochs over the bound {epochs}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--way")
    parser.add_argument("--url")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--room", type=int)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.way, given.url, given.folder, given.room or None)))
    else:
        main(given.peers)
