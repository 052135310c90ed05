"""Build Daylight's own wheel from its installed files; the same files give the same bytes."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from kernel_backend.errors import NoEnvironment
from kernel_backend.snapshots.archive import pack
from kernel_backend.snapshots.installed import digest_of, own_files

_WHEEL = "Wheel-Version: 1.0\nGenerator: daylight\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def own_wheel(root: Path, digest: str) -> tuple[str, bytes]:
    """Return the name and the bytes of a wheel, made from the installation of Daylight below `root`.

    It lacks the files for browsers, which no worker needs. Raises NoEnvironment if the files do not match `digest`,
    because they have changed since.
    """
    files = own_files(root)
    contents = {name: path.read_bytes() for name, path in files.items()}
    if digest_of(files) != digest:
        raise NoEnvironment("Daylight's own files have changed since the experiment was submitted, and were not kept")
    version = _version(contents["kernel_backend/__init__.py"].decode())
    info = f"daylight-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: daylight\nVersion: {version}\nRequires-Python: >=3.11\n"
    contents |= {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": _WHEEL.encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\ndaylight = kernel_backend.cli:main\n",
    }
    record = "".join(f"{name},sha256={_hash(data)},{len(data)}\n" for name, data in sorted(contents.items()))
    _, data = pack({**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()})
    return f"daylight-{version}-py3-none-any.whl", data


def _version(source: str) -> str:
    found = re.search(r'^__version__ = "([^"]+)"', source, re.MULTILINE)
    return found[1] if found else "0"


def _hash(data: bytes) -> str:
    """Return a digest of data as a wheel's RECORD has it (PEP 376): URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
