"""Access the files of a checkpoint storage directly, without the code under test."""

from __future__ import annotations

from collections.abc import Mapping

import fsspec


class Files:
    """Files under a folder or a URL, by names such as `5-1/model.safetensors`."""

    def __init__(self, where: str) -> None:
        self._fs, root = fsspec.url_to_fs(where)
        self._root = root.rstrip("/")

    def names(self) -> list[str]:
        """Return the names of all files."""
        self._fs.invalidate_cache()
        found = self._fs.find(self._root) if self._fs.exists(self._root) else []
        return [path.removeprefix(f"{self._root}/") for path in found]

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return bytes(self._fs.cat_file(f"{self._root}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        """Overwrite a file."""
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(path, data)

    def remove(self, name: str) -> None:
        """Delete a file."""
        self._fs.rm_file(f"{self._root}/{name}")

    def all(self) -> dict[str, bytes]:
        """Return the bytes of all files by name."""
        return {name: self.read(name) for name in self.names()}

    def become(self, wanted: Mapping[str, bytes]) -> None:
        """Replace all files by exactly these."""
        there = self.all()
        for name in there.keys() - wanted.keys():
            self.remove(name)
        for name, data in wanted.items():
            if there.get(name) != data:
                self.write(name, data)
