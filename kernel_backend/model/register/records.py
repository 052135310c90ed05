"""Define registered models: their versions, the log of changes, and the bodies of requests."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_backend.model.experiment import Metric
from kernel_backend.model.record import Record

LONGEST_NOTE = 1000  # characters
WORD = r"^[A-Za-z][A-Za-z0-9._-]{0,99}$"  # name of a model or of an alias
Act = Literal["register", "set", "unset", "remove", "protect", "unprotect"]


class ModelVersion(Record):
    """Version of a model: an immutable pointer to a checkpoint, with what was known when it was registered."""

    owner: str  # user or group of the hub to which the model belongs
    name: str
    version: int  # 1 for the first; numbers of removed versions are not used again
    experiment: int
    trial: int
    search: bool  # the trial is one of a search
    checkpoint: str  # <step>-<attempt>
    step: int
    digest: str  # of the checkpoint's manifest, which has the digests of its files
    snapshot: str  # code and environment
    author: str  # owner of the experiment
    group: str  # group for which the experiment counts: its members see the model
    metric: Metric
    metrics: dict[str, float] = {}  # validation at this step
    guarantee: str | None = None  # under which changes a rerun is bit-identical
    data: str | None = None  # digest of the samples of the first epoch, if it was known
    who: str
    at: float  # seconds since the epoch
    note: str = ""

    @property
    def reference(self) -> str:
        """Return the checkpoint with its trial, such as `12.1/500-2`."""
        return f"{self.experiment}.{self.trial}/{self.checkpoint}"

    @property
    def title(self) -> str:
        """Return the model and the number of the version, such as `memes 3`, or `vision/memes 3` for a group's."""
        return f"{self.name if self.owner == self.author else f'{self.owner}/{self.name}'} {self.version}"


class ModelChange(Record):
    """Entry of a model's log: the entries are numbered without gaps, and their times never go back."""

    number: int = 0  # assigned by the store, from 1 on
    at: float
    who: str
    act: Act
    version: int | None = None  # that is registered or removed, or to which an alias moves
    alias: str = ""
    before: int | None = None  # to which the alias pointed
    note: str = ""  # why


class Model(Record):
    """Registered model with its versions, oldest first, and its log."""

    owner: str
    name: str
    versions: tuple[ModelVersion, ...] = ()  # those that are not removed
    aliases: dict[str, int] = {}
    protected: tuple[str, ...] = ()  # aliases that only admins move
    log: tuple[ModelChange, ...] = ()
    group: str = ""  # whose members see it


class Registration(Record):
    """Body of `POST .../checkpoints/{trial}/{checkpoint}/register`: the model of which it becomes a version."""

    name: str = Field(pattern=WORD)
    owner: str = Field("", max_length=255)  # "": the calling user
    note: str = Field("", max_length=LONGEST_NOTE)


class Registered(Record):
    """Version of a model, and whether a request has made it; otherwise the checkpoint was registered before."""

    version: ModelVersion
    new: bool


class ModelEdit(Record):
    """Body of `POST /api/models/{name}`: one change of a model's aliases or versions."""

    act: Literal["set", "unset", "remove", "protect", "unprotect"]
    alias: str = Field("", pattern=rf"^$|{WORD}")  # except for `remove`
    version: int | None = Field(None, ge=1)  # for `set` and `remove`
    expect: int | None = Field(None, ge=0)  # version to which the alias must point now; 0: to none
    note: str = Field("", max_length=LONGEST_NOTE)
