"""Test fingerprints of data in an object store, by ETags and without reading objects."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import pytest

from kernel_backend.data import changed_text, declare, fingerprint
from kernel_backend.errors import InvalidRequest
from tests.support.object_store import object_store


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with object_store() as url:
        yield url


@pytest.fixture
def prefix(bucket: str) -> str:
    """Provide a unique prefix with three objects."""
    url = f"{bucket}/{uuid.uuid4().hex}"
    for name, content in {"a.txt": b"alpha", "inner/b.txt": b"beta", "naïve \U0001f33b": b"x"}.items():
        put(url, name, content)
    return url


def put(url: str, name: str, content: bytes) -> None:
    with fsspec.open(f"{url}/{name}", "wb") as file:
        file.write(content)


def test_objects_are_listed_with_size_and_etag(prefix):
    found = fingerprint(prefix)
    assert [(file.name, file.size) for file in found.files] == [
        ("a.txt", 5),
        ("inner/b.txt", 4),
        ("naïve \U0001f33b", 1),
    ]
    assert all(len(file.digest) == 32 for file in found.files)
    assert (found.bytes, found.read) == (10, 0)
    assert fingerprint(f"{prefix}/").digest == found.digest


def test_what_was_added_removed_and_edited_to_the_same_size_is_seen(prefix):
    before = fingerprint(prefix)
    put(prefix, "a.txt", b"ALPHA")
    put(prefix, "new.txt", b"n")
    fsspec.filesystem("s3").rm(f"{prefix}/inner/b.txt")
    now = fingerprint(prefix)
    assert changed_text(prefix, before.listed, now.listed) == (
        f"{prefix}: 1 object was added (new.txt), 1 object is gone (inner/b.txt), 1 object was replaced (a.txt)"
    )


def test_one_object_has_its_own_name(prefix):
    assert [file.name for file in fingerprint(f"{prefix}/a.txt").files] == ["a.txt"]


def test_where_nothing_is_there_the_way_out_is_said(prefix):
    with pytest.raises(InvalidRequest, match="no object below it"):
        fingerprint(f"{prefix}/nothing")
    with pytest.raises(InvalidRequest, match="cannot be listed"):
        fingerprint("nowhere://bucket/x")


def test_a_url_is_declared_as_it_is_written(prefix, tmp_path):
    found = declare([prefix], tmp_path)
    assert (found.data[0].name, found.data[0].path, found.data[0].files) == (prefix, prefix, 3)
