"""Define the launch specification of an attempt, the file `job.json` in its folder."""

from __future__ import annotations

import hashlib
import re
import sys

from pydantic import ValidationError

from kernel_backend import __version__
from kernel_backend.errors import OtherVersion
from kernel_backend.model.experiment import Config
from kernel_backend.model.facts import BatchSize, LoaderSetting
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record, Value, problem_text
from kernel_backend.model.resources import Placement
from kernel_backend.model.versions import changes_nothing, read

# Environment variables that launchers set for each rank; a notebook has none of them.
OF_RANKS = re.compile(
    r"RANK|WORLD_SIZE|(?:LOCAL|GROUP|ROLE|CROSS)_\w*(?:RANK|SIZE)|MASTER_(?:ADDR|PORT)|(?:GLOO|NCCL)_SOCKET_IFNAME|HOROVOD_\w+"
)


def token_digest(token: str) -> str:
    """Return the SHA-256 of an attempt's secret token, in hex.

    Attempts of different stores can have the same id, such as `12.3-2`; the digest tells them apart.
    """
    return hashlib.sha256(token.encode()).hexdigest()


class LaunchSpec(Record):
    """Launch specification of an attempt, read by its launcher and ranks.

    It contains no secret: the attempt's token is in a file of its own (mode 0600).
    """

    experiment: int
    trial: int
    attempt: int
    uid: str = ""  # unique id of the trial, which its checkpoints record
    config: Config  # with `threads` set
    params: dict[str, Value]
    placement: Placement
    python: str
    cwd: str
    code: str  # folder with the unpacked snapshot: definition.py, snapshot.json, project files
    snapshot: str  # id of the snapshot
    checkpoints: str  # location of the trial's checkpoints: a folder, or a URL such as s3://bucket/12/1
    rerun: bool = False  # reruns an earlier experiment, perhaps with other libraries or data
    until: int | None = None  # unit (epoch or step) after which the ranks request a new target
    resume_from: str | None = None  # "<step>-<attempt>"
    home: str  # DAYLIGHT_HOME, in which ranks find the service's address again after a restart
    service_url: str | None = None  # service's address, for launchers that cannot read its home
    service_uid: int | None = None  # Unix user id of the service
    pool: str = ""  # "": this machine (an earlier version refuses any other value)
    excluded: tuple[str, ...] = ()  # nodes that its engine must not choose
    preferred: tuple[str, ...] = ()  # nodes that have its data, of which its engine chooses some if all else is equal
    service_urls: tuple[str, ...] = ()  # the service's addresses for launchers on other nodes, the preferred first
    keep_allocation: float | None = None  # seconds of an allocation for gangs of its search; None: its own job
    loader: LoaderSetting | None = None  # found by an earlier attempt; None: none, or the configuration has a number
    batch: BatchSize | None = None  # found by an earlier attempt, or by the experiment that is rerun
    inputs: dict[str, str] = {}  # name of each input -> its place on this node, once a rank has brought it there
    staged: bool = False  # its nodes do not see the service's home: files go through the service

    @property
    def values(self) -> dict[str, Value]:
        """Return the hyperparameters as the code gets them: an input's place on this node in place of its URL."""
        return self.params | {name: place for name, place in self.inputs.items() if name in self.params}

    @property
    def id(self) -> AttemptId:
        """Return the identifier of the attempt, such as `12.3-2`."""
        return AttemptId(self.experiment, self.trial, self.attempt)


def read_job(data: bytes) -> LaunchSpec:
    """Parse a `job.json`, which a service of another version may have written.

    Raises OtherVersion for a setting that this version does not know: ignoring it might change the result.
    """
    try:
        return read(LaunchSpec, data, changes_nothing(()))
    except ValidationError as error:
        raise OtherVersion(
            f"the service requests what Daylight {__version__} in {sys.prefix} does not know ({problem_text(error)}): "
            "install the service's version of Daylight there"
        ) from None
