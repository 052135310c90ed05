"""Test how remote data comes to a node, from a real store behind a bad network, into a cache that many use at once."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import fsspec
import psutil
import pytest

from kernel_backend.data.declared import declare
from kernel_backend.errors import InvalidRequest
from kernel_backend.inputs import store as stores
from kernel_backend.inputs.fetch import Fetched, FetchRequest, Input, fetch
from kernel_backend.inputs.node_cache import NodeCache, cache_limit
from kernel_backend.model.cluster.input_cache import LIMIT, ROOT
from kernel_backend.retry import RetryPolicy
from tests.support.bad_network import BadNetwork, distant_store

COUNT, LARGE = 12, 400_000


class Bucket:
    """Folder of a store, and a network between it and those who fetch."""

    def __init__(self, url: str, network: BadNetwork, folder: Path) -> None:
        self.url, self.network, self._folder = url, network, folder
        self.files = {f"{number % 3}/x {number}.bin": random.Random(number).randbytes(LARGE) for number in range(COUNT)}
        fs = fsspec.filesystem("s3")
        for name, data in self.files.items():
            fs.pipe(f"{url}/{name}", data)

    def asked(self, root: Path, *urls: str, limit: int | None = None) -> FetchRequest:
        """Return a request for this folder, or for other URLs, as a submission of now lists them."""
        inputs = []
        for number, url in enumerate(urls or (self.url,)):
            found = declare([f"in{number}={url}"], self._folder)
            listed = self._folder / f"{found.data[0].digest}.tsv"
            listed.write_bytes(found.files[found.data[0].listed])
            inputs.append(Input(name=f"in{number}", url=url, digest=found.data[0].digest, listed=str(listed)))
        self.network.requests.clear()
        return FetchRequest(root=str(root), limit=limit, inputs=tuple(inputs))

    def put(self, name: str, data: bytes) -> None:
        """Store an object of this folder."""
        fsspec.filesystem("s3").pipe(f"{self.url}/{name}", data)

    def gets(self) -> list[str]:
        """Return the names of the objects that were fetched."""
        return [
            each.rpartition("/")[2] for each in self.network.requests if each.startswith("GET") and "list" not in each
        ]


@pytest.fixture(scope="module")
def way() -> Iterator[tuple[str, BadNetwork]]:
    with distant_store() as found:
        yield found


@pytest.fixture
def bucket(way: tuple[str, BadNetwork], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bucket]:
    url, network = way
    usual = dataclasses.replace(network)
    yield Bucket(f"{url}/{request.node.name[:60]}", network, tmp_path)
    for name in ("latency", "bandwidth", "refusals", "refusal", "held", "strangers", "cuts"):
        setattr(network, name, getattr(usual, name))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.RemoteStore.__init__, "__defaults__", (RetryPolicy((0.01,), tries=3),))


def fetched(request: FetchRequest) -> tuple[Fetched, list[str]]:
    said: list[str] = []
    with ExitStack() as held:
        return fetch(request, said.append, held), said


def later(root: Path) -> None:
    """Let the time pass after which the right to read is checked again."""
    for checked in root.glob("views/*/checked-*"):
        os.utime(checked, (0, 0))


def content(folder: Path) -> dict[str, bytes]:
    return {
        os.path.relpath(os.path.join(at, name), folder): Path(at, name).read_bytes()
        for at, _, names in os.walk(folder)
        for name in names
    }


def test_each_object_is_fetched_once_and_a_later_training_only_asks_whether_it_may_read_it(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    found, _ = fetched(asked)
    assert content(Path(found.places["in0"])) == bucket.files
    assert content(found.folder / "in0") == bucket.files
    assert sorted(bucket.gets()) == sorted(f"x%20{number}.bin" for number in range(COUNT))
    assert len(bucket.network.requests) == COUNT

    bucket.network.requests.clear()
    assert fetched(asked)[0].places == found.places  # checkpoints of programs may have it
    assert bucket.network.requests == []  # these credentials could read it a moment ago
    later(tmp_path / "cache")
    assert fetched(asked)[0].places == found.places
    assert [each.split()[0] for each in bucket.network.requests] == ["HEAD"] * COUNT
    bucket.network.requests.clear()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    fetched(asked)
    assert [each.split()[0] for each in bucket.network.requests] == ["HEAD"] * COUNT


def test_what_is_read_cannot_be_changed_and_looks_the_same_on_each_node(bucket: Bucket, tmp_path: Path) -> None:
    asked = bucket.asked(tmp_path / "cache")
    one, other = fetched(asked)[0], fetched(asked.model_copy(update={"root": str(tmp_path / "other")}))[0]
    paths = [sorted(Path(each.places["in0"]).rglob("*")) for each in (one, other)]
    assert [path.lstat().st_mode & 0o222 for path in paths[0]] == [0] * len(paths[0])
    files = [[path.stat().st_mtime for path in each if path.is_file()] for each in paths]
    assert files[0] == files[1]


def test_an_object_that_is_an_input_itself_is_a_file_of_its_own_name(bucket: Bucket, tmp_path: Path) -> None:
    found, _ = fetched(bucket.asked(tmp_path / "cache", f"{bucket.url}/1/x 1.bin", f"{bucket.url}/1"))
    assert Path(found.places["in0"]).name == "x 1.bin"
    assert (found.folder / "in0").read_bytes() == bucket.files["1/x 1.bin"]
    assert (found.folder / "in1" / "x 1.bin").read_bytes() == bucket.files["1/x 1.bin"]
    assert bucket.gets().count("x%201.bin") == 1


def test_progress_is_told_with_what_is_left(bucket: Bucket, tmp_path: Path) -> None:
    bucket.network.bandwidth = 2e6
    _, said = fetched(bucket.asked(tmp_path / "cache"))
    assert any(each.startswith("fetching in0: ") and " of 4.8 MB, " in each and each.endswith(" left") for each in said)


def test_a_store_that_asks_for_patience_and_answers_that_break_off_cost_time_only(
    bucket: Bucket, tmp_path: Path
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.refusals, bucket.network.cuts = 5, 5
    assert content(Path(fetched(asked)[0].places["in0"])) == bucket.files


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "AccessDenied", "the credentials of the training may not read it, or have expired"),
        (400, "ExpiredToken", "the credentials of the training may not read it, or have expired"),
        (403, "RequestTimeTooSkewed", "the credentials of the training may not read it"),
        (503, "SlowDown", "cannot be read"),
    ],
)
def test_why_data_cannot_be_had_is_a_sentence(
    bucket: Bucket, tmp_path: Path, status: int, code: str, said: str
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.refusals, bucket.network.refusal = 10_000, (status, code)
    with pytest.raises(InvalidRequest, match=said) as raised:
        fetched(asked)
    assert bucket.url in raised.value.message
    assert "Traceback" not in raised.value.message


def test_data_that_is_here_is_not_given_to_someone_who_may_not_read_it(bucket: Bucket, tmp_path: Path) -> None:
    asked = bucket.asked(tmp_path / "cache")
    fetched(asked)
    later(tmp_path / "cache")
    bucket.network.refusals, bucket.network.refusal = 10_000, (403, "AccessDenied")
    with pytest.raises(InvalidRequest, match="may not read it"):
        fetched(asked)


def test_without_credentials_the_way_out_is_said(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidRequest, match="no credentials for this store: set them where it runs"):
        fetched(asked)


def test_an_object_that_was_replaced_is_read_as_it_was_or_not_at_all(bucket: Bucket, tmp_path: Path) -> None:
    asked = bucket.asked(tmp_path / "cache")
    fetched(asked)
    bucket.put("0/x 0.bin", b"another")
    later(tmp_path / "cache")
    found, _ = fetched(asked)
    assert content(Path(found.places["in0"])) == bucket.files
    assert "0/x 0.bin was replaced since this was submitted" in found.notes[0]
    with pytest.raises(InvalidRequest, match=r"0/x 0.bin was replaced since this was submitted: it was \w+, now \w+$"):
        fetched(asked.model_copy(update={"root": str(tmp_path / "elsewhere")}))
    fsspec.filesystem("s3").rm_file(f"{bucket.url}/0/x 0.bin")
    later(tmp_path / "cache")
    found, _ = fetched(asked)
    assert "0/x 0.bin is gone since this was submitted" in found.notes[0]


def test_names_that_no_disk_can_have_are_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("0", b"a file, and a folder")
    with pytest.raises(InvalidRequest, match="an object and a folder of the same name"):
        fetched(bucket.asked(tmp_path / "cache"))
    bucket.put("a/../../b", b"out of it")
    with pytest.raises(InvalidRequest, match="has a name that no file below a folder can have"):
        fetched(bucket.asked(tmp_path / "cache"))


def test_a_limit_removes_what_no_training_uses_and_nothing_else(bucket: Bucket, tmp_path: Path) -> None:
    asked = [bucket.asked(tmp_path, f"{bucket.url}/{each}", limit=int(2.5 * LARGE * COUNT / 3)) for each in range(3)]
    cache = NodeCache(tmp_path)
    with ExitStack() as held:
        first = fetch(asked[0], lambda text: None, held)
        fetched(asked[1])
        fetched(asked[2])  # in place of the second
        assert content(Path(first.places["in0"])).keys() == {f"x {number}.bin" for number in range(0, COUNT, 3)}
        assert (cache.use().objects, cache.use().idle) == (2 * COUNT // 3, LARGE * COUNT // 3)
        fetch(asked[1], lambda text: None, held)  # in place of the third
        with pytest.raises(
            InvalidRequest, match=r"1\.6 MB of the data are not on this node, and DAYLIGHT_CACHE_GB allows"
        ):
            fetched(asked[2])
    assert cache.clean() == 2 * LARGE * COUNT // 3
    assert (cache.use().objects, list((tmp_path / "views").iterdir()), list((tmp_path / "sets").iterdir())) == (
        0,
        [],
        [],
    )


def test_a_full_disk_is_told_and_leaves_no_part(bucket: Bucket, tmp_path: Path) -> None:
    child = start(bucket.asked(tmp_path / "cache"), largest_file=LARGE // 2)  # fails as a full disk does
    assert result(child) == {"error": "the disk of this node's cache: File too large"}
    NodeCache(tmp_path / "cache").clean()
    assert list((tmp_path / "cache" / "objects").glob("*/*")) == []


def test_someone_elses_folder_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for each in ("link", "open"):
        with pytest.raises(InvalidRequest, match="is not a folder of yours alone: set DAYLIGHT_CACHE to one, or to a"):
            NodeCache(tmp_path / each)
    with pytest.raises(InvalidRequest, match="DAYLIGHT_CACHE_GB=much: write a number"):
        cache_limit({"DAYLIGHT_CACHE_GB": "much"})


def test_below_a_folder_for_all_each_user_has_one_that_nobody_else_can_change(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    cache = NodeCache(tmp_path).root
    assert (cache, cache.stat().st_mode & 0o777) == (tmp_path / str(os.getuid()), 0o700)
    assert NodeCache(tmp_path).root == cache
    os.rename(cache, tmp_path / "moved")
    cache.symlink_to(tmp_path / "moved")  # what another user may put there first
    with pytest.raises(InvalidRequest, match=f"{cache} is not a folder of yours alone"):
        NodeCache(tmp_path)
    tmp_path.chmod(0o700)


def start(request: FetchRequest, largest_file: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "kernel_backend.inputs"]
    if largest_file is not None:
        command = ["prlimit", f"--fsize={largest_file}", *command]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    child.stdin.write(request.model_dump_json() + "\n")
    child.stdin.flush()
    return child


def result(child: subprocess.Popen[str]) -> dict[str, object]:
    out, _ = child.communicate(timeout=600)
    return dict(json.loads(out.splitlines()[-1]))


def test_many_at_once_fetch_each_object_once_and_nothing_is_torn(bucket: Bucket, tmp_path: Path) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.bandwidth = 20e6
    found = [result(child) for child in [start(asked) for _ in range(4)]]
    assert len({json.dumps(each["places"]) for each in found}) == 1
    assert content(Path(found[0]["places"]["in0"])) == bucket.files  # type: ignore[index]
    assert sorted(bucket.gets()) == sorted(f"x%20{number}.bin" for number in range(COUNT))


def test_killed_at_any_instant_nothing_is_torn_and_nothing_whole_is_fetched_again(
    bucket: Bucket, tmp_path: Path
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.bandwidth = 4e6
    draws, began = random.Random(0), time.monotonic()
    done: set[str] = set()
    again = 0
    for _ in range(6):
        bucket.network.requests.clear()
        child = start(asked)
        assert child.stdout is not None
        child.stdout.readline()  # half a second has passed
        time.sleep(draws.random() * 0.5)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        again += len(done & set(bucket.gets()))
        done |= {each.name for each in (tmp_path / "cache").glob("objects/*/*") if each.suffix != ".part"}
    assert again == 0, time.monotonic() - began
    assert content(Path(fetched(asked)[0].places["in0"])) == bucket.files


def test_a_view_that_is_removed_while_another_process_waits_for_it_is_made_again(
    bucket: Bucket, tmp_path: Path
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    fetched(asked)
    (view,) = (tmp_path / "cache" / "views").iterdir()
    with (view / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = start(asked)
        NodeCache(tmp_path / "cache").clean()  # not this one: it is in use
        assert (view / "data").exists()
        for path in [*view.rglob("*"), view]:
            path.chmod(0o700)
        os.rename(view, tmp_path / "removed")
    assert content(Path(result(child)["places"]["in0"])) == bucket.files  # type: ignore[index]


def reader(asked: FetchRequest, folder: Path, *words: str, limit: int | None = None) -> subprocess.Popen[str]:
    """Start a process that reads an input while it arrives."""
    folder.mkdir(exist_ok=True)
    environ = os.environ | {ROOT: asked.root} | ({} if limit is None else {LIMIT: str(limit / 1e9)})
    command = [
        sys.executable,
        "-m",
        "tests.support.reads_inputs",
        str(folder),
        asked.inputs[0].model_dump_json(),
        *words,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


def right(bucket: Bucket) -> dict[str, list[str]]:
    return {name: [hashlib.sha256(data).hexdigest()] for name, data in bucket.files.items()}


def test_files_that_are_on_their_way_look_as_if_they_were_here(bucket: Bucket, tmp_path: Path) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.held = ".bin"
    child = reader(asked, tmp_path / "reader", "1", "4")
    assert child.stdout is not None
    listed = json.loads(child.stdout.readline())["listed"]  # before a single object is here
    bucket.network.held = ""
    said = [LARGE, 946_684_800.0, [True, False, True, True, False], LARGE, True]
    assert listed == dict.fromkeys(bucket.files, said)
    assert result(child)["digests"] == right(bucket)
    assert len(bucket.gets()) == COUNT


@pytest.mark.parametrize("known", ["known", "unknown"])
def test_data_that_is_larger_than_the_cache_is_read_within_its_limit(
    bucket: Bucket, tmp_path: Path, known: str
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    said = result(reader(asked, tmp_path / "reader", "3", "2", known, limit=COUNT // 2 * LARGE))
    assert said["digests"] == right(bucket)
    assert COUNT // 4 * LARGE < int(str(said["most"])) <= COUNT // 2 * LARGE
    assert "some of it again in each epoch" in str(said["notes"])
    bucket.network.held = ".bin"  # so that the reader does not end
    other = reader(asked, tmp_path / "other", "1", "2", limit=COUNT // 2 * LARGE)
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(InvalidRequest, match="another training on this node reads this data"):
        fetched(asked)
    bucket.network.held = ""
    assert result(other)["digests"] == right(bucket)
    whole = result(reader(asked, tmp_path / "again", "1", "2"))  # with room for all of it, what is here is kept
    assert whole["digests"] == right(bucket)
    assert NodeCache(tmp_path / "cache").use().objects == COUNT
    with pytest.raises(InvalidRequest, match="DAYLIGHT_CACHE_GB allows"):
        fetched(bucket.asked(tmp_path / "small", limit=LARGE // 2).model_copy(update={"patience": 0.0}))


@pytest.mark.parametrize("limit", [None, COUNT // 2 * LARGE])
def test_readers_go_on_when_what_fetches_for_them_is_killed(bucket: Bucket, tmp_path: Path, limit: int | None) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.bandwidth = 1e6
    children = [reader(asked, tmp_path / str(number), "3", "2", limit=limit) for number in range(2)]
    for child in children:
        assert child.stdout is not None
        assert "listed" in child.stdout.readline()
    draws, killed = random.Random(0), 0
    while killed < 5 and any(child.poll() is None for child in children):
        time.sleep(draws.random())
        for fetcher in [each for child in children for each in psutil.Process(child.pid).children()][:1]:
            fetcher.kill()
            killed += 1
    bucket.network.bandwidth = 40e6
    assert [result(child)["digests"] for child in children] == [right(bucket)] * 2
    assert killed == 5


def test_what_arrives_for_another_training_is_not_given_to_someone_who_may_not_read_it(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.held = ".bin"
    child = reader(asked, tmp_path / "reader", "1", "1")
    assert child.stdout is not None
    child.stdout.readline()
    bucket.network.strangers = frozenset({"stranger"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")
    with pytest.raises(InvalidRequest, match="may not read it"):
        fetched(asked.model_copy(update={"patience": 0.0}))
    bucket.network.held = ""
    assert result(child)["digests"] == right(bucket)


def test_a_reader_is_told_why_a_file_will_not_come(bucket: Bucket, tmp_path: Path) -> None:
    asked = bucket.asked(tmp_path / "cache")
    bucket.network.held = "x%200.bin"
    child = reader(asked, tmp_path / "reader", "1", "1")
    assert child.stdout is not None
    child.stdout.readline()
    bucket.put("0/x 0.bin", b"another")
    bucket.network.held = ""
    assert "0/x 0.bin was replaced since this was submitted: it was" in str(result(child)["error"])
