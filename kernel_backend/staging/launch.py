"""Launch the ranks of an attempt on one node without the service's home: stage in, launch, stage out, clean up."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import MutableMapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend.errors import DaylightError
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.launcher import launch
from kernel_backend.launch.node import node_name
from kernel_backend.launch.service_address import client_of
from kernel_backend.model.ids import parse_attempt
from kernel_backend.model.launch.nodes import NodeIndex
from kernel_backend.model.launch.staging import SCRATCH, VARIABLE, StagingRequest
from kernel_backend.model.reports import NodeEnd
from kernel_backend.model.trial import Failure
from kernel_backend.staging.node_home import NodeHome, remove
from kernel_backend.staging.stage_in import StagingFailed, stage_in
from kernel_backend.staging.stage_out import StageOut

if TYPE_CHECKING:
    from kernel_backend.client import Client

FAILED = 1
_log = logging.getLogger(__name__)


def launch_staged(index: NodeIndex) -> int:
    """Run this node's part of the attempt that the environment describes; return the exit code of its launcher."""
    request = taken(os.environ)
    home = NodeHome.of(Path(os.environ[SCRATCH]), node_name(os.environ))
    os.environ["DAYLIGHT_HOME"] = str(home.path)  # for ranks
    client = client_of(request.urls, request.token, request.uid)
    folder = AttemptFolder(attempt_folder(home.path, parse_attempt(request.key)), index.node)
    for removed in home.clean():
        _log.info("removed %s, which no launcher uses any more", removed)
    with home.attempt(folder.path):
        try:
            stage_in(request, client, home, folder)
        except (StagingFailed, DaylightError, OSError) as error:
            _log.error("the files of attempt %s cannot be had here: %s", request.key, error)
            return _refused(request, client, folder, str(error))
        return _launched(request, client, folder, index)


def taken(environ: MutableMapping[str, str]) -> StagingRequest:
    """Take the description of the attempt out of the environment, so that ranks do not have its token there."""
    return StagingRequest.model_validate_json(environ.pop(VARIABLE))


def _launched(request: StagingRequest, client: Client, folder: AttemptFolder, index: NodeIndex) -> int:
    """Launch the ranks while their files are sent; remove the folder once the service has them all."""
    _log_to(folder.node_log)
    out = StageOut(folder.path, partial(client.stage_file, request.key, request.token))
    out.start()
    launch(folder.path, index)
    if not out.finish():  # without its record the attempt counts as lost; another code would end the other launchers
        _log.error("the service could not be reached: %s has what it lacks", folder.path)
        return 0
    remove(folder.path)
    if folder.node == 0:
        remove(Path(os.environ[SCRATCH], f"{request.key}.out"))
    return 0


def _refused(request: StagingRequest, client: Client, folder: AttemptFolder, why: str) -> int:
    """Tell the service why this node's ranks are not started."""
    message = f"the files of the training cannot be had on {node_name(os.environ)}: {why}"
    failure = Failure(rank=0, type="StagingFailed", message=message)
    end = NodeEnd(node=folder.node, names=("",), size=0, refused=failure, refused_as="lost", ended_at=time.time())
    folder.write_end(end)
    out = StageOut(folder.path, partial(client.stage_file, request.key, request.token))
    out.start()
    if not out.finish():
        return FAILED
    remove(folder.path)
    return 0


def _log_to(path: Path) -> None:
    """Have output of this process in a file: that of the job may be on another node."""
    with path.open("ab") as log:
        sys.stdout.flush()
        sys.stderr.flush()
        for number in (1, 2):
            os.dup2(log.fileno(), number)
