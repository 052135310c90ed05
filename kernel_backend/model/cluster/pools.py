"""Define pools: the nodes of one engine with its settings, under a name that users give with `--pool`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from kernel_backend.model.record import Record
from kernel_backend.model.resources import LOCAL

EngineName = Literal["slurm"]
NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?")
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s'\"\\;&|<>$`]+$")]


class PoolSettings(Record):
    """Settings of a pool. The local pool has none: it is the machine of the service.

    A slot is one GPU, or `cpus_per_slot` CPUs in a pool without GPUs.
    """

    engine: EngineName
    partition: Word | None = None  # None: the site's default
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    gpu_type: Word | None = None  # as in `--gres=gpu:TYPE:2`; None: any
    gpus: bool | None = None  # whether a slot is a GPU; None: if the partition has any
    cpus_per_slot: int = Field(1, ge=1, le=1024)
    memory_per_slot: int | None = Field(None, ge=1)  # MiB; None: the site's default
    extra: tuple[str, ...] = Field((), max_length=50)  # further options of sbatch, such as `--reservation=course`
    most_slots: int | None = Field(None, ge=1)  # that our users hold at once; None: all of the pool's
    most_waiting: int = Field(20, ge=1, le=10_000)  # gangs that wait in the site's queue at once
    interface: Word | None = None  # network device of the nodes by which ranks connect; None: one that works
    join_timeout: float = Field(300.0, gt=0, le=86_400.0)  # seconds from the first node's launcher to the last one's

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

    @model_validator(mode="after")
    def _valid(self) -> Pool:
        if self.name == LOCAL:
            raise ValueError(f"the pool {LOCAL} is the machine of the service itself: choose another name")
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a pool: use up to 32 of a-z, 0-9, - and _")
        return self


class PoolStatus(Record):
    """A pool as the service sees it: its settings, its size, and why it cannot be used."""

    name: str
    engine: str  # local, slurm
    settings: PoolSettings | None = None  # None for the local pool
    configured: bool = True
    places: bool = True  # Daylight chooses the nodes; else the site's own queue does
    nodes: int = 0
    slots: int = 0
    kind: str = ""  # of its slots
    problem: str = ""  # why it cannot be used now; "" if it can
