"""A widget's kernel: which front ends get one, what a page may ask, and how it hears messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ext import frontend
from jupyter_ext.frontend import Hearing, front_end, lacks_for_widget, wants_widget
from jupyter_ext.views import message_relay as feeds
from jupyter_ext.views.comm_api import answer
from jupyter_ext.views.message_relay import MessageRelay, RelayPage
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from tests.api.served import Served, StillEngine, report, started, submit, token_of
from tests.support.world import until
from tests.test_layers import loaded

KEY = AttemptId(1, 1, 1)


# Which front ends get one


class Events:
    def __init__(self) -> None:
        self.listeners: dict[str, list[Any]] = {"pre_run_cell": [], "post_run_cell": []}

    def register(self, event: str, listener: Any) -> None:
        self.listeners[event].append(listener)

    def unregister(self, event: str, listener: Any) -> None:
        self.listeners[event].remove(listener)

    def happen(self, event: str) -> None:
        for listener in self.listeners[event]:
            listener(None)


def shell(person: bool = True, **names: Any) -> Any:
    parent = {"content": {"allow_stdin": person}}
    kernel = SimpleNamespace(get_parent=lambda channel: parent)
    return SimpleNamespace(user_ns=names, kernel=kernel, events=Events())


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAYLIGHT_VIEW", "DAYLIGHT_HEADLESS", "VSCODE_PID", "COLAB_RELEASE_TAG", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_vscode_and_colab_are_told_from_all_others():
    assert front_end(shell(), {}) == "jupyter"
    assert front_end(shell(__vsc_ipynb_file__="/a.ipynb"), {}) == "vscode"
    assert front_end(shell(), {"VSCODE_PID": "1"}) == "vscode"
    assert front_end(shell(), {"COLAB_RELEASE_TAG": "release"}) == "colab"


def test_jupyterlab_that_was_started_in_vscodes_terminal_is_jupyterlab():
    assert front_end(shell(), {"VSCODE_PID": "1", "JPY_SESSION_NAME": "a.ipynb"}) == "jupyter"


def test_a_widget_is_shown_where_the_front_end_needs_it_or_a_person_asks():
    vscode = shell(__vsc_ipynb_file__="/a.ipynb")
    asked = {
        view: (wants_widget(view, shell()), wants_widget(view, vscode)) for view in (None, "auto", "card", "widget")
    }
    assert asked == {None: (False, True), "auto": (False, True), "card": (False, False), "widget": (True, True)}


def test_the_environment_has_the_second_word(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DAYLIGHT_VIEW", "widget")
    assert wants_widget(None, shell())
    assert not wants_widget("card", shell())
    monkeypatch.setenv("DAYLIGHT_VIEW", "wdget")
    with pytest.raises(InvalidRequest, match=r"DAYLIGHT_VIEW='wdget'.*did you mean widget\?"):
        wants_widget(None, shell())


def test_nobody_gets_a_widget_where_nobody_sits():
    assert not wants_widget("widget", shell(person=False))
    assert not wants_widget("widget", SimpleNamespace(user_ns={}))  # IPython in a terminal
    assert not wants_widget("widget", None)


def test_what_is_missing_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(frontend, "STATIC", tmp_path)
    assert "has not been built" in str(lacks_for_widget())
    (tmp_path / "widget.js").touch()
    (tmp_path / "widget.css").touch()
    assert lacks_for_widget() is None
    monkeypatch.setitem(sys.modules, "anywidget", None)
    assert lacks_for_widget() == "the live view here needs anywidget: pip install anywidget"


def test_a_kernel_holds_no_widgets_until_one_is_shown():
    assert not loaded("daylight", "jupyter_ext.magics.magics") & {"anywidget", "ipywidgets"}


def test_while_a_cell_runs_a_page_is_not_called_silent(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(frontend.time, "monotonic", lambda: now[0])
    kernel = shell()
    hearing = Hearing(kernel)
    now[0] = 100
    assert hearing.silence() == 0  # the cell that shows it still runs
    kernel.events.happen("post_run_cell")
    now[0] = 130
    assert hearing.silence() == 30
    hearing.heard()
    now[0] = 140
    assert hearing.silence() == 10
    kernel.events.happen("pre_run_cell")
    assert hearing.silence() == 0
    hearing.close()
    assert not any(kernel.events.listeners.values())


# What a page may ask


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, StillEngine())
    yield served
    served.stop()


@pytest.fixture
def client(served: Served) -> Client:
    client = served.client()
    submit(client)
    return client


def told(served: Served, client: Client, *steps: int) -> None:
    records = (started(), *(report(step) for step in steps)) if 2 in steps else tuple(report(step) for step in steps)
    client.deliver(KEY, token_of(served, KEY), Delivery(records=records))


def test_a_page_reads_its_experiment_as_the_service_tells_it(served: Served, client: Client):
    told(served, client, 2, 3)

    def get(path: str, **query: Any) -> dict[str, Any]:
        status, body = answer(client, 1, "GET", f"/experiments/1{path}", query)
        assert status == 200, body
        return body

    assert get("")["id"] == 1
    assert [each["step"] for each in get("/reports", after="0", kind="validation")["reports"]] == [2, 3]
    assert get("/curves", trial=1, points=200)["curves"][0]["metric"] == "loss"
    assert get("/logs", tail=6)["text"] == "world\n"
    assert get("/checkpoints") == {"checkpoints": []}
    assert get("/source")["definition"].startswith("def model")


def test_a_page_acts_on_its_experiment(client: Client):
    for path in ("/extend", "/trials/1/promote", "/trials/1/prune"):
        status, body = answer(client, 1, "POST", f"/experiments/1{path}", {"trials": 9} if path == "/extend" else {})
        assert (status, body["message"]) == (409, "experiment #1 is no search: it has a single trial")
    status, body = answer(client, 1, "POST", "/experiments/1/stop", {})
    assert (status, body["experiment"]["state"]) == (200, "stopping")
    status, body = answer(client, 1, "POST", "/experiments/1/resume", {})
    assert (status, body["error"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/experiments"),
        ("GET", "/experiments/2"),
        ("GET", "/experiments/12"),
        ("POST", "/experiments/2/stop"),
        ("POST", "/experiments/1"),
        ("POST", "/experiments/2/trials/1/prune"),
        ("POST", "/experiments/1/trials/x/prune"),
        ("POST", "/experiments/1/trials/1/stop"),
        ("POST", "/experiments/1/trials/1/prune/trials/1/prune"),
        ("GET", "/experiments/1/trials/1/prune"),
        ("GET", "/experiments/1/stop"),
        ("GET", "/experiments/1/../2"),
        ("GET", "/curves"),
        ("GET", ""),
        ("GET", "/health"),
        ("DELETE", "/experiments/1"),
    ],
)
def test_nothing_else_can_be_asked(client: Client, method: str, path: str):
    submit(client, name="another one")
    status, body = answer(client, 1, method, path, {})
    assert (status, body["error"]) == (404, "NotFound")
    assert client.experiment(2).experiment.state == "active"


def test_what_is_wrong_with_a_question_is_answered(served: Served, client: Client):
    assert answer(client, 1, "GET", "/experiments/1/curves", {"points": "many"})[0] == 400
    assert answer(client, 7, "GET", "/experiments/7", {})[0] == 404
    served.run(served._stop())
    status, body = answer(served.client(patience=0), 1, "GET", "/experiments/1", {})
    assert (status, body["error"]) == (503, "ServiceUnreachable")


# How it hears messages


class Pages:
    """A recorder of the messages sent to all pages of a feed."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.saves: list[int] = []
        self.silent = 0.0

    @property
    def page(self) -> RelayPage:
        return RelayPage(self.sent.append, lambda: self.saves.append(len(self.sent)), lambda: self.silent)

    @property
    def batches(self) -> list[dict[str, Any]]:
        return [each for each in self.sent if each["type"] == "messages"]

    @property
    def seqs(self) -> list[int]:
        return [message["seq"] for batch in self.batches for message in batch["messages"]]

    @property
    def steps(self) -> list[int]:
        messages = [message for batch in self.batches for message in batch["messages"]]
        return [message["data"]["step"] for message in messages if message["type"] == "report"]


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def feed(served: Served, pages: Pages) -> Iterator[MessageRelay]:
    feed = MessageRelay(lambda: served.client(patience=0.5), 1, pages.page)
    yield feed
    feed.stop()


