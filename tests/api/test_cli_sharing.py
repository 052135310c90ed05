"""Test `daylight quota`, `queue`, `nodes` and `audit`, and the same verbs in a cell, against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jupyter_ext.magics.commands import run_command
from jupyter_ext.values.awaited import AwaitedValues
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.identity.local import LocalIdentity
from tests.api.served import TOKEN, Served, submit
from tests.support.world import until

ME = LocalIdentity(TOKEN)._person.name
Said = Callable[..., str]


@pytest.fixture
def said(service: Served, capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command line, assert its exit code, and return what it printed."""

    def run(*line: str, code: int = 0) -> str:
        assert main(list(line)) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return run


@pytest.fixture
def crowded(service: Served) -> Client:
    """Let experiment #1 hold both slots, so that #2 and #3 wait."""
    client = service.client()
    for name in ("digits", "faces", "words"):
        submit(client, name, slots=2)
    until(lambda: len(client.queue()) == 2, "two wait")
    return client


def test_a_quota_is_set_shown_and_taken_back_as_it_says(said: Said):
    out = said("quota", "set", "user", ME, "--limit", "1", "--slot-hours", "40/12h", "--weight", "2")
    assert out.splitlines() == [
        f"user {ME}: weight 1 -> 2, limit none -> 1, slot-hours none -> 40/12h",
        f"to take it back: daylight quota clear user {ME} --weight --limit --slot-hours",
    ]
    assert "░░░░░░░░ 0 of 1 *" in said("quota")
    assert "0 of 40/12h *" in said("quota", "show", "user", ME)
    assert "* set here" in said("quota", "show", "--all")
    changed = json.loads(said("quota", "set", "user", ME, "--limit", "none", "--json"))
    assert (changed["before"]["quota"]["limit"], changed["after"]["quota"]["limit"]) == (1, None)
    undo = said("quota", "clear", "user", ME, "--weight").splitlines()[-1].removeprefix("to take it back: daylight ")
    assert undo == f"quota set user {ME} --weight 2"
    assert "weight 1 -> 2" in said(*undo.split())
    said("quota", "clear", "user", ME)
    assert json.loads(said("quota", "--json"))["accounts"][0]["changed"] == {}


def test_the_queue_is_shown_and_its_order_changed(said: Said, crowded: Client):
    rows = said("queue").splitlines()
    assert [row.split()[:3] for row in rows[1:]] == [["1", "#2", "faces"], ["2", "#3", "words"]]
    assert "2nd in queue; 2 of 2 slots in use" in rows[2]
    first = said("queue", "first", "3").splitlines()
    assert first[0].startswith("#3: priority 0 -> first; it is queued: next in queue")
    assert first[1] == "to take it back: daylight queue priority 3 0"
    assert said("queue").splitlines()[1].split()[:3] == ["1", "#3", "words"]
    assert said("queue", "priority", "3", "-7").splitlines()[0].startswith("#3: priority first -> -7; ")
    waiting = json.loads(said("queue", "--json"))["queue"]
    assert [(each["experiment"], each["priority"]) for each in waiting] == [(2, 0), (3, -7)]


def test_nodes_tell_who_holds_them_and_are_drained(said: Said, crowded: Client):
    (row,) = said("nodes").splitlines()[1:]
    assert row.split()[:3] == ["here", "local", "cpu"]
    assert f"2 of 2  {ME} 2 (#1)" in row
    assert said("nodes", "drain", "here").splitlines() == [
        f"here: drained, nothing new is started there; 2 slots in use there: {ME} 2 (#1), until they end",
        "to take it back: daylight nodes undrain here",
    ]
    assert "drained" in said("nodes")
    assert json.loads(said("nodes", "undrain", "here", "--json"))["drained"] is False


def test_the_audit_log_is_paged(said: Said):
    assert "nothing has been done" in said("audit")
    for limit in "123":
        said("quota", "set", "user", ME, "--limit", limit)
    page = said("audit", "--limit", "2").splitlines()
    assert [row.split()[0] for row in page[1:3]] == ["3", "2"]
    assert page[3] == "older ones: daylight audit --before 2"
    assert [each["detail"] for each in json.loads(said("audit", "--before", "2", "--json"))["audit"]] == [
        "limit none -> 1"
    ]


def test_the_audit_log_is_searched(said: Said):
    for limit in "123":
        said("quota", "set", "user", ME, "--limit", limit)
    found = said("audit", "--search", f"{ME} LIMIT 2", "--limit", "1").splitlines()
    assert [row.split()[0] for row in found[1:2]] == ["3"]
    assert found[2] == f"older ones: daylight audit --search '{ME} LIMIT 2' --before 3"
    (older,) = json.loads(said("audit", "--search", f"{ME} LIMIT 2", "--before", "3", "--json"))["audit"]
    assert older["detail"] == "limit 1 -> 2"
    assert said("audit", "--search", "nothing") == "no line of the log has nothing\n"


# Line, and what is said of it
REFUSED = {
    "quota sett user ada": "daylight quota has no sett (did you mean set?)",
    "quota set ada --limit 3": "quota set takes one account, not ada: write daylight quota set user ada",
    "quota set user ada": "which number? write daylight quota set user ada --limit 8",
    "quota set user ada --limit": "which limit?",
    "quota set user ada --limit many": "limit many: must be a number",
    "quota set user ada --limit -3": "limit -3: must be at least 0",
    "quota set user ada --guarantee 9 --limit 3": "a guarantee of 9 is more than the limit of 3",
    "quota clear user ada --limit 3": "clear takes no number, not --limit 3",
    "quota show user ada --all": "--all shows everybody",
    "quota --limit 3": "numbers are set with: daylight quota set user NAME --limit 8",
    "queue frist 1": "there is no such action (did you mean first?)",
    "queue priority 1 high": "priority high: must be a whole number",
    "queue priority 1 2000": "priority 2000: must be from -1000 to 1000",
    "queue first 9": "there is no experiment #9",
    "nodes drain": "there is no such action",
    "nodes drain there": "there is no node there (did you mean here?); there are here",
    "audit all": "daylight audit takes no 'all'",
}


def test_what_cannot_be_is_refused_with_the_way_out(said: Said, crowded: Client):
    for line, complaint in REFUSED.items():
        assert complaint in said(*line.split(), code=2), line


def test_a_cell_says_the_same(service: Served, crowded: Client, capsys: pytest.CaptureFixture[str], monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle["text/plain"]))
    for line in ("quota", "queue", "nodes"):
        run_command([line], AwaitedValues({}))
    assert f"user {ME}" in shown[0]
    assert "#2 faces" in shown[1]
    assert f"{ME} 2 (#1)" in shown[2]
    run_command(["quota", "set", "user", ME, "--priority", "3"], AwaitedValues({}))
    assert f"to take it back: %dl quota clear user {ME} --priority" in capsys.readouterr().out
