"""Run the probe programs of a pool's check in pods, which send their answers to the service; then delete the pods."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes import manifests
from kernel_backend.engines.kubernetes.admission import grouped
from kernel_backend.engines.kubernetes.discovery import Discovery
from kernel_backend.engines.kubernetes.manifests import Identity, Manifest, PodPlan
from kernel_backend.engines.kubernetes.objects import GangObjects
from kernel_backend.engines.kubernetes.pods import PodState, hopeless, pod_state
from kernel_backend.engines.kubernetes.probe_findings import failed, findings
from kernel_backend.engines.kubernetes.refusals import Refused
from kernel_backend.engines.kubernetes.watch import PodCache
from kernel_backend.engines.probing.callers import CallingProbes
from kernel_backend.engines.probing.exchange import ProbeExchange
from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.engines.probing.request import probe_request
from kernel_backend.launch.pod_probe import VARIABLE
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.launch.probe import ProbeCredentials
from kernel_backend.model.resources import Share

WAIT_S = 90.0  # for pods to find nodes, pull their image, and answer
LIMIT_S = 240  # after which Kubernetes ends a probe, in case nobody does
LOOK_S = 1.0  # between looks at the pods
REST_S = 5.0  # for the answers of the other pods, after one has failed


class CheckName(NamedTuple):
    """Names and labels of the Kubernetes objects of one check."""

    service: str
    pool: str
    check: str  # its id

    @property
    def owner(self) -> str:
        """Return the name of the ConfigMap that owns the other objects; the names of the pods begin with it."""
        return f"daylight-check-{self.check[:16]}"

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of the check, by which they are found."""
        return {**manifests.of_pool(self.service, self.pool), manifests.GANG: self.owner}

    def pod(self, number: int) -> str:
        """Return the name of the pod for node `number` of the check."""
        return f"{self.owner}-{number}"


class PodProbes:
    """Runner of the probe programs of a pool's checks, in pods of the pool's namespace."""

    def __init__(
        self, objects: GangObjects, pods: PodCache, discovery: Discovery, service: str, identity: Identity
    ) -> None:
        self._objects, self._pods, self._discovery = objects, pods, discovery
        self._service, self._identity = service, identity
        self.owners = set[str]()  # names of the owners of checks in progress

    async def findings(self, setup: ProbeSetup, urls: tuple[str, ...], probes: CallingProbes) -> list[PoolFinding]:
        """Run probe programs on some nodes of the pool, and return the findings from their answers.

        `urls` are the addresses of the service, which the programs call, and `probes` takes their calls. Raises OSError
        if a folder in the service's home cannot be created, Refused if Kubernetes accepts no pods, and
        EngineUnavailable.
        """
        async with probe_request(setup, urls) as request:
            exchange, states = ProbeExchange(setup.nodes, setup.pool.settings.interface), list[PodState]()
            name = CheckName(self._service, setup.pool.name, request.nonce)
            with probes.opened(request.nonce, exchange) as called:
                async with self._created(
                    name, setup, ProbeCredentials(request=request, token=called.token, uid=os.getuid())
                ):
                    exchange.begin()
                    watch = asyncio.create_task(self._watch(name, exchange, states))
                    try:
                        if await exchange.first_answers(setup.nodes, WAIT_S):
                            await exchange.orders(called.send)
                    finally:
                        watch.cancel()
        answers = exchange.answers()
        return findings(setup, states, answers, exchange.started or 0.0, WAIT_S)

    @contextlib.asynccontextmanager
    async def _created(self, name: CheckName, setup: ProbeSetup, credentials: ProbeCredentials) -> AsyncIterator[None]:
        """Create the objects of a check; delete them when the `async with` block ends."""
        self.owners.add(name.owner)
        try:
            owner, others = check_objects(name, setup, credentials, self._identity)
            podgroups = (await self._discovery.newest()).podgroups
            await self._objects.create(owner, grouped(others, name.owner, podgroups, setup.pool.settings))
            yield
        finally:
            with contextlib.suppress(EngineUnavailable, Refused):  # the look for leftovers deletes them later
                await self._objects.remove(name.owner)
            self.owners.discard(name.owner)

    async def _watch(self, name: CheckName, exchange: ProbeExchange, states: list[PodState]) -> None:
        """Keep the list `states` up to date with the states of the check's pods.

        A pod that fails will never answer. As soon as one does, give the others 5 s to answer, and end the check.
        """
        while not (hopeless(states, time.time()) or failed(states)):
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(EngineUnavailable, Refused):
                pods = await self._pods.fresh(name.owner)
                states[:] = [pod_state(pods[number]) for number in sorted(pods)]
        await asyncio.sleep(REST_S)
        exchange.end()


def check_objects(
    name: CheckName, setup: ProbeSetup, credentials: ProbeCredentials, identity: Identity
) -> tuple[Manifest, list[Manifest]]:
    """Return the ConfigMap that owns a check's objects, and the owned objects: a Secret, and a pod for each node.

    Each pod requests one slot. The Secret has the `credentials` by which the probe programs call the service.
    """
    share = Share(node="", kind="cuda" if setup.gpus else "cpu", address="", slots=(0,))
    plans = [
        PodPlan(
            command=[setup.python, "-P", "-m", "kernel_backend.launch.pod_probe"],
            cwd="/",
            env=[*manifests.node_variables(number, setup.nodes), manifests.credentials_variable(name, VARIABLE)],
            share=share,
            staged=not setup.pool.settings.shared,
            grace=1,
            limit=LIMIT_S,
        )
        for number in range(setup.nodes)
    ]
    pods = [manifests.pod(name, number, plan, setup.pool.settings, identity) for number, plan in enumerate(plans)]
    return manifests.owner(name, {"check": name.check}), [manifests.secret(name, credentials), *pods]
