"""Test artifacts over HTTP: only their owner may list and read them, and browsers never execute their content."""

from __future__ import annotations

import io
import os
from pathlib import Path

import httpx
import pytest

from kernel_backend.checkpoints.base import digest
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.ids import AttemptId
from tests.api.served import TOKEN, Served, ended, keep, submit, token_of

BOB = Person(name="bob")

KEY = AttemptId(1, 1, 1)
HTTP = httpx.Client(timeout=120, trust_env=False)


def get(served: Served, name: str, trial: int = 1, token: str = TOKEN) -> httpx.Response:
    url = f"{served.url}/api/experiments/1/trials/{trial}/artifacts/{name}"
    return HTTP.get(url, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def kept(served: Served, client: Client) -> Path:
    submit(client)
    files = {"net.png": b"\x89PNG", "a table.csv": b"1,2", "page.html": b"<script>", "drawn.svg": b"<svg/>"}
    return keep(served, files | {"odd.xhtml": b"<html/>", "all.json": b"{}", "big.bin": os.urandom(3_000_000)})


def test_what_was_kept_is_listed_and_read(served, client, kept):
    found = client.artifacts(1)
    assert [(each.trial, each.name) for each in found] == [
        (1, name) for name in ("a table", "all", "big", "drawn", "net", "odd", "page")
    ]
    assert found[4].to_json() == {
        "trial": 1,
        "name": "net",
        "attempt": 1,
        "step": 3,
        "at": 5.0,
        "size": 4,
        "digest": digest(b"\x89PNG"),
        "media": "image/png",
        "file": "net.png",
    }
    for each in found:
        assert client.artifact(1, 1, each.name) == (kept / each.name).read_bytes()
        assert b"".join(client.artifact_pieces(1, 1, each.name)) == (kept / each.name).read_bytes()
    assert client.experiment(1).artifacts_seq == client.experiment(1).seq


@pytest.mark.parametrize("offset", [1, 2_000_000, 3_000_000, 4_000_000])
def test_a_download_goes_on_where_it_broke(served, kept, offset):
    answer = get(served, f"big?offset={offset}")
    assert answer.content == (kept / "big").read_bytes()[offset:]


def test_pictures_are_shown_and_everything_else_is_saved(served, kept):
    said = {name: get(served, name).headers for name in ("net", "a%20table", "page", "drawn", "odd", "all", "big")}
    assert {name: (each["Content-Type"], each["Content-Disposition"]) for name, each in said.items()} == {
        "net": ("image/png", 'inline; filename="net.png"'),
        "a%20table": ("text/csv", 'attachment; filename="a table.csv"'),
        "page": ("application/octet-stream", 'attachment; filename="page.html"'),
        "drawn": ("application/octet-stream", 'attachment; filename="drawn.svg"'),
        "odd": ("application/octet-stream", 'attachment; filename="odd.xhtml"'),
        "all": ("application/json", 'attachment; filename="all.json"'),
        "big": ("application/octet-stream", 'attachment; filename="big.bin"'),
    }
    for each in said.values():
        assert each["X-Content-Type-Options"] == "nosniff"
        assert each["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert said["big"]["Content-Length"] == "3000000"


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2ftoken", "../../../token", "%2fetc%2fpasswd", "net/", "net%00", "", "%252e"]
)
def test_no_name_leads_anywhere_else(served, kept, name):
    answer = get(served, name)
    assert answer.status_code == 404, answer.text
    assert answer.json()["error"] == "NotFound"


def test_what_is_not_there_is_not_found(served, client, kept):
    with pytest.raises(NotFound, match=r"trial 1\.1 has no artifact 'other': daylight artifacts 1 lists them"):
        client.artifact(1, 1, "other")
    with pytest.raises(NotFound):
        client.artifact(1, 2, "net")
    with pytest.raises(NotFound):
        client.artifacts(2)
    with pytest.raises(InvalidRequest):
        client.artifact(1, 1, "../token")


def test_a_file_that_is_gone_or_was_swapped_for_a_link_is_told(served, client, kept):
    (kept / "net").unlink()
    with pytest.raises(NotFound, match="its file is gone"):
        client.artifact(1, 1, "net")
    (kept / "net").symlink_to(served.home / "daylight.db")
    with pytest.raises(NotFound, match="its file is gone"):
        client.artifact(1, 1, "net")
    (kept / "net").unlink()
    os.mkfifo(kept / "net")
    with pytest.raises(NotFound, match="its file is gone"):
        client.artifact(1, 1, "net")


def test_artifacts_are_nobody_elses_and_of_others_one_learns_not_even_that(served, kept):
    verbs = served.service.artifacts
    for ask in (lambda: verbs.listed(BOB, 1), lambda: verbs.read(BOB, 1, 1, "net")):
        with pytest.raises(NotFound, match="there is no experiment #1"):
            served.run(ask())
    assert get(served, "net", token="wrong").status_code == 401


def test_a_name_that_is_none_is_not_taken_from_a_rank_either(served, client):
    submit(client)
    headers = {"Authorization": f"Bearer {token_of(served, KEY)}"}
    fields = {"type": "kept", "number": 1, "name": "../token", "file": "a", "size": 1, "digest": "", "media": ""}
    for wrong in ({}, {"name": "a", "file": 'a"; x'}):
        body = {"records": [{**fields, "step": 1, **wrong}]}
        answer = HTTP.post(f"{served.url}/api/attempts/1.1-1/records", json=body, headers=headers)
        assert answer.status_code == 400
    assert client.artifacts(1) == []


def test_one_that_is_replaced_while_it_is_read_is_read_to_its_end(served, client, kept):
    before = (kept / "big").read_bytes()
    url = f"{served.url}/api/experiments/1/trials/1/artifacts/big"
    read = io.BytesIO()
    with HTTP.stream("GET", url, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        (kept / "new").write_bytes(b"new")
        (kept / "new").replace(kept / "big")
        for piece in answer.iter_bytes():
            read.write(piece)
    assert read.getvalue() == before
    assert client.artifact(1, 1, "big") == b"new"


def test_another_file_in_the_place_of_what_was_kept_is_not_taken_for_it(served, client, kept):
    ended(served, client, KEY)
    assert client.artifact(1, 1, "net") == b"\x89PNG"
    for data in (b"JPEG", b"something longer"):
        (kept / "net").write_bytes(data)
        with pytest.raises(NotFound, match=r"'net' of 1\.1 is not the one that was kept: another file has its place"):
            client.artifact(1, 1, "net")
    assert len(client.artifact(1, 1, "big")) == 3_000_000
