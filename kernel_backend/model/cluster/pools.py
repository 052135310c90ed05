"""Define pools: the nodes of one engine, such as a Slurm cluster, under a name that users give with `--pool`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.record import Record, problem_text
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.values import nearest

EngineName = Literal["slurm", "kubernetes"]
NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?")
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s'\"\\;&|<>$`]+$")]
# Settings that only one engine reads.
_OF_ENGINE: Mapping[EngineName, tuple[str, ...]] = {
    "slurm": ("partition", "account", "qos", "constraint", "gpu_type", "extra"),
    "kubernetes": (
        *("image", "namespace", "context", "service_account", "node_selector", "tolerations", "priority_class"),
        *("resource", "shared_devices", "node_slots", "shm_gb", "volumes", "placement_timeout", "queue", "scheduler"),
    ),
}
_TOLERATION = re.compile(r"[A-Za-z0-9./_-]*(=[A-Za-z0-9._-]*)?(:(NoSchedule|PreferNoSchedule|NoExecute))?")
_LABEL = re.compile(r"[A-Za-z0-9./_-]+=[A-Za-z0-9._-]*")
_VOLUME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?:/[^:,]*(:ro)?")


class PoolSettings(Record):
    """Settings of a pool. The local pool, which is the service's machine, has none.

    A slot is one GPU, or `cpus_per_slot` CPUs in a pool without GPUs. The fields' descriptions are the help texts of
    the options of `pool add`, which are made from these fields.
    """

    engine: EngineName = Field(description="the system that runs the gangs")
    partition: Word | None = Field(None, description="partition of the site's queue [the site's default]")
    account: Word | None = Field(None, description="account that the site charges [yours by default]")
    qos: Word | None = Field(None, description="quality of service [the site's default]")
    image: Word | None = Field(
        None, description="container image of the pods, with Daylight in it; kubernetes needs one"
    )
    namespace: Word | None = Field(None, description="namespace of the pods [that of the context]")
    context: Word | None = Field(None, description="context of the kubeconfig file [its current one, or the cluster]")
    service_account: Word | None = Field(None, description="service account of the pods [default]")
    node_selector: tuple[str, ...] = Field(
        (), max_length=50, description="a label that nodes must have, as gpu=a100; may be repeated"
    )
    tolerations: tuple[str, ...] = Field(
        (), max_length=50, description="a taint that pods tolerate, as team=vision:NoSchedule; may be repeated"
    )
    priority_class: Word | None = Field(None, description="priority class of the pods [the cluster's default]")
    queue: Word | None = Field(None, description="queue of Kueue in the namespace, which admits the gangs [none]")
    scheduler: Word | None = Field(None, description="scheduler of the pods, as scheduler-plugins-scheduler [default]")
    resource: Word | None = Field(
        None, description="resource that is a GPU of a node, as nvidia.com/mig-3g.40gb [nvidia.com/gpu]"
    )
    shared_devices: bool = Field(
        False, description="whether a share of a device that several pods use counts as a slot [no]"
    )
    node_slots: int | None = Field(
        None, ge=1, le=4096, description="slots of a node that an autoscaler adds, up to most_slots [as the largest]"
    )
    constraint: Word | None = Field(None, description="feature that nodes must have [none]")
    gpu_type: Word | None = Field(None, description="type of GPU, as in --gres=gpu:TYPE:2 [any]")
    gpus: bool | None = Field(None, description="whether a slot is a GPU [if the partition has any]")
    cpus_per_slot: int = Field(1, ge=1, le=1024, description="CPUs of each slot [1]")
    memory_per_slot: int | None = Field(None, ge=1, description="MiB of memory of each slot [the site's default]")
    shm_gb: float | None = Field(
        None, gt=0, le=4096.0, description="GiB of /dev/shm of each pod, part of its memory [8]"
    )
    volumes: tuple[str, ...] = Field(
        (), max_length=50, description="a volume claim and its path in pods, as data:/data:ro; may be repeated"
    )
    python: Word | None = Field(
        None, description="Python interpreter of the image, or of the nodes [python3; on Slurm the one that submits]"
    )
    placement_timeout: float | None = Field(
        None,
        gt=0,
        le=86_400.0,
        description="seconds for which a part of a gang keeps its nodes while the rest finds none [300]",
    )
    extra: tuple[str, ...] = Field(
        (), max_length=50, description="a further option of sbatch, as --extra=--reservation=course; may be repeated"
    )
    most_slots: int | None = Field(None, ge=1, description="slots that your users hold there at once, at most [all]")
    most_waiting: int = Field(
        20, ge=1, le=10_000, description="gangs that wait in the site's queue at once, at most; others wait here [20]"
    )
    keep_idle: float = Field(
        60.0,
        gt=0,
        le=86_400.0,
        description="seconds for which the allocation of a search waits for its next trial [60]",
    )
    shared: bool = Field(
        True, description="whether its nodes see the service's home; no: files go through the service [yes]"
    )
    scratch: Word | None = Field(
        None, description="folder on each node's own disk, where `shared` is no [its user's cache folder]"
    )
    cache: Word | None = Field(
        None, description="folder on each node for remote data, as /nvme/daylight [a folder of each user in /var/tmp]"
    )
    cache_gb: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="gigabytes of remote data on each node, at most [19/20 of its disk]",
    )
    interface: Word | None = Field(
        None, description="network device of the nodes by which ranks connect [one that works]"
    )
    join_timeout: float = Field(
        300.0, gt=0, le=86_400.0, description="seconds from the first node's start to the last one's [300]"
    )
    price: float | None = Field(
        None, ge=0, le=1e9, description="price of a slot-hour, in your currency, for `daylight usage` [none]"
    )

    @field_validator("extra")
    @classmethod
    def _options(cls, extra: tuple[str, ...]) -> tuple[str, ...]:
        for each in extra:
            if not re.fullmatch(r"--[a-z][a-z-]*(=[^\s]*)?|-[A-Za-z][^\s]*", each):
                raise ValueError(f"{each!r} is no option of sbatch: write it as --name=value")
        return extra

    @model_validator(mode="before")
    @classmethod
    def _unshared(cls, given: object) -> object:
        """Return the given settings, with `shared` set to False for a pool of Kubernetes that does not set it.

        Without a shared file system, files go through the service.
        """
        if isinstance(given, Mapping) and given.get("engine") == "kubernetes" and "shared" not in given:
            return {**given, "shared": False}
        return given

    @field_validator("node_selector", mode="before")
    @classmethod
    def _labels(cls, given: object) -> object:
        return tuple(f"{name}={value}" for name, value in given.items()) if isinstance(given, Mapping) else given

    @field_validator("tolerations", mode="before")
    @classmethod
    def _taints(cls, given: object) -> object:
        return tuple(map(_toleration, given)) if isinstance(given, list | tuple) else given

    @field_validator("volumes", mode="before")
    @classmethod
    def _mounts(cls, given: object) -> object:
        return tuple(map(_volume, given)) if isinstance(given, list | tuple) else given

    @model_validator(mode="after")
    def _of_the_engine(self) -> Self:
        for engine, names in _OF_ENGINE.items():
            for name in names:
                if engine != self.engine and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is a setting of pools with the engine {engine}, not {self.engine}")
        _matching("node_selector", self.node_selector, _LABEL, "label=value")
        _matching("tolerations", self.tolerations, _TOLERATION, "key=value:NoSchedule")
        _matching("volumes", self.volumes, _VOLUME, "claim:/path or claim:/path:ro")
        if self.cache is not None and not self.cache.startswith("/"):
            raise ValueError(f"cache: {self.cache!r} must be an absolute path on the nodes, such as /nvme/daylight")
        if self.engine == "kubernetes" and self.image is None:
            raise ValueError("image: name a container image with Daylight and torch, such as registry/team/daylight:1")
        if (self.resource or "").endswith(".shared") and not self.shared_devices:
            raise ValueError("resource: several pods use each such device; set `shared_devices` if slots may be shares")
        if self.engine == "kubernetes" and self.shared and not self.volumes:
            raise ValueError("shared: name the volume claim with the service's home in `volumes`, or leave it out")
        return self


class Pool(Record):
    """Pool: its name, its settings, and whether they come from the service's configuration."""

    name: str = Field(max_length=32)
    settings: PoolSettings
    configured: bool = False  # in the service's configuration, so that no command changes it

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        if name == LOCAL:
            raise ValueError("that is the machine of the service itself; choose another name")
        if not NAME.fullmatch(name):
            raise ValueError("must be up to 32 of a-z, 0-9, - and _")
        return name


