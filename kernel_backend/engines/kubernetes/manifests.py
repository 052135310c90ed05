"""Compose the Kubernetes objects of a gang, an allocation or a check: pods, a Secret, and a ConfigMap that owns them.

Kubernetes deletes the owned objects together with the ConfigMap. Pure functions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from kernel_backend.engines.folders import MARK, withheld
from kernel_backend.launch.node import NODE, NODE_NAME, NODES, SHARES
from kernel_backend.model.cluster.input_cache import ROOT, cache_variables
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.holder import HOLDER, HolderCredentials
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.staging import SCRATCH, VARIABLE, StagingRequest
from kernel_backend.model.record import Record
from kernel_backend.model.resources import Share

Manifest = dict[str, Any]

SERVICE, POOL, GANG, ATTEMPT, NUMBER = (
    f"daylight/{name}" for name in ("service", "pool", "gang", "attempt", "node")
)  # labels of all objects of a gang
GRACE_S = 120  # between SIGTERM and SIGKILL: for a checkpoint, where the cluster itself ends a pod
START_S = 600  # of an allocation: for images to be pulled, after which its time begins
UNREACHABLE_S = 30  # after which Kubernetes ends the pods of a node that it does not reach
MOST_PREFERRED = 100  # nodes that a pod names as having its data
CONTAINER = "ranks"
RESOURCE, PYTHON, SHM_GB = "nvidia.com/gpu", "python3", 8.0  # if the pool names no other
SCRATCH_FOLDER = "/var/daylight"  # in a pod, if the pool names no other
_CREDENTIALS = "staging"  # key of the Secret
_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")


class Identity(NamedTuple):
    """Unix user id and group id as which pods run, so that they can read the service's folders."""

    user: int
    group: int


class ObjectNames(Protocol):
    """Names and labels of the Kubernetes objects of one gang, one allocation or one check."""

    @property
    def owner(self) -> str:
        """Return the name of the ConfigMap that owns the other objects; the names of the pods begin with it."""

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels that all objects of the gang, allocation or check have, and by which they are found."""

    def pod(self, number: int) -> str:
        """Return the name of the pod for node `number` of the gang."""


class PodPlan(NamedTuple):
    """Properties of a pod that differ between gangs, allocations and checks."""

    command: list[str]
    cwd: str
    env: list[Manifest]
    share: Share | None  # the slots of the pod; None: one CPU slot
    staged: bool  # whether the pod's files go through the service
    excluded: tuple[str, ...] = ()  # nodes that are left out
    preferred: tuple[str, ...] = ()  # nodes that have its data
    grace: int = GRACE_S
    limit: int | None = None  # seconds after which Kubernetes ends the pod


class GangName(NamedTuple):
    """Names and labels of the Kubernetes objects of one gang, unique in the namespace.

    They depend only on the fields here, so that a repeated submission of the same attempt uses the same names.
    """

    service: str  # id of the service, since several may use one namespace
    pool: str
    key: AttemptId
    digest: str  # of the token, since keys recur after a database is restored

    @property
    def owner(self) -> str:
        """Return the name of the ConfigMap that owns the other objects; the names of the pods begin with it."""
        mark = hashlib.sha256(f"{self.service} {self.pool} {self.digest}".encode()).hexdigest()[:8]
        key = f"{self.key.experiment}-{self.key.trial}-{self.key.number}"
        return f"daylight-{key}-{mark}"

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of the gang, by which they are found."""
        return {**of_pool(self.service, self.pool), GANG: self.owner, ATTEMPT: str(self.key)}

    def pod(self, number: int) -> str:
        """Return the name of the pod for node `number` of the gang."""
        return f"{self.owner}-{number}"


