"""Download a checkpoint from the service, checking every byte against its digest."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path

from kernel_backend.client import Client
from kernel_backend.commands.readme import readme
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.snapshots import archive
from kernel_backend.trained.fetch import OfService, fetch_part
from kernel_backend.trained.new_folder import new_folder

MANIFEST = "manifest.json"


def download(client: Client, number: int, info: CheckpointInfo, to: Path, force: bool = False) -> Path:
    """Download a checkpoint into the new folder `to`: its files and manifest, the code, and a list of packages.

    Returns the folder, which appears complete or not at all. Raises InvalidRequest if `to` exists (with `force`, only
    if it is no earlier download) or cannot be written, and CheckpointDamaged for bytes that do not match their digest.
    """
    with new_folder(to, MANIFEST, force) as folder:
        _fill(client, number, info, folder)
    return to.expanduser().absolute()


def _fill(client: Client, number: int, info: CheckpointInfo, folder: Path) -> None:
    from kernel_backend.checkpoints.base import parse

    data = client.manifest(number, info.trial, info.id)
    manifest, files = parse(data), OfService(client, number)
    for part in manifest.parts:
        with open(folder / f"{part.name}.safetensors", "wb") as file:
            fetch_part(files, manifest, part, file)
    (folder / MANIFEST).write_bytes(data)
    experiment = client.experiment(number).experiment
    (folder / "experiment.json").write_text(json.dumps(experiment.to_json(), indent=1))
    source, snapshot = client.source(number)
    _unpack(client.archive(number), folder / "code")
    (folder / "requirements.txt").write_text("\n".join(_requirements(snapshot)) + "\n")
    (folder / "README.txt").write_text(readme(experiment, manifest, source, snapshot))


def _unpack(data: bytes, folder: Path) -> None:
    archive.check(data)  # no member may be written outside of the folder
    with zipfile.ZipFile(io.BytesIO(data)) as members:
        members.extractall(folder)


def _requirements(snapshot: Snapshot) -> Iterable[str]:
    found = snapshot.environment
    yield f"# what was installed at submission: {found.implementation} {found.python}, {found.platform}"
    yield from (f"{name}=={version}" for name, version in found.distributions.items())
