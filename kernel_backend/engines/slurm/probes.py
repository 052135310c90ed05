"""Run the probe programs of a pool's check as one Slurm job: read their answers, and send them orders."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from functools import partial

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.probing.exchange import Order, ProbeExchange
from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.engines.slurm.commands import SlurmRefused, run, start
from kernel_backend.engines.slurm.findings import ProbeJob
from kernel_backend.engines.slurm.parse import never, sentence
from kernel_backend.engines.slurm.script import PROBE_WAIT_S, probe_options
from kernel_backend.model.launch.probe import NodeProbe, ProbeRequest

START_S = 5.0  # time for the first line once Slurm has allocated nodes
END_S = 3.0  # time for srun to exit by itself
LOOK_S = 3.0  # between calls of squeue


class Probes:
    """Slurm job that runs the probe programs of one check, and their answers so far."""

    def __init__(self, setup: ProbeSetup, request: ProbeRequest) -> None:
        """Set up the job from the settings of a check and the request that the probe programs get; `run` starts it."""
        self.job = ProbeJob()
        self._setup, self._request = setup, request
        self._name = f"daylight-check-{request.nonce[:8]}"
        self._exchange = ProbeExchange(setup.nodes, setup.pool.settings.interface)

    async def run(self, env: Mapping[str, str]) -> bool:
        """Run the probe programs until all have ended; return whether any of them has answered.

        `env` is their whole environment. Problems of the pool raise no error; they are recorded in `self.job`, the
        outcome of the Slurm job that runs the programs.
        """
        options = probe_options(self._setup.pool, self._setup.nodes, self._setup.gpus, self._name)
        words = (*options, self._setup.python, "-P", "-m", "kernel_backend.launch.probe")
        try:
            process = await start("srun", *words, self._request.model_dump_json(exclude_defaults=True), env=env)
        except EngineUnavailable as error:
            self.job = self.job._replace(errors=error.message)
            return False
        self._exchange.begin()
        reading = asyncio.create_task(self._read(process))
        looking = asyncio.create_task(self._look(process))
        try:
            if await self._exchange.first_answers(1, PROBE_WAIT_S + START_S):
                looking.cancel()
                await self._exchange.orders(partial(_order, process))
                return True
            return False
        finally:
            looking.cancel()
            await self._end(process, reading)

    def answers(self) -> list[NodeProbe]:
        """Return the answers of each node so far, in the order of node numbers."""
        return self._exchange.answers()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        async for line in process.stdout:
            nonce, _, text = line.decode(errors="replace").partition(" ")
            if nonce == self._request.nonce:
                self._take(text)
        self.job = self.job._replace(errors=sentence((await errors).decode(errors="replace")))
        self._exchange.end()

    def _take(self, text: str) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            part = json.loads(text)
            self._exchange.take(int(part.pop("node")), part)
            self.job = self.job._replace(started=self._exchange.started)

    async def _look(self, process: asyncio.subprocess.Process) -> None:
        """Keep recording why the job of the probe programs is pending; end the check if Slurm can never start it."""
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(EngineUnavailable, SlurmRefused):
                reason = (await run("squeue", "-h", f"--name={self._name}", "--state=PENDING", "-o", "%r")).strip()
                self.job = self.job._replace(reason=reason or self.job.reason)
            if never(self.job.reason):
                self._exchange.end()
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


async def _order(process: asyncio.subprocess.Process, order: Order) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # srun has ended: there will be no answer
        process.stdin.write(order.model_dump_json().encode() + b"\n")
        await process.stdin.drain()
