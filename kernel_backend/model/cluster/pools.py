"""Define pools: the nodes of one engine with its settings, under a name that users give with `--pool`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Record, problem_text
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.values import nearest

EngineName = Literal["slurm"]
NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?")
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s'\"\\;&|<>$`]+$")]


class PoolSettings(Record):
    """Settings of a pool. The local pool has none: it is the machine of the service.

    A slot is one GPU, or `cpus_per_slot` CPUs in a pool without GPUs. The descriptions are the help of `pool add`,
    whose options are made from these fields.
    """

    engine: EngineName = Field(description="the system that runs the gangs")
    partition: Word | None = Field(None, description="partition of the site's queue [the site's default]")
    account: Word | None = Field(None, description="account that the site charges [yours by default]")
    qos: Word | None = Field(None, description="quality of service [the site's default]")
    constraint: Word | None = Field(None, description="feature that nodes must have [none]")
    gpu_type: Word | None = Field(None, description="type of GPU, as in --gres=gpu:TYPE:2 [any]")
    gpus: bool | None = Field(None, description="whether a slot is a GPU [if the partition has any]")
    cpus_per_slot: int = Field(1, ge=1, le=1024, description="CPUs of each slot [1]")
    memory_per_slot: int | None = Field(None, ge=1, description="MiB of memory of each slot [the site's default]")
    extra: tuple[str, ...] = Field(
        (), max_length=50, description="a further option of sbatch, as --extra=--reservation=course; may be repeated"
    )
    most_slots: int | None = Field(None, ge=1, description="slots that your users hold there at once, at most [all]")
    most_waiting: int = Field(
        20, ge=1, le=10_000, description="gangs that wait in the site's queue at once, at most; others wait here [20]"
    )
    shared: bool = Field(
        True, description="whether its nodes see the service's home; no: files go through the service [yes]"
    )
    scratch: Word | None = Field(
        None, description="folder on each node's own disk, where `shared` is no [its user's cache folder]"
    )
    interface: Word | None = Field(
        None, description="network device of the nodes by which ranks connect [one that works]"
    )
    join_timeout: float = Field(
        300.0, gt=0, le=86_400.0, description="seconds from the first node's start to the last one's [300]"
    )

    @field_validator("extra")
    @classmethod
    def _options(cls, extra: tuple[str, ...]) -> tuple[str, ...]:
        for each in extra:
            if not re.fullmatch(r"--[a-z][a-z-]*(=[^\s]*)?|-[A-Za-z][^\s]*", each):
                raise ValueError(f"{each!r} is no option of sbatch: write it as --name=value")
        return extra


class Pool(Record):
    """A pool by name, with the place of its settings."""

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


class PoolStatus(Record):
    """A pool as the service sees it: its settings, its size, and why it cannot be used."""

    name: str
    engine: str  # local, slurm; "" if its settings name none
    settings: PoolSettings | None = None  # None for the local pool, and where they are invalid
    configured: bool = True
    places: bool = True  # Daylight chooses the nodes; else the site's own queue does
    kinds: tuple[str, ...] = ()  # kinds of devices
    nodes: int = 0
    slots: int = 0
    used: int = 0
    waiting: int = 0  # requests in Daylight's own queue
    problem: str = ""  # why it cannot be used now; "" if it can


def changes(before: PoolSettings | None, after: PoolSettings | None) -> list[str]:
    """Return the settings that are new or differ, as text: `partition v100 -> a100`."""
    old, new = _given(before), _given(after)
    names = [name for name in PoolSettings.model_fields if old.get(name) != new.get(name)]
    if before is None:
        return [f"{name} {new[name]}" for name in names]
    return [f"{name} {old.get(name, 'default')} -> {new.get(name, 'default')}" for name in names]


def spelled(value: object) -> str:
    """Return a setting as a word of a command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else shlex.quote(str(value))


def _given(settings: PoolSettings | None) -> dict[str, str]:
    """Return the settings that are not at their defaults, as text."""
    given = {} if settings is None else settings.model_dump(exclude_defaults=True)
    return {name: " ".join(map(spelled, value if name == "extra" else (value,))) for name, value in given.items()}


def read_pool(name: str, settings: object, configured: bool = False) -> Pool:
    """Return a pool of settings as a user wrote them; raises InvalidRequest that names each invalid value."""
    if not isinstance(settings, Mapping):
        raise InvalidRequest(f'settings: must be a mapping such as {{"engine": "slurm"}}, not {ascii(settings)[:100]}')
    try:
        return Pool(name=name, settings=PoolSettings.model_validate(settings), configured=configured)
    except ValidationError as error:
        unknown = [str(each["loc"][0]) for each in error.errors() if each["type"] == "extra_forbidden"]
        near = "".join(nearest(each, PoolSettings.model_fields) for each in unknown)
        raise InvalidRequest(problem_text(error).replace(": Value error, ", ": ") + near) from None
