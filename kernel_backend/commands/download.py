"""Download a checkpoint from the service, checking every byte against its digest."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kernel_backend.client import Client
from kernel_backend.commands.readme import readme
from kernel_backend.errors import CheckpointDamaged, InvalidRequest
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.snapshots import archive

if TYPE_CHECKING:
    from kernel_backend.checkpoints.base import Manifest, Part

MANIFEST = "manifest.json"


def download(client: Client, number: int, info: CheckpointInfo, to: Path, force: bool = False) -> Path:
    """Download a checkpoint into the new folder `to`: its files and manifest, the code, and a list of packages.

    Returns the folder, which appears complete or not at all. Raises InvalidRequest if `to` exists (with `force`, only
    if it is no earlier download) or cannot be written, and CheckpointDamaged for bytes that do not match their digest.
    """
    to = to.expanduser().absolute()
    _check_free(to, force)
    try:
        return _downloaded(client, number, info, to)
    except OSError as error:
        raise InvalidRequest(f"cannot write to {to}: {error.strerror or error}") from error


def _downloaded(client: Client, number: int, info: CheckpointInfo, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-", suffix=".part"))
    try:
        _fill(client, number, info, beside)
        _put(beside, to)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return to


def fetch_part(client: Client, number: int, manifest: Manifest, part: Part, into: BinaryIO) -> None:
    """Write a checkpoint's part into a file; raises CheckpointDamaged if its bytes do not match the manifest."""
    import xxhash

    digest, size = xxhash.xxh3_128(), 0
    for piece in client.part(number, manifest.trial, manifest.id, part.name):
        digest.update(piece)
        size += len(piece)
        into.write(piece)
    if (size, digest.hexdigest()) != (part.size, part.digest):
        where = f"checkpoint {manifest.id} of {number}.{manifest.trial}"
        raise CheckpointDamaged(f"{where}: part {part.name} is not as it was written ({size} of {part.size} bytes)")


def _fill(client: Client, number: int, info: CheckpointInfo, folder: Path) -> None:
    from kernel_backend.checkpoints.base import parse

    folder.chmod(0o755)  # a temporary folder is readable by its owner only
    data = client.manifest(number, info.trial, info.id)
    manifest = parse(data)
    for part in manifest.parts:
        with open(folder / f"{part.name}.safetensors", "wb") as file:
            fetch_part(client, number, manifest, part, file)
            file.flush()
            os.fsync(file.fileno())
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


def _check_free(to: Path, force: bool) -> None:
    if not os.path.lexists(to):
        return
    if not force:
        raise InvalidRequest(f"{to} is there already: name another folder with --to, or replace it with --force")
    if not (to / MANIFEST).is_file() or to.is_symlink():
        raise InvalidRequest(f"{to} is no checkpoint that was downloaded before, and is not replaced")


def _put(folder: Path, to: Path) -> None:
    """Rename the folder `folder` to `to`; an earlier download there is deleted only after it has been replaced."""
    if not to.exists():
        folder.rename(to)
        return
    before = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-", suffix=".old"))
    to.rename(before / to.name)
    folder.rename(to)
    shutil.rmtree(before)
