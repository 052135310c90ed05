"""Create wheels of packages that no index has."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.snapshots.archive import pack


def wheel(folder: Path, name: str = "tiny") -> Path:
    """Write the wheel of a package that no index has, and return its path."""
    folder.mkdir()
    info = f"{name}-1.0.dist-info"
    _, data = pack(
        {
            f"{name}.py": b"VALUE = 1\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n".encode(),
        }
    )
    path = folder / f"{name}-1.0-py3-none-any.whl"
    path.write_bytes(data)
    return path
