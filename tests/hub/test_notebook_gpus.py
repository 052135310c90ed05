"""GPUs of notebook servers on a real hub: what a user may have is asked of Daylight, and what they have is counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.hub.hub import Hub


@contextlib.contextmanager
def server(hub: Hub, user: str, **options: object) -> Iterator[None]:
    """A notebook server of this person's, with what was chosen on the form, or past it."""
    hub.token(user)
    if hub.api("GET", f"users/{user}")["server"] is not None:
        hub.api("DELETE", f"users/{user}/server")
        hub.until(lambda: not hub.api("GET", f"users/{user}")["servers"], "the server has ended")
    hub.api("POST", f"users/{user}/server", **options)
    hub.until(lambda: hub.api("GET", f"users/{user}")["servers"].get("", {}).get("ready"), "the server is ready")
    try:
        yield
    finally:
        hub.api("DELETE", f"users/{user}/server")
        hub.until(lambda: not hub.api("GET", f"users/{user}")["servers"], "the server has ended")


def test_a_server_beyond_a_quota_is_refused_with_what_may_be_had(hub: Hub) -> None:
    with pytest.raises(AssertionError, match="9 GPUs asked for the notebook server"):
        hub.api("POST", "users/danielle/server", slots=9)
    with pytest.raises(AssertionError, match="a whole number is wanted"):
        hub.api("POST", "users/danielle/server", slots="all of them")
    assert not hub.api("GET", "users/danielle")["servers"]


def test_a_server_within_it_starts_and_leaves_no_token_behind(hub: Hub) -> None:
    with server(hub, "danielle", slots=1):
        notes = [token["note"] for token in hub.api("GET", "users/danielle/tokens")["api_tokens"]]
        assert "Daylight's profiles" not in notes


def test_what_a_server_holds_is_held_in_the_service_until_it_ends(hub: Hub) -> None:
    def used() -> int:
        return sum(node.used for node in hub.client("eve").nodes())

    assert used() == 0
    with server(hub, "danielle", slots=2):
        hub.until(lambda: used() == 2, "the service has counted it")
    hub.until(lambda: used() == 0, "the service has heard that it ended")
