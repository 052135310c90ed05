"""Launch specification of an attempt for launcher and ranks: the file `job.json` of its folder."""

from __future__ import annotations

import hashlib
import re
import sys

from pydantic import ValidationError

from kernel_backend import __version__
from kernel_backend.errors import OtherVersion
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record, Value, problem_text
from kernel_backend.model.resources import Placement
from kernel_backend.model.versions import changes_nothing, read

# The variables that launchers give each of their ranks, ours as others: no notebook has them.
OF_RANKS = re.compile(
    r"RANK|WORLD_SIZE|(?:LOCAL|GROUP|ROLE|CROSS)_\w*(?:RANK|SIZE)|MASTER_(?:ADDR|PORT)|GLOO_SOCKET_IFNAME|HOROVOD_\w+"
)


def token_digest(token: str) -> str:
    """Return the SHA-256 of an attempt's token, which the store holds to recognise the attempt's folder."""
    return hashlib.sha256(token.encode()).hexdigest()


class LaunchSpec(Record):
    """Launch specification of an attempt.

    It holds no secret: the attempt's token lies next to it in its own file (0600).
    """

    experiment: int
    trial: int
    attempt: int
    uid: str = ""  # of the trial: what its checkpoints name, and others' do not
    config: Config  # threads are fixed
    params: dict[str, Value]
    placement: Placement
    python: str
    cwd: str
    code: str  # folder with the unpacked snapshot: definition.py, snapshot.json, project files
    snapshot: str  # its id
    checkpoints: str  # where this trial's checkpoints are: a folder, or a URL such as s3://bucket/12/1
    rerun: bool = False  # of an earlier experiment's snapshot: by other libraries perhaps, or other data
    until: int | None = None  # the unit (epoch, or step where steps are counted) at whose end it asks how to go on
    resume_from: str | None = None  # "<step>-<attempt>"
    home: str  # DAYLIGHT_HOME: where the service's address is found again after it restarted
    service_url: str | None = None  # where the service is, for launchers that cannot look into its home
    service_uid: int | None = None  # of the Unix user who listens there

    @property
    def id(self) -> AttemptId:
        """Return the attempt's key."""
        return AttemptId(self.experiment, self.trial, self.attempt)


def read_job(data: bytes) -> LaunchSpec:
    """Read a `job.json`, which a service of another version may have written.

    Raises OtherVersion if it requires something that this version does not know: training without it could give another
    result.
    """
    try:
        return read(LaunchSpec, data, changes_nothing(()))
    except ValidationError as error:
        raise OtherVersion(
            f"the service requests what Daylight {__version__} in {sys.prefix} does not know ({problem_text(error)}): "
            "install the service's version of Daylight there"
        ) from None
