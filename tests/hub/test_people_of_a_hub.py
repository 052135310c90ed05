"""Daylight in a real JupyterHub: who gets in, from where, and what they may."""

from __future__ import annotations

from tests.hub.hub import Hub


def test_a_stranger_is_refused_and_people_come_in_by_their_tokens(hub: Hub) -> None:
    assert hub.ask(None, "GET", "/api/nodes").status_code == 401
    for user in ("dave", "eve", "ada"):
        assert hub.ask(user, "GET", "/api/nodes").json()["nodes"][0]["slots"] == 4


def test_a_notebook_server_finds_the_hubs_service_with_its_own_token(hub: Hub) -> None:
    notebook = hub.notebook("dave")
    assert "'pid': " in notebook.run("from kernel_backend.client import Client; print(Client.connect().health())")
    assert notebook.get("/daylight/api/nodes").json()["nodes"][0]["slots"] == 4
    notebook.close()
