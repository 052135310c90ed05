"""Test that launchers without access to the service's home fetch and send only the files of their own attempt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from kernel_backend.client import Client
from kernel_backend.data.cache import looks
from kernel_backend.errors import (
    DaylightError,
    Fenced,
    InvalidRequest,
    NoEnvironment,
    NotFound,
    TooLarge,
    Unauthenticated,
)
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import read_job
from kernel_backend.model.reports import ArtifactSaved, NodeEnd
from kernel_backend.service.verbs import staging
from kernel_backend.snapshots.archive import digest
from tests.api.served import TOKEN, Served, archive, submit, token_of
from tests.support.world import until

KEY = AttemptId(1, 1, 1)
NET = ArtifactSaved(name="net", size=1, digest="0" * 32, media="image/png", file="net.png", step=1)
AWAY = PoolSettings(engine="slurm", shared=False)
OTHERS = [
    *("..%2Fjob.json", "%2e%2e/job.json", "job.json", "token", "listed", "slurm.json", "spool.jsonl", "rank-x.log"),
    *("rank-0.log%00", "rank-0.log/..", "code%2Fdefinition.py", "end.json.bak", ".writing-0", "rank-0000000.log"),
    *("END.JSON", "rank-1.log%0A", "rank-%D9%A1.log"),
]


def calls(client: Client, token: str) -> list[Callable[[], object]]:
    """Return all calls of a launcher that transfer files."""
    return [
        lambda: client.attempt_job(KEY, token),
        lambda: client.attempt_snapshot(KEY, token),
        lambda: client.stage_file(KEY, token, "rank-0.log", 0, b"x"),
        lambda: client.attempt_environment(KEY, token, everything=True),
        lambda: client.attempt_wheel(KEY, token, "0" * 64, 0),
        lambda: client.stage_artifact(KEY, token, NET.digest, 0, b"x"),
        lambda: client.keep_artifact(KEY, token, NET),
    ]


@pytest.fixture
def token(served: Served, client: Client) -> str:
    """Provide the token of an attempt whose files are transferred through the service."""
    submit(client)
    token = token_of(served, KEY)
    AttemptFolder(attempt_folder(served.home, KEY)).prepare(
        served.engine.jobs[KEY].model_copy(update={"staged": True}), token
    )
    return token


@pytest.fixture
def folder(served: Served, token: str) -> Path:
    return attempt_folder(served.home, KEY)


def test_a_launcher_fetches_its_launch_spec_and_code(served, client, token):
    job = read_job(client.attempt_job(KEY, token))
    assert (job.id, job.staged) == (KEY, True)
    data = client.attempt_snapshot(KEY, token)
    assert digest(data) == job.snapshot == archive()[0]


def test_pieces_of_a_log_are_appended_once_whatever_is_repeated(client, token, folder):
    assert client.stage_file(KEY, token, "rank-0.log", 0, b"one\n") == 4
    assert client.stage_file(KEY, token, "rank-0.log", 0, b"one\n") == 4
    assert client.stage_file(KEY, token, "rank-0.log", 0, b"one\ntwo\n") == 8
    assert client.stage_file(KEY, token, "rank-0.log", 100, b"later\n") == 8
    assert (folder / "rank-0.log").read_bytes() == b"one\ntwo\n"


def test_records_are_replaced_whole(client, token, folder):
    end = NodeEnd(node=0, names=("n1",), size=1, codes={0: 0}, ended_at=1.0)
    client.stage_file(KEY, token, "end.json", 0, b"{}")
    client.stage_file(KEY, token, "end.json", 0, end.model_dump_json().encode())
    result = AttemptFolder(folder).result()
    assert result is not None
    assert result.outcome == "ok"


def test_no_other_file_is_written(served, token, folder):
    before = {path: looks(path.stat()) for path in folder.rglob("*")}
    for name in OTHERS:
        url = f"{served.url}/api/attempts/{KEY}/files/{name}"
        answer = httpx.put(url, content=b"x", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code in (401, 404), (name, answer.text)
    assert {path: looks(path.stat()) for path in folder.rglob("*")} == before  # the service may have read them


def test_a_log_that_is_a_link_is_not_followed(client, token, folder, tmp_path):
    (folder / "rank-0.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DaylightError, match="cannot be written"):
        client.stage_file(KEY, token, "rank-0.log", 0, b"x")
    assert not (tmp_path / "elsewhere").exists()


def test_a_token_of_another_attempt_or_of_a_user_opens_nothing(served, client, token):
    submit(client)
    for stranger in (token_of(served, AttemptId(2, 1, 1)), TOKEN, "wrong"):
        for call in calls(client, stranger):
            with pytest.raises(Unauthenticated):
                call()


def test_an_attempt_that_is_over_takes_and_gives_nothing(served, client, token, folder):
    served.engine.end(KEY)
    until(lambda: client.experiment(1).state == "completed", "it has ended")
    for call in calls(client, token):
        with pytest.raises(Fenced, match="is over"):
            call()
    assert not (folder / "rank-0.log").exists()
    assert not (served.home / "artifacts" / "1").exists()


def test_an_attempt_whose_nodes_see_the_home_sends_nothing(served, client, token, folder):
    AttemptFolder(folder).prepare(served.engine.jobs[KEY], token)
    for call in calls(client, token):
        with pytest.raises(NotFound, match="in a folder that its nodes see"):
            call()


def test_a_piece_beyond_the_limit_is_refused(client, token, folder):
    with pytest.raises(DaylightError, match="larger than 8 MiB"):
        client.stage_file(KEY, token, "rank-0.log", 0, b"x" * (8 * 2**20 + 1))
    assert not (folder / "rank-0.log").exists()


@pytest.mark.parametrize(
    "name", ["rank-2.log", "rank-00.log", "failure-7.json", "end-node-2.json", "launcher-node-99.log"]
)
def test_files_of_ranks_and_nodes_that_the_gang_does_not_have_are_refused(client, token, folder, name):
    with pytest.raises(InvalidRequest, match="is no file that launchers of this gang send"):
        client.stage_file(KEY, token, name, 0, b"{}")
    assert not (folder / name).exists()


def test_all_logs_of_an_attempt_have_one_limit(client, token, folder, monkeypatch):
    monkeypatch.setattr(staging, "LIMIT", 10)
    assert client.stage_file(KEY, token, "rank-0.log", 0, b"123456") == 6
    with pytest.raises(TooLarge, match=r"launcher.log is too large: 4 B are left for it"):
        client.stage_file(KEY, token, "launcher.log", 0, b"12345")
    assert client.stage_file(KEY, token, "launcher.log", 0, b"1234") == 4
    with pytest.raises(TooLarge, match=r"rank-0.log is too large: 6 B are left for it"):
        client.stage_file(KEY, token, "rank-0.log", 6, b"7")


def test_an_environment_without_a_lock_and_a_wheel_that_is_not_there_are_told(client, token):
    with pytest.raises(NoEnvironment, match="the lock of this environment is gone"):
        client.attempt_environment(KEY, token, everything=False)
    with pytest.raises(NotFound, match="there is no wheel 0000"):
        client.attempt_wheel(KEY, token, "0" * 64, 0)


def test_a_pool_without_shared_files_needs_an_object_store_and_says_so_at_submit(served, client):
    client.set_pool("away", AWAY)
    with pytest.raises(InvalidRequest, match=r"object store.*or let the nodes see"):
        submit(client, pool="away")
    assert client.experiments() == []
