"""Run gangs as pods, on nodes that Kubernetes' scheduler chooses.

All state is in the attempts' folders and in labels of the objects, so that a restarted service goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from kernel_backend.engines.base import Caps, CheckContext, EngineUnavailable, GangStatus, Unconfirmed
from kernel_backend.engines.folders import FolderEngine, GangFolders
from kernel_backend.engines.kubernetes import check
from kernel_backend.engines.kubernetes.admission import grouped
from kernel_backend.engines.kubernetes.allocated_gangs import ClusterView, PodAllocatedGangs, PodServices
from kernel_backend.engines.kubernetes.allocations import PodAllocation
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.cluster.nodes import PoolNodes
from kernel_backend.engines.kubernetes.cluster.pods import ClusterPods, cluster_pod
from kernel_backend.engines.kubernetes.discovery import Discovery
from kernel_backend.engines.kubernetes.events import PodEvents
from kernel_backend.engines.kubernetes.leftovers import Leftovers
from kernel_backend.engines.kubernetes.manifests import GRACE_S, GangName, Identity, gang, python
from kernel_backend.engines.kubernetes.objects import AT_ONCE_S, GangObjects, alive, node_of
from kernel_backend.engines.kubernetes.probes import PodProbes
from kernel_backend.engines.kubernetes.refusals import Refused, advice, waits, when
from kernel_backend.engines.kubernetes.retries import Pauses, Retries
from kernel_backend.engines.kubernetes.status import NO_LAUNCHER, NOT_PLACED, PLACEMENT_S, StatusReader
from kernel_backend.engines.kubernetes.submission import Submission, locked, read_submission, write_submission
from kernel_backend.engines.kubernetes.watch import CachedPods, PodCache, taken_pods, waiting_pods
from kernel_backend.engines.kubernetes.workloads import QueuedWorkloads
from kernel_backend.errors import Conflict
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.cluster.site_load import SiteLoad
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.holder import HolderOrders, HolderReport
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

KILL_S = 20.0  # for killed pods to be gone
LEAVE_S = 5.0  # for launchers that have recorded the end of their ranks to exit by themselves
LOCK_S = 60.0  # for a submission that is under way
RELEASE_S = 3600  # grace period of released pods: the service kills them before
_POLL_S = 0.2


class KubernetesEngine(FolderEngine):
    """Engine of one pool, which runs its gangs in one namespace of a cluster."""

    name = "kubernetes"
    caps = Caps(atomic_gang=True, preemption=True, quota=True, multi_node=True, per_user_identity=False, places=False)

    def __init__(self, home: Path, pool: Pool, service: str) -> None:
        """Create the engine of a pool, for the service whose home directory is `home`.

        `service` is the id of that service, a random name stored in `home`. Kubernetes objects get it as a label, so
        that several services can use one namespace.
        """
        super().__init__(GangFolders(home, pool.name))
        self._home, self._pool, self._service = home, pool, service
        self._api = Api(pool.settings.context, pool.settings.namespace)
        self._objects, self._pods = GangObjects(self._api), PodCache(self._api, service, pool.name)
        self._identity = Identity(os.geteuid(), os.getegid())
        self._cluster_pods = ClusterPods(self._api, service, pool.name)
        self._nodes, self._pauses = PoolNodes(pool, self._api, self._cluster_pods), Pauses()
        self._delays = dict[AttemptId, str]()  # why gangs wait to be submitted, as of the last look at their records
        self._retries = Retries(self._submit_again, self._pauses)
        self._events, self._discovery = PodEvents(self._api), Discovery(self._api)
        self._workloads = QueuedWorkloads(self._api, self._discovery) if pool.settings.queue else None
        self._probes = PodProbes(self._objects, self._pods, self._discovery, service, self._identity)
        services = PodServices(self._objects, self._pods, self._discovery, self._identity)
        self.keeps, self._kept = True, PodAllocatedGangs(home, pool, service, self._folders, services)
        self._statuses = StatusReader(
            self._folders, self._kept.known_to, pool.settings.placement_timeout or PLACEMENT_S
        )
        self._leftovers = Leftovers(self._objects, self._folders, service, pool.name, self._others)

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes on which pods of the pool may run, listed at most 30 s ago; raise EngineUnavailable."""
        return await self._nodes.newest()

    async def site_load(self) -> SiteLoad:
        """Return the free slots of the pool's nodes, and the pods of others that wait for slots."""
        at = time.time()
        own = alive(await self._pods.listed(), at, self._nodes.away)
        return await self._nodes.load(at, [cluster_pod(each) for each in own])

    def limit(self) -> str:
        """Return a sentence for users on the namespace's quotas if they allow the pool fewer slots than its nodes have.

        "" if they do not.
        """
        return self._nodes.limit

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Create the objects of a gang unless they exist; if Kubernetes refuses them for good, record its end.

        If Kubernetes does not accept a gang now (a quota is used up, a right is missing, no answer), the gang is
        pending with that reason. A later call of `statuses` submits it again, after gangs that have waited longer.
        """
        folder, job = self._folders.of(job.id), job.model_copy(update={"python": python(self._pool.settings)})
        begun = folder.launcher() is not None or read_submission(folder) is not None
        if begun and folder.token_digest() != token_digest(token):
            await self.set_aside(job.id)
            raise Conflict(f"{folder.path} was another attempt's; it is set aside")
        await asyncio.to_thread(folder.prepare, job, token)
        async with locked(folder):
            known, began = read_submission(folder), folder.launcher() is not None
            if (began and known is None) or (known is not None and (known.cancelled or not known.delayed)):
                return
            new = known
            if new is None:
                name = GangName(self._service, self._pool.name, job.id, token_digest(token)).owner
                new = Submission(name=name, at=time.time(), delay=self._behind(job.id))
                write_submission(folder, new)
            self._folders.mark(job.id)
            if known is not None or not new.delay:
                await self._create(job, token, folder, new)

    async def statuses(self, of: Sequence[AttemptId] | None = None) -> Sequence[GangStatus]:
        """Return the status of every listed gang; if `of` is given, only of attempts in it. Raises EngineUnavailable.

        A gang is listed from its submission until `forget`. Each call also starts the work that is due: submitting
        waiting gangs again, deleting leftover objects, and having gangs leave nodes that will be shut down.
        """
        known = await asyncio.to_thread(self._statuses.unended, of)
        self._delays = {key: each.delay for key, each in known.items() if each.delayed and not each.cancelled}
        handed_over = {key: each for key, each in known.items() if not each.delayed}
        cached = await self._pods.cached() if handed_over or self._kept.known else CachedPods()
        absent = await self._absent({each.pods for each in handed_over.values()} | self._kept.created, cached)
        self._retries.go_on(known)
        self._leftovers.look()
        staying = {each.pods for each in handed_over.values() if not each.cancelled}
        await self._look_at(waiting_pods(cached.pods, time.time()), taken_pods(cached, staying))
        await self._leave_ending_nodes(handed_over, cached)
        await self._kept.tend(ClusterView(cached, absent, self._nodes.away, self._nodes.ending))
        self._statuses.away = self._nodes.away
        found = await asyncio.to_thread(self._statuses.read, cached, absent, of)
        for each in found:
            await self._learn(each)
        return found

    async def release(self, key: AttemptId) -> None:
        """Send SIGTERM to a gang's launchers, so that its ranks save a checkpoint and exit.

        A gang that waits to be submitted is ended without having started.
        """
        submission = await self._cancelling(key, "release")
        if submission is None or submission.end is not None or submission.delayed:
            return
        if self._kept.known_to(submission) is not None:
            await self._kept.release(submission)
        else:
            await self._objects.end((await self._pods.fresh(submission.pods)).values(), RELEASE_S)

    async def kill(self, key: AttemptId) -> None:
        """Delete the pods of a gang; return when Kubernetes reports that their processes have ended.

        Raises Unconfirmed if they do not end in time, or if Kubernetes does not answer.
        """
        submission = await self._cancelling(key, "kill")
        if submission is None:
            return
        if (held := self._kept.known_to(submission)) is not None:
            await self._kill_kept(key, submission, held)
            return
        leaving = await asyncio.to_thread(self._folders.of(key).result) is not None
        begun, killed = time.monotonic(), False
        try:
            while left := alive((await self._pods.fresh(submission.pods)).values(), time.time(), self._nodes.away):
                waited = time.monotonic() - begun
                if waited > KILL_S:
                    names = ", ".join(pod["metadata"]["name"] for pod in left)
                    raise Unconfirmed(f"pods of attempt {key} do not end ({names}); its slots stay taken")
                if not killed and (not leaving or waited > LEAVE_S):
                    await self._objects.end(left, AT_ONCE_S)
                    killed = True
                await asyncio.sleep(_POLL_S)
            await self._objects.remove(submission.pods)  # a pod that a lost request creates later is deleted with it
        except (EngineUnavailable, Refused) as error:
            raise Unconfirmed(f"the pods of attempt {key} may still run: {error}") from None

    async def forget(self, key: AttemptId) -> None:
        """Stop reporting a gang's status, and delete its secret token and its Kubernetes objects.

        Objects that cannot be deleted now are deleted later.
        """
        self._statuses.forget(key)
        submission = await asyncio.to_thread(read_submission, self._folders.of(key))
        await asyncio.to_thread(self._folders.forget, key)
        if submission is not None and not submission.allocation:
            with contextlib.suppress(EngineUnavailable, Refused):
                await self._objects.remove(submission.name)

    async def check(self, context: CheckContext) -> Sequence[PoolFinding]:
        """Check the pool: read the cluster's state from the API server, and run probe programs in pods on its nodes."""
        seen = check.Sources(self._api, self._nodes, self._cluster_pods, self._discovery, self._probes)
        return await check.check_pool(self._home, self._pool, context, seen)

    # Allocations that searches keep

    def allocations(self) -> Sequence[HeldAllocation]:
        """Return the allocations that searches have or wait for in this pool, as of the last call of `statuses`."""
        return self._kept.shown()

    async def give_back(self, id: str, why: str) -> None:
        """Start no more gangs in an allocation, and end it when its current gang has ended; `why` is shown to users."""
        await self._kept.give_back(id, why)

    def holder_digest(self, id: str) -> str:
        """Return the digest of the token by which an allocation's holders authenticate; "" if it is unknown."""
        held = self._kept.known.get(id)
        return held.record.digest if held is not None else ""

    async def holder_report(self, id: str, report: HolderReport) -> HolderOrders:
        """Store the events that a pod's holder reports, and return its orders after at most `report.wait` seconds.

        Raises PlaceUnavailable if the events cannot be stored, and Conflict if the holder must not start a gang.
        """
        return await self._kept.report(id, report)

    def _others(self) -> set[str]:
        """Return the names of the ConfigMaps that own the objects of running checks and of allocations.

        The search for leftover objects must not delete these.
        """
        return self._probes.owners | self._kept.owners

    async def _kill_kept(self, key: AttemptId, submission: Submission, held: PodAllocation) -> None:
        try:
            await self._kept.kill(key, submission, held, self._nodes.away)
        except (EngineUnavailable, Refused) as error:
            raise Unconfirmed(f"the processes of attempt {key} may still run: {error}") from None

    async def _look_at(self, waiting: Sequence[str], taken: Sequence[str]) -> None:
        """Read from events (and from Kueue) why pods wait or were deleted, where the pods' own status does not say so.

        `waiting` and `taken` are the names of such pods.
        """
        await self._events.look(waiting, taken)
        queued: Mapping[str, str] = {}
        if self._workloads is not None:
            await self._workloads.look(waiting)
            queued = self._workloads.texts
        self._statuses.events = {**self._events.texts, **queued}

    def _behind(self, key: AttemptId) -> str:
        """Return why a new gang must not be submitted yet; "" if it may be.

        Its trial may be paused, or gangs that came earlier may still wait to be submitted.
        """
        others = (delay for other, delay in self._delays.items() if not self._pauses.reason(other))
        return self._pauses.reason(key) or next(others, "")

    async def _create(self, job: LaunchSpec, token: str, folder: AttemptFolder, submission: Submission) -> bool:
        """Create the objects of a gang, and record the result; the caller holds the lock of the gang's record.

        Returns False if the gang must be submitted again later. True means that it was accepted, or has ended since
        Kubernetes refused it for good.
        """
        try:
            if job.keep_allocation:
                changed = await self._kept.place(job, folder, submission)
            else:
                uid = await self._create_pods(job, token, folder)
                changed = write_submission(folder, submission.model_copy(update={"uid": uid, "delay": ""}))
        except EngineUnavailable as error:
            changed = write_submission(folder, submission.model_copy(update={"delay": error.message}))
        except Refused as error:
            if when(error) == "later":
                refused = submission.model_copy(update={"delay": waits(error)})
            else:
                message = f"{waits(error)}. To change: {advice(error)}"
                failure = Failure(rank=0, type="KubernetesRefused", message=message)
                refused = submission.ended(Outcome.INFEASIBLE, failure)
            changed = write_submission(folder, refused)
        if changed.delayed:
            self._delays[job.id] = changed.delay
        else:
            self._delays.pop(job.id, None)
        return not changed.delayed

    async def _create_pods(self, job: LaunchSpec, token: str, folder: AttemptFolder) -> str:
        """Create the pods of a gang that runs in no allocation; return the uid of the ConfigMap that owns them."""
        name = GangName(self._service, self._pool.name, job.id, token_digest(token))
        owner, others = gang(name, job, token, self._pool, folder.path, self._identity)
        podgroups = (await self._discovery.newest()).podgroups if len(job.placement) > 1 else ""
        return await self._objects.create(owner, grouped(others, name.owner, podgroups, self._pool.settings))

    async def _submit_again(self, key: AttemptId) -> bool:
        """Submit a waiting gang again; if it was cancelled, delete its objects and record its end.

        Returns False if it must wait further.
        """
        folder = self._folders.of(key)
        async with locked(folder):
            known = read_submission(folder)
            if known is None or not known.delayed:
                return True
            if known.cancelled:
                await self._objects.remove(known.name)
                outcome = Outcome.RELEASED if known.cancelled == "release" else Outcome.KILLED
                write_submission(folder, known.ended(outcome))
                return True
            job, token = await asyncio.to_thread(folder.job), await asyncio.to_thread(folder.token)
            return await self._create(job, token, folder, known)

    async def _leave_ending_nodes(self, gangs: Mapping[AttemptId, Submission], cached: CachedPods) -> None:
        """Make each gang with a pod on a node whose shutdown is announced save a checkpoint and exit.

        The launchers of such a gang get SIGTERM. `gangs` are the gangs that were submitted and have not ended.
        """
        ending = self._nodes.ending
        for key, submission in gangs.items() if ending else ():
            pods = cached.pods.get(submission.pods, {}).values()
            node = next((name for pod in alive(pods, time.time(), ()) if (name := node_of(pod)) in ending), None)
            if node is None or submission.cancelled or submission.ending:
                continue
            folder = self._folders.of(key)
            async with locked(folder):
                known = read_submission(folder)
                if known is not None and known.end is None and not known.cancelled:
                    why = f"the end of node {node} is announced ({ending[node]})"
                    write_submission(folder, known.model_copy(update={"ending": why}))
            with contextlib.suppress(EngineUnavailable, Refused):  # then Kubernetes ends them itself
                await self._objects.end(pods, GRACE_S)

    async def _absent(self, owners: Collection[str], cached: CachedPods) -> set[str]:
        """Return those of the ConfigMaps `owners` whose pods do not exist any more, according to a new list of pods.

        `owners` are the names of the owners of gangs and allocations. Empty if the API server does not answer.
        """
        if cached.problem:
            return set()
        try:
            return await self._pods.absent([name for name in owners if not cached.pods.get(name)])
        except (EngineUnavailable, Refused):
            return set()

    async def _learn(self, status: GangStatus) -> None:
        """Pause the trial of a gang that failed as only some of its pods found nodes; end the pause once a gang runs.

        The allocation of a gang that could not start in it is given back.
        """
        failure = status.result.failure if status.result is not None else None
        if status.phase == "running":
            self._pauses.end(status.key)
        if failure is None or failure.type not in (NOT_PLACED, NO_LAUNCHER):
            return
        if failure.type == NOT_PLACED and not self._pauses.reason(status.key):
            self._pauses.begin(status.key, failure.message)
        submission = await asyncio.to_thread(read_submission, self._folders.of(status.key))
        if submission is not None and submission.allocation:
            await self._kept.give_back(submission.allocation, failure.message)

    async def _cancelling(self, key: AttemptId, why: Literal["release", "kill"]) -> Submission | None:
        """Record in a gang's submission that it is to be ended, by `release` or `kill`; return the submission.

        None if the gang was never submitted. Raises Unconfirmed if its objects are still being created after a minute.
        """
        folder = self._folders.of(key)
        if read_submission(folder) is None:
            return None
        try:
            async with asyncio.timeout(LOCK_S), locked(folder):
                submission = read_submission(folder)
                if submission is None or submission.cancelled == why or submission.end is not None:
                    return submission
                return write_submission(folder, submission.model_copy(update={"cancelled": why}))
        except TimeoutError:
            raise Unconfirmed(f"attempt {key} is being submitted, and its pods may start yet") from None
