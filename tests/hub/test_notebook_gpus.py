"""Test GPUs of notebook servers on a real hub: the hub asks Daylight what is allowed, and used GPUs are counted."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from tests.hub.hub import Hub
from tests.support.world import DEFINITION


@pytest.fixture(autouse=True, scope="module")
def people(hub: Hub) -> Iterator[None]:
    """Provide users of their own, frank, fiona and grace, since the hub remembers servers' last options."""
    for group, users in (("vision", ["frank", "fiona"]), ("speech", ["grace"])):
        for user in users:
            hub.token(user)
        hub.api("POST", f"groups/{group}/users", users=users)
    yield
    for user in ("frank", "fiona", "grace"):
        end(hub, user)
        hub.api("DELETE", f"users/{user}")


@contextlib.contextmanager
def server(hub: Hub, user: str, **options: object) -> Iterator[None]:
    """Start a notebook server of this user with these options, through the form or through the API."""
    end(hub, user)
    hub.api("POST", f"users/{user}/server", **options)
    hub.until(lambda: hub.api("GET", f"users/{user}")["servers"].get("", {}).get("ready"), "the server is ready")
    try:
        yield
    finally:
        end(hub, user)


def end(hub: Hub, user: str) -> None:
    hub.token(user)
    if hub.api("GET", f"users/{user}")["servers"]:
        hub.api("DELETE", f"users/{user}/server")
        hub.until(lambda: not hub.api("GET", f"users/{user}")["servers"], "the server has ended")


def used(hub: Hub) -> int:
    return sum(node.used for node in hub.client("eve").nodes())


def test_a_server_beyond_a_quota_is_refused_with_what_may_be_had(hub: Hub) -> None:
    with pytest.raises(AssertionError, match="9 GPUs requested for the notebook server"):
        hub.api("POST", "users/frank/server", slots=9)
    with pytest.raises(AssertionError, match="a whole number is wanted"):
        hub.api("POST", "users/frank/server", slots="all of them")
    assert not hub.api("GET", "users/frank")["servers"]


def test_a_server_within_it_leaves_no_token_behind_and_its_slots_are_held_until_it_ends(hub: Hub) -> None:
    hub.until(lambda: used(hub) == 0, "what ran before has ended")
    with server(hub, "frank", slots=2):
        notes = [token["note"] for token in hub.api("GET", "users/frank/tokens")["api_tokens"]]
        assert "Daylight's profiles" not in notes
        hub.until(lambda: used(hub) == 2, "the service has counted it")
        (run,) = hub.client("dave").nodes()[0].runs
        assert (run.server, run.owner, run.slots, run.experiment) == ("frank/", "frank", 2, None)
        assert run.last_activity is not None
        assert run.take_back_at == run.last_activity + 1
        (hidden,) = hub.client("eve").nodes()[0].runs
        assert (hidden.server, hidden.owner, hidden.last_activity) == (None, "", None)
        (held,) = [each.use.held for each in hub.client("frank").me().accounts if each.kind == "user"]
        assert held == 2
        with pytest.raises(AssertionError, match=r"2 GPUs requested.*; 1 of group vision\S+ 3 is free"):
            hub.api("POST", "users/fiona/server", slots=2)
    hub.until(lambda: used(hub) == 0, "the service has heard that it ended")


def test_an_idle_server_is_stopped_for_a_guarantee_and_the_log_says_so(hub: Hub) -> None:
    notebook = hub.notebook("dave")
    hub.until(lambda: used(hub) == 0, "what ran before has ended")
    end(hub, "grace")
    hub.api("POST", "users/grace/server", slots=3)
    hub.until(lambda: used(hub) == 3, "the service has counted it")
    said = notebook.run("%load_ext daylight")
    said += notebook.run(f"%%dlsubmit --slots 2 --epochs 1000 pause=0.1\n{DEFINITION}")
    notebook.close()
    number = re.search(r"#(\d+)", said)
    assert number is not None, said
    hub.until(lambda: not hub.api("GET", "users/grace")["servers"], "grace's server is stopped")
    hub.until(lambda: hub.client("dave").experiment(int(number[1])).state == "running", "it runs")
    entry = next(each for each in hub.client("ada").audit() if each.act == "stop" and each.on.startswith("notebook"))
    assert (entry.who, entry.on) == ("daylight", "notebook server grace/")
    assert re.fullmatch(rf"3 slots, nothing done for \d+ min: #{number[1]}.1 is within a guarantee", entry.detail)
    hub.client("dave").stop(int(number[1]))