def test_each_batch_says_what_it_continues(served: Served, client: Client, feed: MessageRelay, pages: Pages):
    feed.watch(0)
    for step in range(2, 8):
        told(served, client, step)
        until(lambda step=step: step in pages.steps, "the report arrives")
    ends = [0, *(batch["messages"][-1]["seq"] for batch in pages.batches)]
    assert [batch["after"] for batch in pages.batches] == ends[:-1]
    assert pages.steps == [2, 3, 4, 5, 6, 7]
    assert {"type": "beat"} in pages.sent


def test_many_messages_are_few_batches(served: Served, client: Client, feed: MessageRelay, pages: Pages):
    told(served, client, *range(2, 800))
    began = time.monotonic()
    feed.watch(0)
    until(lambda: 799 in pages.steps, "all reports arrive")
    assert len(pages.batches) <= 2 + (time.monotonic() - began) / feeds.BATCH_S  # a slow service has more of them
    assert max(len(batch["messages"]) for batch in pages.batches) <= feeds.BATCH


def test_a_page_that_has_missed_something_hears_it_again(
    served: Served, client: Client, feed: MessageRelay, pages: Pages
):
    told(served, client, 2, 3)
    feed.watch(0)
    until(lambda: 3 in pages.steps, "the reports arrive")
    missed = pages.seqs[-1] - 1
    pages.sent.clear()
    feed.watch(missed)
    until(lambda: pages.steps, "the last one comes again")
    assert (pages.batches[0]["after"], pages.steps) == (missed, [3])


