"""Run a real object store for tests: moto's server, as a process on a free port."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
from s3fs import S3FileSystem

BUCKET = "daylight"
PATIENCE_S = 60  # until a server that does not answer is a failed test


@contextlib.contextmanager
def object_store() -> Iterator[str]:
    """Provide the URL of an empty bucket; environment variables direct all S3 clients to it during the block."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with tempfile.NamedTemporaryFile() as log, subprocess.Popen(command, stderr=log) as server:
        try:
            address = _address(server, Path(log.name))
            with _environment(
                AWS_ENDPOINT_URL=address,
                AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test",
                AWS_DEFAULT_REGION="us-east-1",
            ):
                fsspec.filesystem("s3").mkdir(BUCKET)
                yield f"s3://{BUCKET}"
        finally:
            S3FileSystem.clear_instance_cache()
            server.terminate()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while server.poll() is None and time.monotonic() < deadline:
        if found := re.search(r"Running on (http://[\d.:]+)", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"the object store did not start:\n{log.read_text()}")


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
