"""Run the probe programs of a pool's check as one Slurm job: read their answers and send them orders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.slurm.commands import SlurmRefused, run, start
from kernel_backend.engines.slurm.findings import ProbeJob, ProbeSetup
from kernel_backend.engines.slurm.network_finding import address_to_use
from kernel_backend.engines.slurm.parse import never, sentence
from kernel_backend.engines.slurm.script import PROBE_WAIT_S, probe_options
from kernel_backend.launch.joining import PROBE_S
from kernel_backend.model.launch.nodes import usable_addresses
from kernel_backend.model.launch.probe import AllReduceOrder, NodeProbe, PeerAddresses, ProbeRequest
from kernel_backend.model.record import Record

START_S = 5.0  # time for the first line once Slurm has allocated nodes
FILES_S = 20.0  # time for the answers about files and the service
REACH_S = 5.0  # time for the answers about addresses, besides PROBE_S for each address
ALL_REDUCE_S = 60.0  # time for the all-reduce, including the import of torch
END_S = 3.0  # time for srun to exit by itself
LOOK_S = 3.0  # between calls of squeue


class Probes:
    """Probe programs of one check, with what they have answered so far."""

    def __init__(self, setup: ProbeSetup, request: ProbeRequest) -> None:
        """Create the probes for a request; `run` starts them."""
        self.job = ProbeJob()
        self._setup, self._request = setup, request
        self._name = f"daylight-check-{request.nonce[:8]}"
        self._parts: dict[int, dict[str, Any]] = {}
        self._changed, self._over = asyncio.Event(), False
        self._begun = self._sent = 0.0

    async def run(self, env: Mapping[str, str]) -> bool:
        """Run the probes to their end; return whether any has answered.

        Problems of the pool are not raised. `env` is the environment of the probes.
        """
        options = probe_options(self._setup.pool, self._setup.nodes, self._setup.gpus, self._name)
        words = (*options, self._setup.python, "-P", "-m", "kernel_backend.launch.probe")
        try:
            process = await start("srun", *words, self._request.model_dump_json(), env=env)
        except EngineUnavailable as error:
            self.job = self.job._replace(errors=error.message)
            return False
        self._begun = time.monotonic()
        reading = asyncio.create_task(self._read(process))
        looking = asyncio.create_task(self._look(process))
        try:
            if await self._until(lambda: bool(self._parts), PROBE_WAIT_S + START_S):
                looking.cancel()
                await self._exchange(process)
            return bool(self._parts)
        finally:
            looking.cancel()
            await self._end(process, reading)

    def answers(self) -> list[NodeProbe]:
        """Return what each node has answered so far, in order of the nodes' numbers; invalid parts are left out."""
        return [_probe(node, self._parts[node]) for node in sorted(self._parts)]

    async def _exchange(self, process: asyncio.subprocess.Process) -> None:
        """Order the nodes to connect to node 0, then to run an all-reduce by an address that all have reached."""
        if not await self._answered("addresses", FILES_S):
            return
        interface = self._setup.pool.settings.interface
        first = self.answers()[0]
        addresses = usable_addresses(first.addresses, interface)
        self._sent = time.time()
        await _order(process, PeerAddresses(addresses=addresses, port=first.probe_port))
        reached = await self._answered("reached", REACH_S + PROBE_S * len(addresses))
        address = address_to_use(self.answers(), interface) if reached and self._setup.nodes > 1 else ""
        await _order(process, AllReduceOrder(address=address, port=first.torch_port))
        if address:
            await self._answered("all_reduce", ALL_REDUCE_S)

    async def _answered(self, part: str, seconds: float) -> bool:
        """Wait up to `seconds` for all nodes to answer `part` of the request; return whether they have."""
        nodes = range(self._setup.nodes)
        return await self._until(lambda: all(part in self._parts.get(node, ()) for node in nodes), seconds)

    async def _until(self, condition: Any, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition() and not self._over:
                    self._changed.clear()
                    await self._changed.wait()
        return bool(condition())

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        async for line in process.stdout:
            nonce, _, text = line.decode(errors="replace").partition(" ")
            if nonce == self._request.nonce:
                self._take(text)
        self.job = self.job._replace(errors=sentence((await errors).decode(errors="replace")))
        self._over = True
        self._changed.set()

    def _take(self, text: str) -> None:
        try:
            part = json.loads(text)
            node = int(part.pop("node"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if self.job.started is None:
            self.job = self.job._replace(started=time.monotonic() - self._begun)
        if "clock" in part:
            part |= {"sent": self._sent, "received": time.time()}
        self._parts.setdefault(node, {}).update(part)
        self._changed.set()

    async def _look(self, process: asyncio.subprocess.Process) -> None:
        """Record why the probes' job is pending; end the check if Slurm can never start it."""
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(EngineUnavailable, SlurmRefused):
                reason = (await run("squeue", "-h", f"--name={self._name}", "--state=PENDING", "-o", "%r")).strip()
                self.job = self.job._replace(reason=reason or self.job.reason)
            if never(self.job.reason):
                self._over = True
                self._changed.set()
                return

    async def _end(self, process: asyncio.subprocess.Process, reading: asyncio.Task[None]) -> None:
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading), END_S)
        if process.returncode is None:
            with contextlib.suppress(EngineUnavailable, SlurmRefused):
                await run("scancel", f"--name={self._name}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_S)
        if process.returncode is None:
            process.kill()
            await process.wait()
        reading.cancel()


async def _order(process: asyncio.subprocess.Process, order: Record) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # srun has ended: there will be no answer
        process.stdin.write(order.model_dump_json().encode() + b"\n")
        await process.stdin.drain()


def _probe(node: int, parts: Mapping[str, Any]) -> NodeProbe:
    found = NodeProbe(node=node)
    for name, value in parts.items():
        with contextlib.suppress(ValidationError):
            found = NodeProbe.model_validate(found.model_dump() | {name: value})
    return found