def test_a_second_page_that_has_missed_nothing_changes_nothing(
    served: Served, client: Client, feed: MessageRelay, pages: Pages
):
    told(served, client, 2)
    feed.watch(0)
    until(lambda: 2 in pages.steps, "something arrives, and nothing comes by itself any more")
    feed.here(0)
    feed.watch(pages.seqs[-1])
    told(served, client, 3)
    until(lambda: 3 in pages.steps, "the report arrives")
    assert len(pages.seqs) == len(set(pages.seqs))
    assert len(served.use.streams) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_feed_that_broke_begins_again_at_the_next_word_of_a_page(served: Served, client: Client, pages: Pages):
    broken = True

    def send(message: dict[str, Any]) -> None:
        if broken:
            raise ValueError("the comm is gone")
        pages.sent.append(message)

    feed = MessageRelay(lambda: served.client(patience=0.5), 1, RelayPage(send, lambda: None, lambda: 0.0))
    told(served, client, 2)
    feed.watch(0)
    until(lambda: not feed.goes_on, "the feed breaks")
    broken = False
    feed.here(0)
    until(lambda: 2 in pages.steps, "the report arrives")
    feed.stop()


def test_when_nobody_was_heard_for_a_while_the_service_is_let_go(
    served: Served, client: Client, feed: MessageRelay, pages: Pages
):
    feed.watch(0)
    until(lambda: served.use.streams and pages.seqs, "it watches")
    pages.silent = feeds.ABSENT_S + 1
    until(lambda: not feed.goes_on and not served.use.streams, "it watches no more")
    pages.silent = 0
    seen = pages.seqs[-1]
    told(served, client, 2)
    feed.here(seen)
    until(lambda: 2 in pages.steps, "it goes on where the page was")
    assert pages.batches[-1]["after"] >= seen


def test_the_end_of_an_experiment_is_sent_saved_and_the_last_word(
    served: Served, client: Client, feed: MessageRelay, pages: Pages
):
    feed.watch(0)
    told(served, client, 2, 3)
    served.engine.end(KEY)
    until(lambda: not feed.goes_on, "it ends by itself")
    last = pages.batches[-1]["messages"][-1]
    assert (last["type"], last["data"]["state"]) == ("experiment", "completed")
    assert pages.saves[-1] >= len(pages.batches)
    until(lambda: not served.use.streams, "the service is let go")
    feed.watch(last["seq"])  # a page that comes later
    until(lambda: not feed.goes_on, "there is nothing to wait for")
    assert pages.sent[-1]["type"] != "closed"


def test_a_change_of_state_is_saved_soon(
    client: Client, feed: MessageRelay, pages: Pages, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "FIRST_SAVE_S", 1e6)
    monkeypatch.setattr(feeds, "SAVE_S", 1e6)
    feed.watch(client.experiment(1).seq)
    client.pause(1)
    until(lambda: pages.saves, "it is saved")


def test_a_service_that_is_gone_is_told_with_what_to_do(
    served: Served, client: Client, feed: MessageRelay, pages: Pages
):
    feed.watch(0)
    until(lambda: pages.seqs, "something arrives")
    served.run(served._stop())
    until(lambda: pages.sent[-1]["type"] == "closed", "the page is told")
    assert pages.sent[-1]["status"] == 503
    assert "daylight serve" in pages.sent[-1]["message"]
    until(lambda: not feed.goes_on, "it waits for the page to try again")


def test_an_experiment_that_is_no_more_is_told(served: Served, pages: Pages):
    feed = MessageRelay(lambda: served.client(patience=0), 7, pages.page)
    feed.watch(0)
    until(lambda: pages.sent, "the page is told")
    assert (pages.sent[0]["type"], pages.sent[0]["status"]) == ("closed", 404)
