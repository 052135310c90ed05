"""Test that a Jupyter server which is older than its service still serves its pages."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from jupyter_ext.server.extension import ACTS, CHANGES, FILE, READS
from jupyter_ext.views.saved_state import MIME_TYPE
from kernel_backend import __version__
from kernel_backend.client import Client
from kernel_backend.model.register.records import Registration
from kernel_backend.model.views.overview import Overview
from tests.api.later import LATER, SEARCH, Later, told
from tests.api.served import Served
from tests.api.test_other_versions import BODIES, NAMED
from tests.jupyter.hosted import Hosted
from tests.support.world import until


@pytest.fixture
def later(served: Served, client: Client, home: Path, monkeypatch: pytest.MonkeyPatch) -> Later:
    told(served, client, home)
    return Later(monkeypatch)


def test_every_route_of_the_server_passes_on_what_a_later_service_answers(
    later: Later, hosted: Hosted, client: Client
) -> None:
    searched = [path for path in (*READS, *ACTS) if "/search" in path or "/trials/" in path]
    for path in READS:
        query = f"?other={SEARCH}" if path.endswith("/diff") else ""
        answer = hosted.get(path.format(SEARCH if path in searched else 1) + query).raise_for_status()
        if not path.endswith((".png", ".csv")):
            assert answer.json().items() >= LATER.items(), path
    assert hosted.get(FILE.format(1, 1, "net")).content == b"\x89PNG"
    last = ["stop", "delete", "undelete"]  # only what has ended can be deleted
    for path in sorted(
        ACTS, key=lambda path: last.index(path.rpartition("/")[2]) if path.endswith(tuple(last)) else -1
    ):
        hosted.post(path.format(SEARCH if path in searched else 1, 1)).raise_for_status()
        if path.endswith("stop"):
            until(lambda: client.experiment(1).ended, "it has ended")
    for path, kind in CHANGES.items():
        parts = (1, 1, "50-1") if kind is Registration else (NAMED.get(kind, SEARCH),)
        answer = hosted.post(path.format(*parts), json=BODIES[kind])
        if path.endswith("/trace"):
            assert (answer.status_code, answer.json()["error"]) == (409, "Conflict")  # none of its trials runs here
        else:
            assert answer.raise_for_status().json().items() >= LATER.items(), path
    with hosted.stream("?after=0") as stream:
        assert '"a_later_field"' in str(stream.recv())


@pytest.mark.parametrize("number", [1, SEARCH])
def test_what_a_notebook_keeps_is_made_of_what_is_known_here(
    later: Later, hosted: Hosted, client: Client, number: int
) -> None:
    kept = bundle(hosted, number).raise_for_status().json()[MIME_TYPE]
    assert Overview.model_validate(kept["overview"]).experiment == client.experiment(number).experiment
    assert (kept["curves"] is not None, kept["search"] is not None) == (True, number == SEARCH)
    assert "a_later_field" not in str(kept)


def test_an_answer_that_cannot_be_read_is_a_sentence_with_both_versions(
    later: Later, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernel_backend.api.base.ApiHandler.reply", lambda self, answer: self.finish({"experiment": {}})
    )
    answer = bundle(hosted, 1)
    assert (answer.status_code, answer.json()["error"]) == (400, "OtherVersion")
    assert f"the service is Daylight 9.9.9, this is Daylight {__version__}" in answer.json()["message"]


def bundle(hosted: Hosted, number: int) -> httpx.Response:
    return hosted.post(f"/bundle/{number}", json={"captured": []})