class AllocationName(NamedTuple):
    """Names and labels of the objects of an allocation that a search keeps, unique in the namespace."""

    service: str  # id of the service, since several may use one namespace
    pool: str
    id: str

    @property
    def owner(self) -> str:
        """Return the name of the ConfigMap that owns the other objects; the names of the pods begin with it."""
        mark = hashlib.sha256(f"{self.service} {self.pool} {self.id}".encode()).hexdigest()[:8]
        return f"daylight-kept-{self.id}-{mark}"

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of the allocation, by which they are found."""
        return {**of_pool(self.service, self.pool), GANG: self.owner}

    def pod(self, number: int) -> str:
        """Return the name of the pod for node `number` of the allocation."""
        return f"{self.owner}-{number}"


def of_pool(service: str, pool: str) -> dict[str, str]:
    """Return the labels that all objects of one pool of a service have."""
    return {"app.kubernetes.io/managed-by": "daylight", SERVICE: service, POOL: pool}


def selector(labels: Mapping[str, str]) -> str:
    """Return labels in the form of a label selector, for a query.

    Examples
    --------
    >>> selector({"a": "1", "b": "2"})
    'a=1,b=2'
    """
    return ",".join(f"{name}={value}" for name, value in labels.items())


def owner(name: ObjectNames, data: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap that owns all other objects of a gang, an allocation or a check.

    Kubernetes deletes the owned objects together with it. `data` is its content, which identifies the attempt or check.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name.owner, "labels": name.labels},
        "data": dict(data),
    }


def secret(name: ObjectNames, data: Record) -> Manifest:
    """Return the Secret from which the pods read how to call the service: addresses and token, in `data`."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name.owner, "labels": name.labels},
        # Images with an older Daylight refuse fields that they do not know.
        "stringData": {_CREDENTIALS: data.model_dump_json(exclude_defaults=True)},
    }


def owned(manifest: Manifest, by: Manifest) -> Manifest:
    """Return an object with a reference to its owner `by`, given as the API server returned it."""
    known = by["metadata"]
    of = {"apiVersion": by["apiVersion"], "kind": by["kind"], "name": known["name"], "uid": known["uid"]}
    metadata = manifest["metadata"] | {"ownerReferences": [of | {"blockOwnerDeletion": False}]}
    return manifest | {"metadata": metadata}


def gang(
    name: GangName, job: LaunchSpec, token: str, pool: Pool, folder: Path, identity: Identity
) -> tuple[Manifest, list[Manifest]]:
    """Return the ConfigMap that owns a gang's objects, and the other objects in the order in which to create them.

    `folder` is the attempt's folder, `token` the secret by which its launchers authenticate to the service.
    """
    request = StagingRequest(key=str(job.id), urls=job.service_urls, uid=job.service_uid, token=token)
    secrets = [secret(name, request)] if job.staged else []
    return owner(name, {"attempt": str(name.key), "token": name.digest}), [
        *secrets,
        *(
            pod(name, number, _plan(name, job, pool.settings, folder, number), pool.settings, identity)
            for number in range(max(1, len(job.placement)))
        ),
    ]


def pod(name: ObjectNames, number: int, plan: PodPlan, settings: PoolSettings, identity: Identity) -> Manifest:
    """Return the manifest of the pod for node `number` of a gang, allocation or check.

    By its affinity, Kubernetes places the pods of the same gang, allocation or check on different nodes.
    """
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": plan.grace,
        "automountServiceAccountToken": False,  # user code must not speak to the API server
        "enableServiceLinks": False,
        "affinity": _affinity(name, plan.excluded, plan.preferred if _of_node(settings) else ()),
        "nodeSelector": dict(each.split("=", 1) for each in settings.node_selector),
        "tolerations": _tolerations(settings),
        "containers": [_container(plan, settings)],
        "volumes": _volumes(plan, settings),
        "securityContext": _security(plan, identity),
    }
    optional = {
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "activeDeadlineSeconds": plan.limit,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name.pod(number), "labels": {**name.labels, NUMBER: str(number)}},
        "spec": spec | {key: value for key, value in optional.items() if value},
    }


def allocation(
    name: AllocationName, job: LaunchSpec, credentials: HolderCredentials, settings: PoolSettings, identity: Identity
) -> tuple[Manifest, list[Manifest]]:
    """Return the ConfigMap that owns an allocation's objects, and the other objects in the order to create them.

    The pods have the size that the gang of `job` needs. Their holders authenticate by `credentials`.
    """
    nodes = max(1, len(job.placement))
    plans = [
        PodPlan(
            command=[python(settings), "-P", "-m", "kernel_backend.engines.kubernetes.holder"],
            cwd="/",
            env=[
                *node_variables(number, nodes),
                *_variables(_of_pods(job, settings)),
                credentials_variable(name, HOLDER),
            ],
            share=job.placement[number] if job.placement else None,
            staged=job.staged,
            excluded=job.excluded,
            preferred=job.preferred,
            limit=round(credentials.seconds + START_S),
        )
        for number in range(nodes)
    ]
    pods = [pod(name, number, plan, settings, identity) for number, plan in enumerate(plans)]
    return owner(name, {"allocation": name.id}), [secret(name, credentials), *pods]