class Move(Record):
    """Body of `POST /api/experiments/{number}/move`: the pool to move to, or several as `gpu,cloud`."""

    pool: str = Field(min_length=1, max_length=1000)


class PoolStatus(Record):
    """Status of a pool: its settings, its size, and the problem due to which it cannot be used, if any."""

    name: str
    engine: str  # local, slurm, kubernetes; "" if its settings name none
    settings: PoolSettings | None = None  # None for the local pool, and where they are invalid
    configured: bool = True
    default: bool = False  # submissions that name no pool train there
    places: bool = True  # Daylight chooses the nodes; else the site's own queue does
    kinds: tuple[str, ...] = ()  # kinds of devices
    nodes: int = 0
    slots: int = 0
    used: int = 0
    waiting: int = 0  # requests in Daylight's own queue
    problem: str = ""  # why it cannot be used now; "" if it can
    limit: str = ""  # what limits it to fewer slots than its nodes offer, such as a quota of its namespace
    allocations: tuple[HeldAllocation, ...] = ()  # those that searches keep, or wait for


def changes(before: PoolSettings | None, after: PoolSettings | None) -> list[str]:
    """Return how a pool's settings have changed, as texts such as `partition v100 -> a100`.

    `before` is None for a new pool, `after` for a removed one.
    """
    old, new = _given(before), _given(after)
    names = [name for name in PoolSettings.model_fields if old.get(name) != new.get(name)]
    if before is None:
        return [f"{name} {new[name]}" for name in names]
    return [f"{name} {old.get(name, 'default')} -> {new.get(name, 'default')}" for name in names]


