"""Fetch what the ranks of an attempt read, from the service to the node's own disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.launch.launch_spec import LaunchSpec, read_job
from kernel_backend.model.launch.staging import StagingRequest
from kernel_backend.model.reports import Delivery
from kernel_backend.retry import RetryPolicy, exponential
from kernel_backend.snapshots.archive import Archive, digest
from kernel_backend.staging.node_home import NodeHome
from kernel_backend.workspaces.own import OwnWorkspace

if TYPE_CHECKING:
    from kernel_backend.client import Client

RETRY = RetryPolicy(exponential(0.5, 5.0), limit=300.0)  # of a service that cannot be reached
DAMAGED = 3  # downloads with a wrong digest, after which the attempt ends
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class StagingFailed(Exception):
    """Error: what the ranks need could not be fetched."""


def stage_in(request: StagingRequest, client: Client, home: NodeHome, folder: AttemptFolder) -> None:
    """Write launch spec, token and code of an attempt into its folder on this node, with paths of this node.

    Raises StagingFailed.
    """
    spec = read_job(_patiently(lambda: client.attempt_job(request.key, request.token)))
    here = {"home": str(home.path), "code": str(attempt_folder(home.path, spec.id) / "code")}
    job = spec.model_copy(update=here)
    working = OwnWorkspace(home.path).unpack(job, _snapshot(request, client, home, job))
    folder.prepare(job.model_copy(update={"cwd": working.cwd}), request.token)
    if working.note and folder.node == 0:
        note = Delivery(notes=(working.note[:2000],))
        _patiently(lambda: client.deliver(request.key, request.token, note))


def _snapshot(request: StagingRequest, client: Client, home: NodeHome, job: LaunchSpec) -> bytes:
    """Return the archive of an attempt's code, fetched unless this node has it; its digest is checked in any case."""
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
            data = _patiently(lambda: client.attempt_snapshot(request.key, request.token))
            try:
                archive.put(job.snapshot, data)
            except InvalidRequest as error:
                _log.warning("download %d of snapshot %s: %s", number, job.snapshot[:12], error)
                continue
            _log.info("fetched snapshot %s in %.1f s", job.snapshot[:12], time.monotonic() - begun)
            return data
    raise StagingFailed(f"snapshot {job.snapshot[:12]} arrived damaged {DAMAGED} times: look at this node's network")


def _patiently(ask: Callable[[], _T]) -> _T:
    """Return the service's answer, asked again while it cannot be reached; raises StagingFailed with its refusal."""
    waits = RETRY.waits()
    while True:
        try:
            return ask()
        except DaylightError as error:
            pause = next(waits, None) if error.http_status >= 500 else None
            if pause is None:
                raise StagingFailed(error.message) from None
            _log.info("the service cannot be reached now: %s", error.message)
        time.sleep(pause)
