"""Make the request to a check's probe programs.

It names a temporary folder by which they verify that their node sees the service's home.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.launch.probe import NONCE
from kernel_backend.model.launch.probe import ProbeRequest


@contextlib.asynccontextmanager
async def probe_request(setup: ProbeSetup, urls: tuple[str, ...]) -> AsyncIterator[ProbeRequest]:
    """Yield the request that the probe programs of a check get; `urls` are the service's addresses.

    During the block there is a new folder in the service's home, with a file by which nodes verify that they see the
    same home. Raises OSError if the folder cannot be created.
    """
    nonce = secrets.token_hex(16)
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="check-", dir=setup.home))
    local = setup.checkpoints if "://" not in setup.checkpoints else ""
    try:
        await asyncio.to_thread((folder / NONCE).write_text, nonce)
        if local:
            await asyncio.to_thread(os.makedirs, local, mode=0o700, exist_ok=True)  # as the first checkpoint would
        yield ProbeRequest(
            nonce=nonce,
            home=setup.home,
            folder=str(folder),
            checkpoints=setup.checkpoints,
            urls=urls,
            host=setup.host,
            data=setup.data,
        )
    finally:
        await asyncio.to_thread(_remove, folder)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
