"""Run gangs of a search one after another in the same pods, which are kept for them (an allocation)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from kernel_backend.engines.allocations.allocation import key_of
from kernel_backend.engines.allocations.choice import Demand, lasts
from kernel_backend.engines.allocations.gangs import AllocatedGangs
from kernel_backend.engines.base import EngineUnavailable, Unconfirmed
from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.kubernetes import manifests
from kernel_backend.engines.kubernetes.admission import grouped
from kernel_backend.engines.kubernetes.allocations import AllocationPods, PodAllocation, PodRecord
from kernel_backend.engines.kubernetes.discovery import Discovery
from kernel_backend.engines.kubernetes.manifests import AllocationName, Identity
from kernel_backend.engines.kubernetes.objects import AT_ONCE_S, GangObjects, alive
from kernel_backend.engines.kubernetes.refusals import Refused
from kernel_backend.engines.kubernetes.submission import (
    SUBMISSIONS,
    Submission,
    locked,
    read_submission,
    write_submission,
)
from kernel_backend.engines.kubernetes.watch import CachedPods, PodCache
from kernel_backend.errors import PlaceUnavailable
from kernel_backend.home import allocation_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.holder import HolderCredentials, HolderOrder, HolderOrders, HolderReport
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.launch.staging import VARIABLE, StagingRequest

KILL_S = 20.0  # for a killed gang to end; after half of it, its pods are killed
LEAVE_S = 5.0  # for launchers that have recorded the end of their ranks to exit by themselves
CLOSE_S = 30.0  # for holders to exit after the order to close
ASK_S = 1.0  # between lists of the pods while a gang is being killed
ENDED = "its allocation has ended; another one is being requested"
_POLL_S = 0.05


class ClusterView(NamedTuple):
    """Pods and nodes of the cluster as they were last seen, from which the state of allocations is derived."""

    cached: CachedPods
    absent: Collection[str]  # owners of pods that have no pod, as the API server has just said
    away: Collection[str]  # nodes that are not ready
    ending: Mapping[str, str]  # nodes whose shutdown is announced, and the taint that announces it


class PodServices(NamedTuple):
    """Parts of the Kubernetes engine that create, list and delete the pods of allocations."""

    objects: GangObjects
    pods: PodCache
    discovery: Discovery
    identity: Identity


class PodAllocatedGangs(AllocatedGangs[PodAllocation, Submission]):
    """Pods that a pool keeps for several trials of a search (allocations), and the gangs that run in them."""

    kind = PodAllocation

    def __init__(self, home: Path, pool: Pool, service: str, folders: GangFolders, services: PodServices) -> None:
        super().__init__(home, pool.name, folders, SUBMISSIONS)
        self._pool, self._service, self._services = pool, service, services

    # Allocations

    def known_to(self, submission: Submission) -> PodAllocation | None:
        """Return the allocation to which a gang was assigned; None if it has none, or its allocation is not known."""
        return self.known.get(submission.allocation) if submission.allocation else None

    @property
    def owners(self) -> set[str]:
        """Return the names of the ConfigMaps that own the pods of allocations; pods may still be in creation."""
        return {self._name(each.record.id).owner for each in self.known.values()}

    @property
    def created(self) -> set[str]:
        """Return the names of the ConfigMaps of those allocations whose pods have all been created."""
        return {each.record.job for each in self.known.values() if each.record.uid}

    async def tend(self, view: ClusterView) -> None:
        """Update all allocations from the state of their pods: give back and delete those that cannot be used any more.

        It is called in each round of the service's loop.
        """
        for held in list(self.known.values()):
            if not held.record.uid:
                continue  # its pods are being created
            seen = AllocationPods.of(held, view.cached)
            now = time.time()
            over = seen.over(now, view.away, held.record.job in view.absent)
            waits = bool(held.gang) and held.gang not in held.started
            held.broken = waits and seen.broken(held.begun, now, view.away) is not None
            if problem := held.closed or seen.problem(view.ending) or ("its pods are gone" if over else ""):
                await self.give_back(held.record.id, problem)  # else its gang would get it again
            await self._tend(held, seen)
            if over and not held.broken:
                async with held.deciding:  # a pod on a lost node may be about to start the gang
                    removed = await self._ended(held)
                if removed:
                    await self._remove(held)

    async def report(self, id: str, report: HolderReport) -> HolderOrders:
        """Store the events that a holder reports, and return its orders after at most `report.wait` seconds.

        Raises PlaceUnavailable if the events cannot be stored, and Conflict if the holder must not start a gang.
        """
        held = self.known[id]
        if report.events:
            try:
                async with held.deciding:
                    await asyncio.to_thread(held.store, report)
            except OSError as error:
                raise PlaceUnavailable(f"{held.folder} cannot be written: {error.strerror or error}") from None
            held.wake()
        orders = await held.orders_for(report.node, report.orders, report.wait)
        return HolderOrders(orders=tuple([await asyncio.to_thread(self._filled, held, each) for each in orders]))

    def _shown(self, held: PodAllocation) -> HeldAllocation:
        return held.in_cluster()

    async def _tend(self, held: PodAllocation, seen: AllocationPods) -> None:
        shown = held.in_cluster()
        if not shown.gang and not shown.closing and not lasts(shown, held.record.seconds, time.time()):
            await self.give_back(held.record.id, "its time is nearly over")
        # Others wait for a gang to start on the first node before they hear that they are to exit.
        useless = not held.gang or (held.gang not in held.started and seen.first_left)
        if shown.closing and useless:
            held.closing_since = held.closing_since or time.monotonic()
            if time.monotonic() > held.closing_since + CLOSE_S:
                held.closing_since = time.monotonic()
                await self._remove(held)

    async def _end(self, held: PodAllocation) -> None:
        if not held.running and not held.broken and not (held.gang and held.may_begin(held.gang)):
            await self._remove(held)

    async def _remove(self, held: PodAllocation) -> None:
        """Delete the Kubernetes objects of an allocation; if that fails, they are deleted later."""
        with contextlib.suppress(EngineUnavailable, Refused):
            await self._services.objects.remove(self._name(held.record.id).owner)

    def _name(self, id: str) -> AllocationName:
        return AllocationName(self._service, self._pool.name, id)

    def _stored(self) -> list[PodAllocation]:
        """Return the allocations that an earlier process of the service has left.

        If that process died while it created the pods of an allocation, the allocation's folder is deleted now, and its
        Kubernetes objects are deleted later.
        """
        found = super()._stored()
        for each in found:
            if not each.record.uid:
                each.remove()
        return [each for each in found if each.record.uid]

    # Gangs

    def _demand(self, job: LaunchSpec) -> Demand:
        settings = hashlib.sha256(self._pool.settings.model_dump_json().encode()).hexdigest()[:16]
        shares = [f"{each.kind}={len(each.slots)}" for each in job.placement]
        excluded = [f"without={each}" for each in sorted(job.excluded)]
        return Demand(job.experiment, job.python, (f"settings={settings}", *shares, *excluded))

    async def _request(self, job: LaunchSpec, demand: Demand, step: str) -> PodAllocation:
        """Create the pods of an allocation, and assign the gang named `step` to it.

        Raises EngineUnavailable and Refused.
        """
        id, token = f"{job.experiment}-{secrets.token_hex(3)}", secrets.token_urlsafe(32)
        record = PodRecord(
            id=id,
            pool=self._pool.name,
            experiment=job.experiment,
            slots=job.config.slots,
            python=job.python,
            options=demand.options,
            seconds=job.keep_allocation or 0.0,
            at=time.time(),
            nodes=max(1, len(job.placement)),
            digest=token_digest(token),
        )
        path = allocation_folder(self._home, id)
        await asyncio.to_thread(path.mkdir, parents=True, mode=0o700)
        held = PodAllocation(path, record)
        held.assign(step)
        self._known[id] = held  # its holders may call before all pods have been created
        try:
            held.change()
            uid = await self._create(job, held, token)
            held.change(job=self._name(id).owner, uid=uid)
        except BaseException:
            del self._known[id]
            held.remove()
            await self._remove(held)
            raise
        return held

    async def _create(self, job: LaunchSpec, held: PodAllocation, token: str) -> str:
        """Create the Kubernetes objects of an allocation; return the uid of the ConfigMap that owns them."""
        settings, name = self._pool.settings, self._name(held.record.id)
        credentials = HolderCredentials(
            allocation=held.record.id,
            token=token,
            urls=job.service_urls,
            uid=job.service_uid,
            home="" if job.staged else job.home,
            idle=settings.keep_idle,
            seconds=held.record.seconds,
        )
        owner, others = manifests.allocation(name, job, credentials, settings, self._services.identity)
        podgroups = (await self._services.discovery.newest()).podgroups if held.holders > 1 else ""
        return await self._services.objects.create(owner, grouped(others, name.owner, podgroups, settings))

    def _assigned(
        self, job: LaunchSpec, folder: AttemptFolder, submission: Submission, held: PodAllocation
    ) -> Submission:
        record = held.record
        return submission.model_copy(
            update={"allocation": record.id, "kept": record.job, "uid": record.uid, "delay": ""}
        )

    async def _assign_again(self, folder: AttemptFolder, submission: Submission) -> None:
        """Clear the assignment of a gang whose allocation has ended, so that the engine submits the gang again later.

        The gang then waits in the same way as one that Kubernetes did not accept.
        """
        async with locked(folder):
            known = read_submission(folder)
            if known is not None and known.allocation == submission.allocation and not known.cancelled:
                update = {"allocation": "", "kept": "", "uid": "", "ending": "", "delay": f"Kubernetes: {ENDED}"}
                write_submission(folder, known.model_copy(update=update))

    def _start_order(self, folder: AttemptFolder) -> Mapping[str, str]:
        return {}

    def _filled(self, held: PodAllocation, order: Mapping[str, str]) -> HolderOrder:
        """Return a stored order in the form in which it is sent to holders.

        An order to start a gang gets the command, the folder and the environment variables (with the secret token) of
        the launcher. If the gang must not start any more, the order becomes `withdrawn`.
        """
        key = order.get("key", "")
        filled = HolderOrder.model_validate({"order": order["order"], "key": key, "why": order.get("why", "")})
        folder = self._folders.of(key_of(key)) if key else None
        if order["order"] != "start" or folder is None:
            return filled
        submission = read_submission(folder)
        over = submission is None or submission.step != key or submission.end is not None
        if over or key in held.ended or not list(self._folders.listed([key_of(key)])):
            return filled.model_copy(update={"order": "withdrawn"})
        job = folder.job()
        environment = manifests.launcher_variables(job, folder.path)
        if job.staged:
            token = folder.token()
            request = StagingRequest(key=str(job.id), urls=job.service_urls, uid=job.service_uid, token=token)
            environment |= {VARIABLE: request.model_dump_json()}
        command = manifests.launcher(job, self._pool.settings, folder.path)
        launch = {"command": tuple(command), "cwd": manifests.launcher_cwd(job), "environment": environment}
        return filled.model_copy(update=launch)

    async def release(self, submission: Submission) -> None:
        """Order that a gang exits: if it runs, it saves a checkpoint first; if it has not started, it never starts."""
        held = self.known.get(submission.allocation)
        if held is not None and not held.may_begin(submission.step):
            if submission.step not in held.ended:
                held.withdraw(submission.step)
            return
        await super().release(submission)

    async def kill(self, key: AttemptId, submission: Submission, held: PodAllocation, away: Collection[str]) -> None:
        """Kill a gang in an allocation; if its processes do not end in time, kill the pods of the allocation.

        `away` has the nodes that are not ready. Raises Unconfirmed if the gang may still run, EngineUnavailable and
        Refused.
        """
        name = submission.step
        if name in held.ended:
            return
        if not held.may_begin(name):
            held.withdraw(name)
            return
        leaving = await asyncio.to_thread(self._folders.of(key).result) is not None
        began, ask_at, ordered, killed = time.monotonic(), ASK_S, False, False
        while name not in held.ended:
            waited = time.monotonic() - began
            if not ordered and (not leaving or waited > LEAVE_S):
                ordered = True
                held.order("kill", name)
            if waited >= ask_at:
                ask_at = waited + ASK_S
                left = alive((await self._services.pods.fresh(held.record.job)).values(), time.time(), away)
                if not left:
                    return
                if waited > KILL_S:
                    names = ", ".join(pod["metadata"]["name"] for pod in left)
                    raise Unconfirmed(f"pods of attempt {key} do not end ({names}); its slots stay taken")
                if waited > KILL_S / 2 and not killed:
                    killed = True
                    await self.give_back(held.record.id, f"attempt {key} does not end")
                    await self._services.objects.end(left, AT_ONCE_S)
            await asyncio.sleep(_POLL_S)