def _plan(name: GangName, job: LaunchSpec, settings: PoolSettings, folder: Path, number: int) -> PodPlan:
    return PodPlan(
        command=launcher(job, settings, folder),
        cwd=launcher_cwd(job),
        env=_environment(name, job, settings, folder, number),
        share=job.placement[number] if job.placement else None,
        staged=job.staged,
        excluded=job.excluded,
        preferred=job.preferred,
    )


def _container(plan: PodPlan, settings: PoolSettings) -> Manifest:
    amounts = resources(plan.share, settings)
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": plan.command,
        "workingDir": plan.cwd,
        "env": plan.env,
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": _mounts(plan, settings),
        # The last lines of a launcher that could not begin become the reason of the failure.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def launcher(job: LaunchSpec, settings: PoolSettings, folder: Path) -> list[str]:
    """Return the command that starts a gang's launcher in a pod; `folder` is the attempt's folder.

    With a shared disk, the launcher's output goes to a file that the service can show to users.
    """
    interpreter = [python(settings), "-P", "-m"]
    if job.staged:
        return [*interpreter, "kernel_backend.staging", "--step", "kubernetes"]
    command = [*interpreter, "kernel_backend.launch", str(folder), "--step", "kubernetes"]
    unset = "".join(f"unset {name}; " for name in withheld(job.config.env))
    return ["/bin/sh", "-c", f'{unset}exec "$@" >>"${MARK}/launcher.log" 2>&1', "sh", *command]


def launcher_cwd(job: LaunchSpec) -> str:
    """Return the folder in which a gang's launcher is started."""
    return "/" if job.staged else job.cwd


def launcher_variables(job: LaunchSpec, folder: Path) -> dict[str, str]:
    """Return those environment variables of an attempt's launchers that name its folder and the service's home.

    They differ between gangs that run in the same pods. {} if the pods share no disk with the service.
    """
    return {} if job.staged else {MARK: str(folder), "DAYLIGHT_HOME": job.home}


def _environment(name: GangName, job: LaunchSpec, settings: PoolSettings, folder: Path, number: int) -> list[Manifest]:
    own = _of_pods(job, settings) | launcher_variables(job, folder)
    found = [*node_variables(number, max(1, len(job.placement))), *_variables(own)]
    return [*found, credentials_variable(name, VARIABLE)] if job.staged else found


def _of_pods(job: LaunchSpec, settings: PoolSettings) -> dict[str, str]:
    """Return the environment variables that are the same for all gangs in the same pods.

    They have the number of CPU slots of each node (not if slots are GPUs), the scratch folder for files of attempts if
    no disk is shared with the service, and the folder of remote data: the pool's, or else one in the scratch folder.
    """
    cpus = job.placement and job.placement[0].kind == "cpu"
    found = {SHARES: ",".join(str(len(share.slots)) for share in job.placement)} if cpus else {}
    if job.staged:
        found |= {SCRATCH: scratch(settings), ROOT: f"{scratch(settings)}/inputs"}
    return found | cache_variables(settings)


def _variables(values: Mapping[str, str]) -> list[Manifest]:
    return [{"name": key, "value": value} for key, value in values.items()]