def spelled(value: object) -> str:
    """Return a setting's value as users write it on the command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else shlex.quote(str(value))


def parts(value: object) -> tuple[object, ...]:
    """Return a setting's values as a tuple: the value itself if it is a tuple, else a tuple with the value."""
    return tuple(value) if isinstance(value, tuple) else (value,)


def _toleration(given: object) -> object:
    """Return a Kubernetes toleration as text, such as `key=value:NoSchedule`; return any other value unchanged."""
    if not isinstance(given, Mapping):
        return given
    key, value, effect = (str(given.get(name) or "") for name in ("key", "value", "effect"))
    return f"{key}{f'={value}' if value else ''}{f':{effect}' if effect else ''}"


def _volume(given: object) -> object:
    """Return a Kubernetes volume as text, `claim:/path` or `claim:/path:ro`; return any other value unchanged."""
    if not isinstance(given, Mapping):
        return given
    return f"{given.get('claim', '')}:{given.get('at', '')}{':ro' if given.get('read_only') else ''}"


def _matching(name: str, values: Iterable[str], pattern: re.Pattern[str], form: str) -> None:
    for each in values:
        if not pattern.fullmatch(each):
            raise ValueError(f"{name}: {each!r} must be written as {form}")


def _given(settings: PoolSettings | None) -> dict[str, str]:
    """Return those of a pool's settings that differ from the defaults, as texts by name; empty for None."""
    given = {} if settings is None else settings.model_dump(exclude_defaults=True)
    return {name: " ".join(map(spelled, parts(value))) for name, value in given.items()}


def read_pool(name: str, settings: object, configured: bool = False) -> Pool:
    """Return pool `name` with the settings that a user wrote; raises InvalidRequest, which names each invalid value.

    `configured` says that the settings come from the service's configuration.
    """
    if not isinstance(settings, Mapping):
        raise InvalidRequest(f'settings: must be a mapping such as {{"engine": "slurm"}}, not {ascii(settings)[:100]}')
    try:
        return Pool(name=name, settings=PoolSettings.model_validate(settings), configured=configured)
    except ValidationError as error:
        unknown = [str(each["loc"][0]) for each in error.errors() if each["type"] == "extra_forbidden"]
        near = "".join(nearest(each, PoolSettings.model_fields) for each in unknown)
        raise InvalidRequest(problem_text(error).replace(": Value error, ", ": ") + near) from None
