"""Test checkpoints in an object store: the contract with fsspec's memory, and with a real S3 server."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from kernel_backend.checkpoints.remote import Remote
from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.errors import InvalidRequest
from kernel_backend.retry import RetryPolicy
from tests.contract.checkpoints_contract import CheckpointsContract, commit, ids
from tests.support.object_store import object_store
from tests.torture.files import Files

ROOT = Path(__file__).parents[2]
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def bucket():
    with object_store() as url:
        yield url


class RemoteContract(CheckpointsContract):
    @pytest.fixture
    def again(self, place):
        return lambda uid=None: Remote(place.where, uid)

    @pytest.fixture
    def files(self, place):
        return Files(place.where)

    def test_nobody_knows_how_much_room_there_is(self, place):
        assert place.free() is None

    def test_killed_while_setting_one_aside_the_next_reader_does_it(self, place, files):
        commit(place, 10)
        commit(place, 20)
        files.write("20-1/model.safetensors", b"damaged")
        files.write("20-1/manifest.json.bad", files.read("20-1/manifest.json"))  # copied, and then came the kill
        found, problems = place.newest_verified()
        assert (found.id, len(problems)) == ("10-1", 1)
        assert ids(place) == ["10-1"]


class TestMemory(RemoteContract):
    @pytest.fixture
    def place(self):
        return Remote(f"memory://runs-{next(NUMBERS)}/1")


class TestS3(RemoteContract):
    @pytest.fixture
    def place(self, bucket):
        return Remote(f"{bucket}/runs-{next(NUMBERS)}/1")

    def test_a_missing_bucket_is_an_error_that_names_it(self, bucket):
        with pytest.raises(OSError, match="bucket does not exist"):
            Remote("s3://nowhere/1", retry=RetryPolicy((0.0,), tries=1)).write("5-1", "model", [b"weights"])


class Unsteady(MemoryFileSystem):
    """File system whose first requests fail, like an unreliable network."""

    protocol = "unsteady"
    store = MemoryFileSystem.store
    failures = 0

    def fail_sometimes(self):
        if type(self).failures:
            type(self).failures -= 1
            raise ConnectionResetError("the network is down")

    def pipe_file(self, path, value, **options):
        self.fail_sometimes()
        return super().pipe_file(path, value, **options)

    def cat_file(self, path, **options):
        self.fail_sometimes()
        return super().cat_file(path, **options)

    def ls(self, path, **options):
        self.fail_sometimes()
        return super().ls(path, **options)

    def find(self, path, **options):
        self.fail_sometimes()
        return super().find(path, **options)

    def open(self, path, mode="rb", **options):
        if mode == "wb" and self.failures and "data" not in options:
            super().pipe_file(path, b"half of the weights")
            self.fail_sometimes()
        return super().open(path, mode, **options)


@pytest.fixture
def unsteady():
    fsspec.register_implementation("unsteady", Unsteady, clobber=True)
    Unsteady.failures = 0
    return Remote(f"unsteady://runs-{next(NUMBERS)}", retry=RetryPolicy((0.0,), tries=3))


def test_what_the_network_spoils_is_tried_again(unsteady):
    made = commit(unsteady, 10)
    for act in (unsteady.committed, lambda: unsteady.verify(made), lambda: commit(unsteady, 20, data=b"more")):
        Unsteady.failures = 2
        act()
        assert Unsteady.failures == 0
    assert unsteady.read(unsteady.committed()[-1], "model") == b"more"


def test_a_network_that_stays_away_is_an_error_and_neither_damage_nor_emptiness(unsteady):
    made = commit(unsteady, 10)
    for act in (unsteady.committed, unsteady.newest_verified, lambda: unsteady.verify(made)):
        Unsteady.failures = 9
        with pytest.raises(OSError, match=r"unsteady://.*: the network is down"):
            act()
    Unsteady.failures = 0
    assert unsteady.newest_verified()[0] == made.model_copy(update={"folder": f"{unsteady.where}/10-1"})


def test_a_claim_is_made_and_asked_for_again_and_never_taken_for_absent(unsteady):
    Unsteady.failures = 2
    unsteady.fence(3)
    Unsteady.failures = 2
    assert unsteady.claimed() == 3
    for act in (unsteady.claimed, lambda: unsteady.fence(4)):
        Unsteady.failures = 9
        with pytest.raises(OSError, match="the network is down"):
            act()


def test_a_failed_upload_leaves_nothing(unsteady):
    Unsteady.failures = 9
    with pytest.raises(OSError, match="the network is down"):
        unsteady.write("10-1", "model", [b"weights"])
    Unsteady.failures = 0
    assert Files(unsteady.where).names() == []


def test_a_failed_commit_leaves_no_checkpoint(unsteady):
    part = unsteady.write("10-1", "model", [b"weights"])
    Unsteady.failures = 9
    with pytest.raises(OSError, match="the network is down"):
        commit(unsteady, 10)
    Unsteady.failures = 0
    assert unsteady.committed() == []
    assert part.size == 7


@pytest.mark.parametrize("module", ["fsspec", "s3fs"])
def test_what_is_not_installed_is_named(module):
    use = "from kernel_backend.checkpoints.storage import open_storage; open_storage('s3://bucket/runs')"
    code = f"import sys; sys.modules[{module!r}] = None; {use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert re.search(r"DaylightError: s3://.*pip install 'daylight\[remote\]'.*s3fs", done.stderr), done.stderr


@pytest.mark.parametrize("where", ["gopher://bucket/runs", "s3://bucket/runs*"])
def test_a_url_that_cannot_be_is_refused(where):
    with pytest.raises(InvalidRequest, match="runs"):
        open_storage(where)
