"""Launch the ranks of an attempt on one node that cannot read the home directory: fetch, launch, send, clean up."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import MutableMapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend.errors import DaylightError
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.launcher import launch
from kernel_backend.launch.node import node_name
from kernel_backend.launch.service_address import client_of
from kernel_backend.launch.spool_uploader import DELIVERY_S
from kernel_backend.model.ids import parse_attempt
from kernel_backend.model.launch.nodes import NodeIndex
from kernel_backend.model.launch.staging import SCRATCH, UNHEARD, VARIABLE, StagingRequest
from kernel_backend.model.reports import NodeEnd
from kernel_backend.staging.artifact_sender import ArtifactSender
from kernel_backend.staging.heartbeats import Heartbeats
from kernel_backend.staging.node_home import NodeHome, remove
from kernel_backend.staging.refusal import refusal
from kernel_backend.staging.retry import StagingFailed, retried
from kernel_backend.staging.stage_in import stage_in
from kernel_backend.staging.stage_out import StageOut

if TYPE_CHECKING:
    from kernel_backend.client import Client

FAILED = 1
_log = logging.getLogger(__name__)


def launch_staged(index: NodeIndex) -> int:
    """Run those ranks of an attempt that belong to this node, after fetching their files; return the exit code.

    Environment variables describe the attempt, and `index` says which of its nodes this is. The code is 0, also if the
    service was informed that the ranks cannot run here; else 1.
    """
    request = taken(os.environ)
    client = client_of(request.urls, request.token, request.uid)
    try:
        with ExitStack() as until:
            folder = _staged(request, client, index, until)
            return _launched(request, client, folder, index)
    except BlockingIOError:
        _log.error("another launcher of attempt %s runs here", request.key)
        return FAILED
    except (StagingFailed, DaylightError, OSError) as error:
        _log.error("attempt %s cannot run here: %s", request.key, error)
        return _refused(request, client, index, error)


def taken(environ: MutableMapping[str, str]) -> StagingRequest:
    """Remove the staging request from the environment variables and return it; ranks must not see its token."""
    return StagingRequest.model_validate_json(environ.pop(VARIABLE))


def _staged(request: StagingRequest, client: Client, index: NodeIndex, until: ExitStack) -> AttemptFolder:
    """Fetch the files of an attempt to this node; return the attempt's folder here.

    Until `until` is closed, the folder is marked as in use, so that no other launcher removes it.
    """
    home = NodeHome.of(Path(os.environ[SCRATCH]), node_name(os.environ))
    os.environ["DAYLIGHT_HOME"] = str(home.path)  # ranks inherit it
    folder = AttemptFolder(attempt_folder(home.path, parse_attempt(request.key)), index.node)
    for removed in home.clean():
        _log.info("removed %s, which no launcher uses any more", removed)
    until.enter_context(home.attempt(folder.path))
    try:
        with Heartbeats(request, index):
            stage_in(request, client, home, folder, until)
    except BaseException:
        remove(folder.path)
        raise
    return folder


def _launched(request: StagingRequest, client: Client, folder: AttemptFolder, index: NodeIndex) -> int:
    """Launch the ranks of this node, and send their files to the service meanwhile; return the exit code.

    The folder is removed once the service has all files.
    """
    _log_to(folder.node_log)
    out = StageOut(folder.path, partial(client.stage_file, request.key, request.token))
    artifacts = ArtifactSender(folder.path, request, client_of(request.urls, request.token, request.uid))
    out.start()
    artifacts.start()
    launch(folder.path, index)
    artifacts.finish(DELIVERY_S)  # before the record of the ranks' end, after which the service accepts no files
    if not out.finish():  # the attempt then counts as lost; another exit code would end the other launchers
        _log.error("the service could not be reached: %s has what it lacks", folder.path)
        return 0
    remove(folder.path)
    if folder.node == 0:
        remove(Path(os.environ[SCRATCH], f"{request.key}.out"))
    return 0


def _refused(request: StagingRequest, client: Client, index: NodeIndex, error: Exception) -> int:
    """Report to the service why this node's ranks are not started; return 0 if it was reported, else 1.

    No file is written, as the disk may be the reason.
    """
    failure, outcome = refusal(error, node_name(os.environ), os.environ[SCRATCH])
    end = NodeEnd(node=index.node, names=("",), size=0, refused=failure, refused_as=outcome, ended_at=time.time())
    name, data = AttemptFolder(Path(), index.node).end_file, json.dumps(end.to_json()).encode()
    try:
        retried(lambda: client.stage_file(request.key, request.token, name, 0, data))
    except StagingFailed as unheard:
        _log.error("%s: %s", UNHEARD, unheard)
        return FAILED
    return 0


def _log_to(path: Path) -> None:
    """Redirect the output of this process to a file, since the job's own output file may be on another node."""
    with path.open("ab") as log:
        sys.stdout.flush()
        sys.stderr.flush()
        for number in (1, 2):
            os.dup2(log.fileno(), number)
