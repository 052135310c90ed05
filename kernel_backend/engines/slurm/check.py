"""Check a pool: read Slurm's partition and nodes, and run a probe program on two of the nodes."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kernel_backend.engines.base import CheckContext, EngineUnavailable
from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.engines.probing.request import probe_request
from kernel_backend.engines.slurm.commands import SlurmRefused, cleaned, run, sinfo
from kernel_backend.engines.slurm.findings import TERMS, findings, not_started, partition
from kernel_backend.engines.slurm.parse import parse_sinfo, parse_states
from kernel_backend.engines.slurm.probes import Probes
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.probe import Versions

VERSIONS_S = 60.0  # for the interpreter on the service's machine to print its versions
_MOST = 2  # nodes that are probed


async def check_pool(home: Path, pool: Pool, context: CheckContext) -> Sequence[PoolFinding]:
    """Check a pool, and return the findings in the order of the checks.

    After a failed check, checks that depend on it may be left out.
    """
    try:
        version, listing = (await run("sinfo", "--version")).split(), await sinfo(pool)
    except (EngineUnavailable, SlurmRefused) as error:
        todo = "ask the site, or try again: the pool works as soon as `sinfo` does on the service's machine"
        return [PoolFinding(name="engine", ok=False, says=error.message, todo=todo)]
    nodes = parse_sinfo(listing, pool)
    found = [
        PoolFinding(name="engine", ok=True, says=f"Slurm {version[-1] if version else ''} answers"),
        PoolFinding(name="user", ok=True, says=_identity(pool)),
        partition(pool, nodes, Counter(parse_states(listing, pool))),
    ]
    if not found[-1].ok:
        return found
    versions = await _versions(context.python)
    if isinstance(versions, str):
        todo = "install daylight into that environment"
        return [*found, PoolFinding(name="versions", ok=False, says=f"{context.python} here: {versions}", todo=todo)]
    setup = ProbeSetup(
        pool=pool,
        python=pool.settings.python or context.python,
        versions=versions,
        home=str(home),
        checkpoints=context.checkpoints.removeprefix("file://"),
        host=socket.gethostname(),
        nodes=min(_MOST, sum(node.healthy and node.slots > 0 for node in nodes)),
        gpus=any(node.kind != "cpu" for node in nodes),
        terms=TERMS,
        data=context.data,
    )
    return [*found, *await _probed(setup, context.urls)]


async def _probed(setup: ProbeSetup, urls: tuple[str, ...]) -> list[PoolFinding]:
    """Run the probe program on the nodes, and return the findings; `urls` are the addresses of the service."""
    try:
        async with probe_request(setup, urls) as request:
            probes = Probes(setup, request)
            begun = time.monotonic()
            if not await probes.run(cleaned(os.environ) | {"DAYLIGHT_HOME": setup.home}):
                return [not_started(setup, probes.job, time.monotonic() - begun)]
            return findings(setup, probes.job, probes.answers())
    except OSError as error:
        says = f"{setup.home}: {error.strerror or error}"
        return [PoolFinding(name="home", ok=False, says=says, todo="make it writable for the service")]


async def _versions(python: str) -> Versions | str:
    """Return the versions of Daylight, Python and torch of the interpreter `python` on this machine.

    If they cannot be read, return a text that says why.
    """
    words = (python, "-P", "-m", "kernel_backend.launch.probe")
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return error.strerror or str(error)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), VERSIONS_S)
        return Versions.model_validate_json(output)
    except TimeoutError:
        return f"it did not answer within {VERSIONS_S:g} s"
    except ValidationError:
        return (errors.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _identity(pool: Pool) -> str:
    settings = pool.settings
    account = f"account {settings.account}" if settings.account else "the site's default account"
    return f"{getpass.getuser()}, {account}{f', QOS {settings.qos}' if settings.qos else ''}"
