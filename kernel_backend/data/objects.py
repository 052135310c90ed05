"""Fingerprint the objects below a URL by their ETags or versions, without reading them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_backend.data.base import File, Fingerprint, fingerprint_of, printable
from kernel_backend.errors import InvalidRequest

# Fields in which stores identify content, the most reliable first: S3, Google, Azure and others.
_MARKS = (
    *("ETag", "etag", "md5Hash", "generation", "VersionId", "content_md5", "blob_id", "checksum", "mtime"),
    "LastModified",
)


def fingerprint(url: str) -> Fingerprint:
    """Return the fingerprint of all objects below the URL.

    Raises InvalidRequest if there are none, the store cannot be reached, or fsspec does not support it.
    """
    try:
        import fsspec
    except ImportError:
        raise InvalidRequest(f"--data {url}: a URL needs fsspec; pip install 'daylight[remote]'") from None
    try:
        store, root = fsspec.core.url_to_fs(url)
        store.invalidate_cache()  # otherwise fsspec returns its cached listing
        found: dict[str, Mapping[str, Any]] = store.find(root, detail=True)
    except Exception as error:  # each store has its own error classes
        raise InvalidRequest(f"--data {url} cannot be listed: {error or type(error).__name__}") from error
    if not found:
        raise InvalidRequest(f"--data {url}: there is no object below it")
    return fingerprint_of(_file(path, root, facts) for path, facts in found.items())


def _file(path: str, root: str, facts: Mapping[str, Any]) -> File:
    name = path.removeprefix(root.rstrip("/")).lstrip("/") or path.rsplit("/", 1)[-1]
    return File(printable(name), int(facts.get("size") or 0), version_of(facts))


def version_of(facts: Mapping[str, Any]) -> str:
    """Return the version of an object, from what fsspec knows of it; "" if the store tells none.

    Examples
    --------
    >>> version_of({"name": "bucket/a.jpg", "size": 3, "ETag": '"d41d8cd9"'})
    'd41d8cd9'
    """
    return next((str(facts[key]).strip('"') for key in _MARKS if facts.get(key) is not None), "")