def node_variables(number: int, nodes: int) -> list[Manifest]:
    """Return three environment variables of a pod: its number, the number of pods, and the name of its node."""
    own = [{"name": NODE, "value": str(number)}, {"name": NODES, "value": str(nodes)}]
    return [*own, {"name": NODE_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


def credentials_variable(name: ObjectNames, variable: str) -> Manifest:
    """Return the environment variable `variable`, whose value Kubernetes reads from the Secret of `name`."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name.owner, "key": _CREDENTIALS}}}


def resources(share: Share | None, settings: PoolSettings) -> dict[str, str]:
    """Return the amounts of resources that a pod requests, which are also its limits.

    `share` has the pod's slots; None means one CPU slot.

    Examples
    --------
    >>> settings = PoolSettings(engine="kubernetes", image="i", cpus_per_slot=4, memory_per_slot=8000)
    >>> resources(Share(node="n1", kind="cuda", address="n1", slots=(0, 1)), settings)
    {'cpu': '8', 'memory': '16000Mi', 'nvidia.com/gpu': '2'}
    """
    slots = len(share.slots) if share is not None else 1
    found = {"cpu": str(slots * settings.cpus_per_slot)}
    if settings.memory_per_slot is not None:
        found["memory"] = f"{slots * settings.memory_per_slot}Mi"
    if share is not None and share.kind != "cpu":
        found[settings.resource or RESOURCE] = str(slots)
    return found


def python(settings: PoolSettings) -> str:
    """Return the Python interpreter in the pool's image."""
    return settings.python or PYTHON


def scratch(settings: PoolSettings) -> str:
    """Return the folder in pods where attempts keep their files if no disk is shared with the service."""
    return settings.scratch or SCRATCH_FOLDER


def _volumes(plan: PodPlan, settings: PoolSettings) -> list[Manifest]:
    memory = {"medium": "Memory", "sizeLimit": f"{round((settings.shm_gb or SHM_GB) * 1024)}Mi"}
    found: list[Manifest] = [{"name": "shm", "emptyDir": memory}]
    found += [{"name": "scratch", "emptyDir": {}}] if plan.staged else []
    names = enumerate(dict.fromkeys(_claim(each) for each in settings.volumes))
    found += ({"name": f"claim-{n}", "persistentVolumeClaim": {"claimName": name}} for n, name in names)
    if cache := _of_node(settings):
        found.append({"name": "cache", "hostPath": {"path": cache, "type": "DirectoryOrCreate"}})
    return found


def _mounts(plan: PodPlan, settings: PoolSettings) -> list[Manifest]:
    found: list[Manifest] = [{"name": "shm", "mountPath": "/dev/shm"}]
    found += [{"name": "scratch", "mountPath": scratch(settings)}] if plan.staged else []
    names = list(dict.fromkeys(_claim(each) for each in settings.volumes))
    for each in settings.volumes:
        _, at, *read_only = each.split(":")
        found.append({"name": f"claim-{names.index(_claim(each))}", "mountPath": at, "readOnly": bool(read_only)})
    if cache := _of_node(settings):
        found.append({"name": "cache", "mountPath": cache})
    return found


def _of_node(settings: PoolSettings) -> str:
    """Return the folder of each node in which pods keep remote data; "" if they keep it elsewhere.

    That is in the pod alone, or on one of the pool's volume claims.
    """
    cache = settings.cache or ""
    claimed = any(PurePosixPath(cache).is_relative_to(each.split(":")[1]) for each in settings.volumes)
    return "" if claimed else cache


def _claim(volume: str) -> str:
    return volume.split(":", 1)[0]


def _security(plan: PodPlan, identity: Identity) -> Manifest:
    seccomp: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    if plan.staged:
        return seccomp
    return seccomp | {"runAsUser": identity.user, "runAsGroup": identity.group}


def _affinity(name: ObjectNames, excluded: Collection[str], preferred: Sequence[str]) -> Manifest:
    """Return the affinity that keeps the pods of a gang on different nodes, and away from the nodes in `excluded`.

    Nodes in `preferred` only get a better score of the cluster's scheduler: no pod waits for them.
    """
    apart = {"labelSelector": {"matchLabels": {GANG: name.owner}}, "topologyKey": "kubernetes.io/hostname"}
    found: Manifest = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    if excluded:
        fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(excluded)]
        terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if preferred:
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in preferred[:MOST_PREFERRED]]
        scores = [{"weight": 100, "preference": {"matchFields": [each]}} for each in fields]
        found.setdefault("nodeAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = scores
    return found


def _tolerations(settings: PoolSettings) -> list[Manifest]:
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": UNREACHABLE_S}
    return [*({"key": key, **lost} for key in _TAINTS), *map(toleration, settings.tolerations)]


def toleration(text: str) -> dict[str, str]:
    """Return a toleration of a pool's settings, such as `KEY=VALUE:EFFECT`, in Kubernetes' form.

    Examples
    --------
    >>> toleration("team=vision:NoSchedule")
    {'key': 'team', 'operator': 'Equal', 'value': 'vision', 'effect': 'NoSchedule'}
    >>> toleration("nvidia.com/gpu")
    {'key': 'nvidia.com/gpu', 'operator': 'Exists'}
    """
    label, _, effect = text.partition(":")
    key, equal, value = label.partition("=")
    found = {"key": key, "operator": "Equal", "value": value} if equal else {"key": key, "operator": "Exists"}
    return found | ({"effect": effect} if effect else {})


def attempt_of(labels: Mapping[str, str]) -> str:
    """Return the key of the attempt that an object's labels name; "" if they name none, or the label is invalid."""
    return labels.get(ATTEMPT, "") if re.fullmatch(r"[0-9]+\.[0-9]+-[0-9]+", labels.get(ATTEMPT, "")) else ""
