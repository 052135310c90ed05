"""Fetch the files that the ranks of an attempt need, from the service to the node's own disk."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend.errors import InvalidRequest
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.node import node_name
from kernel_backend.model.launch.launch_spec import LaunchSpec, read_job
from kernel_backend.model.launch.staging import StagingRequest
from kernel_backend.model.reports import Delivery
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.versions import read
from kernel_backend.snapshots.archive import Archive, digest
from kernel_backend.staging.environment import LockedEnvironment
from kernel_backend.staging.node_home import NodeHome
from kernel_backend.staging.retry import DAMAGED, StagingFailed, retried
from kernel_backend.workspaces.own import OwnWorkspace

if TYPE_CHECKING:
    from kernel_backend.client import Client

_log = logging.getLogger(__name__)


def stage_in(request: StagingRequest, client: Client, home: NodeHome, folder: AttemptFolder, until: ExitStack) -> None:
    """Write the launch spec, token and code of an attempt into its folder on this node, and make its environment.

    Paths in the launch spec are changed to those on this node. Folders that are shared with other attempts are marked
    as in use until `until` is closed. Raises StagingFailed and NoEnvironment.
    """
    spec = read_job(retried(lambda: client.attempt_job(request.key, request.token)))
    here = {"home": str(home.path), "code": str(attempt_folder(home.path, spec.id) / "code")}
    # A name without a folder is the interpreter of an image, which runs this launcher.
    job = spec.model_copy(update=here | ({} if os.path.isabs(spec.python) else {"python": sys.executable}))
    working = OwnWorkspace(home.path).unpack(job, _snapshot(request, client, home, job))
    notes = [working.note] if working.note and folder.node == 0 else []
    notes += missing_data(job, read(Snapshot, Path(job.code, "snapshot.json").read_bytes()), node_name(os.environ))
    if job.config.env == "locked":
        environment = LockedEnvironment(request, client, home)
        until.enter_context(home.in_use(environment.folder))
        job = job.model_copy(update={"python": str(environment.python(Path(job.python)))})
        notes += [environment.note] if environment.note and folder.node == 0 else []
    folder.prepare(job.model_copy(update={"cwd": working.cwd}), request.token)
    if notes:
        delivery = Delivery(notes=tuple(note[:2000] for note in notes))
        retried(lambda: client.deliver(request.key, request.token, delivery))


def missing_data(job: LaunchSpec, snapshot: Snapshot, node: str) -> Iterator[str]:
    """Yield a sentence for each folder or file of declared data that does not exist on this node."""
    for data in snapshot.data:
        place = job.config.data_at.get(data.name, data.path)
        if "://" not in place and not Path(place).exists():
            yield f"{node} does not have {place}, which --data declares: put it there on each node, or in a store"


def _snapshot(request: StagingRequest, client: Client, home: NodeHome, job: LaunchSpec) -> bytes:
    """Return the archive of an attempt's code, fetched from the service unless this node has it.

    Its digest is checked.
    """
    archive = Archive(home.path / "snapshots")
    with home.alone(f"snapshot-{job.snapshot[:16]}"):
        if archive.spare(job.snapshot):
            found = archive.get(job.snapshot)
            if digest(found) == job.snapshot:
                return found
            _log.warning("the copy of snapshot %s on this node is damaged: it is fetched again", job.snapshot[:12])
            archive.remove(job.snapshot, before=float("inf"))
        for number in range(1, DAMAGED + 1):
            begun = time.monotonic()
            data = retried(lambda: client.attempt_snapshot(request.key, request.token))
            try:
                archive.put(job.snapshot, data)
            except InvalidRequest as error:
                _log.warning("download %d of snapshot %s: %s", number, job.snapshot[:12], error)
                continue
            _log.info("fetched snapshot %s in %.1f s", job.snapshot[:12], time.monotonic() - begun)
            return data
    raise StagingFailed(f"snapshot {job.snapshot[:12]} arrived damaged {DAMAGED} times: look at this node's network")
