"""Test a notebook's output and the widget's messages to a page, in a real kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from jupyter_ext.values.awaited import MARK
from jupyter_ext.views import MIME_TYPE
from kernel_backend.errors import NotFound
from tests.notebook.cells import Kernel, Run, error, shown
from tests.support.patience import PATIENCE_S, starvation, until
from tests.support.world import DEFINITION, World

pytestmark = pytest.mark.notebook

WIDGET = "application/vnd.jupyter.widget-view+json"
Message = dict[str, Any]


class Page:
    """Frontend with widgets: it receives all messages of a kernel, and keeps the state of each comm."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client
        self.heard: list[Message] = []
        self.models: dict[str, dict[str, Any]] = {}
        self._ids = count(1)

    def begin(self, source: str) -> str:
        """Execute a cell without waiting for its end."""
        return str(self.client.execute(source, allow_stdin=True))

    def run(self, source: str) -> list[Message]:
        """Execute a cell, and return the messages received meanwhile."""
        before, cell = len(self.heard), self.begin(source)
        self.until(lambda: self.idle(cell), f"this ends: {source}")
        return self.heard[before:]

    def bundles(self, source: str) -> list[dict[str, Any]]:
        """Return the bundles that a cell displays, including updates, without lines on values that came from a job."""
        kinds = ("display_data", "execute_result", "update_display_data")
        displayed = [each["content"] for each in self.run(source) if each["msg_type"] in kinds]
        return [each["data"] for each in displayed if MARK not in each["metadata"]]

    def idle(self, cell: str) -> bool:
        """Return True once the kernel has reported that the cell has ended."""
        return any(
            each["parent_header"].get("msg_id") == cell and each["content"].get("execution_state") == "idle"
            for each in self.heard
            if each["msg_type"] == "status"
        )

    def until(self, true: Callable[[], object], what: str) -> None:
        """Receive messages until a condition is true."""
        begun = time.monotonic()
        while not true():
            assert time.monotonic() - begun < PATIENCE_S * starvation(), f"did not happen: {what}"
            try:
                self._hear(self.client.get_iopub_msg(timeout=0.2))
            except Empty:
                continue

    def said(self, model: str, kind: str) -> list[dict[str, Any]]:
        """Return the messages of one kind that the kernel sent to a widget's pages."""
        comm = (
            each["content"]
            for each in self.heard
            if each["msg_type"] == "comm_msg" and _about(each)["comm_id"] == model
        )
        contents = [each["data"]["content"] for each in comm if each["data"]["method"] == "custom"]
        return [content for content in contents if content.get("type") == kind]

    def seqs(self, model: str) -> list[int]:
        """Return the sequence numbers of the messages that arrived."""
        return [message["seq"] for batch in self.said(model, "messages") for message in batch["messages"]]

    def say(self, model: str, content: dict[str, Any]) -> None:
        """Send a message to a widget's kernel."""
        data = {"comm_id": model, "data": {"method": "custom", "content": content}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", data))

    def ask(self, model: str, method: str, path: str, **query: Any) -> dict[str, Any]:
        """Send a request to a widget's kernel, and return the answer."""
        id = next(self._ids)
        self.say(model, {"id": id, "method": method, "path": path, "query": query})
        found: list[dict[str, Any]] = []

        def answered() -> bool:
            found[:] = [each for each in self.said(model, "answer") if each["id"] == id]
            return bool(found)

        self.until(answered, f"an answer to {path}")
        return found[0]

    def _hear(self, message: Message) -> None:
        self.heard.append(message)
        content = message["content"]
        if message["msg_type"] == "comm_open":
            self.models[content["comm_id"]] = dict(content["data"]["state"])
        elif message["msg_type"] == "comm_msg" and content["data"]["method"] == "update":
            self.models[content["comm_id"]].update(content["data"]["state"])


def _about(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = message["content"]
    return found


@pytest.fixture(scope="module")
def page(kernel: Kernel) -> Page:
    page = Page(kernel.client)
    page.run("%load_ext daylight")
    return page


@pytest.fixture(scope="module")
def submitted(page: Page) -> list[dict[str, Any]]:
    """Submit #1, which trains for long, and return the bundles that the cell displays."""
    return page.bundles(f"%%dlsubmit --slots 1 --epochs 5000 --backend torch pause=0.05{DEFINITION}")


def test_a_submission_shows_one_bundle_and_no_picture_of_nothing(submitted: list[dict[str, Any]]):
    (bundle,) = submitted
    assert set(bundle) == {MIME_TYPE, "text/html", "text/plain"}
    saved = bundle[MIME_TYPE]
    assert (saved["version"], saved["number"], saved["curves"]) == (1, 1, None)
    assert saved["captured"][0].endswith("cell 2")
    assert "%dl show 1 looks again, %dl stop 1 ends it" in bundle["text/html"]


@pytest.mark.usefixtures("submitted")
def test_with_reports_it_has_curves_and_a_picture(page: Page, world: World):
    world.reached(1, 8)
    for cell in ("%dl show 1", "import daylight; daylight.show(1)", "daylight.job(1)"):
        (bundle,) = page.bundles(cell)
        assert set(bundle) == {MIME_TYPE, "image/png", "text/html", "text/plain"}, cell
        training = bundle[MIME_TYPE]["curves"]["curves"][0]
        assert (training["kind"], training["metric"]) == ("training", "loss")
        assert 0 < len(training["step"]) <= 200


@pytest.fixture(scope="module")
def model(page: Page, submitted: list[dict[str, Any]]) -> str:
    """Return the displayed widget of experiment #1."""
    (bundle,) = page.bundles("%dl show 1 --view widget")
    assert MIME_TYPE not in bundle  # one live view is enough
    assert "text/html" in bundle
    return str(bundle[WIDGET]["model_id"])


def test_a_widget_comes_with_all_that_a_page_needs_to_draw_it(page: Page, model: str):
    state = page.models[model]
    assert state["number"] == 1
    assert state["saved"]["overview"]["experiment"]["number"] == 1
    assert "render" in state["_esm"]
    assert ".dl-view" in state["_css"]


def test_messages_arrive_in_batches_while_a_cell_is_busy(page: Page, model: str, tmp_path: Path):
    page.run("pass")
    before = len(page.seqs(model))
    enough = tmp_path / "enough"
    cell = page.begin(f"import os, time\nwhile not os.path.exists({str(enough)!r}): time.sleep(0.1)")
    page.until(lambda: len(page.seqs(model)) >= before + 20, "reports arrive")
    assert not page.idle(cell)
    enough.touch()
    batches = page.said(model, "messages")
    ends = [batch["messages"][-1]["seq"] for batch in batches]
    assert [batch["after"] for batch in batches[1:]] == ends[:-1]
    assert page.seqs(model) == sorted(set(page.seqs(model)))
    page.until(lambda: page.idle(cell), "the cell ends")
    page.until(lambda: page.said(model, "beat"), "a sign of life")


def test_the_saved_state_goes_on_so_that_a_page_that_is_loaded_anew_is_right(page: Page, model: str):
    seq = page.models[model]["saved"]["overview"]["seq"]
    page.until(lambda: page.models[model]["saved"]["overview"]["seq"] > seq, "a newer state")
    assert page.models[model]["saved"]["curves"]["curves"]


def test_two_displays_share_one_widget_and_its_stream(page: Page, model: str):
    for cell in ("%dl show 1 --view widget", "daylight.job(1).show(view='widget')"):
        (bundle,) = page.bundles(cell)
        assert bundle[WIDGET]["model_id"] == model
    threads = "import threading; print(sum(t.name == 'daylight view of 1' for t in threading.enumerate()))"

    def two() -> bool:
        texts = [each["content"]["text"] for each in page.run(threads) if each["msg_type"] == "stream"]
        return "".join(texts).strip() == "2"

    # A display begins the stream anew where messages have overtaken its state; the one before ends a moment later.
    until(two, "one stream is left, with its two threads")


def test_a_page_that_has_missed_messages_gets_them(page: Page, model: str):
    first, seen = page.seqs(model)[0], page.seqs(model).count(page.seqs(model)[0])
    heard = len(page.said(model, "messages"))
    page.say(model, {"type": "watch", "after": 0})
    page.until(lambda: page.seqs(model).count(first) == seen + 1, "all of it comes again")
    assert 0 in [batch["after"] for batch in page.said(model, "messages")[heard:]]


def test_a_page_asks_and_acts_through_the_kernel(page: Page, model: str, world: World):
    overview = page.ask(model, "GET", "/experiments/1")
    assert (overview["status"], overview["body"]["id"]) == (200, 1)
    curves = page.ask(model, "GET", "/experiments/1/curves", trial=1, points=50)
    assert 0 < len(curves["body"]["curves"][0]["step"]) <= 50
    assert page.ask(model, "GET", "/experiments/2")["status"] == 404
    assert page.ask(model, "POST", "/experiments/1/stop")["status"] == 200
    world.state(1, "stopped")
    page.until(lambda: page.models[model]["saved"]["overview"]["experiment"]["state"] == "stopped", "it is saved")

    def last() -> tuple[str, str | None]:
        message = page.said(model, "messages")[-1]["messages"][-1]
        return message["type"], message["data"].get("state")

    page.until(lambda: last() == ("experiment", "stopped"), "the last message is there")


def test_nothing_goes_on_after_the_end(page: Page, model: str):
    threads = "import threading; print([t.name for t in threading.enumerate() if 'daylight' in t.name])"

    def none() -> bool:
        heard = page.run(threads)
        return any(each["content"].get("text") == "[]\n" for each in heard if each["msg_type"] == "stream")

    until(none, "the threads end")


def test_a_submission_can_be_shown_as_a_widget(page: Page):
    cell = f"%%dlsubmit --slots 1 --backend torch --view widget --wait{DEFINITION}"
    first, *later = page.bundles(cell)
    assert WIDGET in first
    assert "#2" in first["text/plain"]
    assert [each[WIDGET] for each in later] == [first[WIDGET]]  # drawn once more, at the end
    assert "completed" in later[-1]["text/html"]
    assert later[-1]["image/png"]


def test_waiting_never_takes_back_a_picture(page: Page):
    bundles = page.bundles(f"%%dlsubmit --slots 1 --epochs 20 --backend torch --wait pause=0.05{DEFINITION}")
    with_picture = ["image/png" in bundle for bundle in bundles]
    assert len(bundles) > 2
    assert with_picture == sorted(with_picture)
    assert with_picture[-1]
    assert all(bundle[MIME_TYPE]["curves"] for bundle in bundles if "image/png" in bundle)
    assert "completed" in bundles[-1]["text/plain"]


def test_in_vscode_it_is_a_widget_by_itself(page: Page):
    page.run("__vsc_ipynb_file__ = '/some/notebook.ipynb'")
    assert WIDGET in page.bundles("%dl show 2")[0]
    assert MIME_TYPE in page.bundles("%dl show 2 --view card")[0]
    page.run("del __vsc_ipynb_file__")
    assert MIME_TYPE in page.bundles("%dl show 2")[0]


def test_without_anywidget_the_card_says_what_to_install(page: Page):
    page.run("import sys; anywidget = sys.modules['anywidget']; sys.modules['anywidget'] = None")
    (bundle,) = page.bundles("%dl show 2 --view widget")
    page.run("sys.modules['anywidget'] = anywidget")
    assert WIDGET not in bundle
    assert "the live view here needs anywidget: pip install anywidget" in bundle["text/html"]


def test_a_view_that_is_none_is_refused_before_anything_is_sent(page: Page, world: World):
    heard = page.run(f"%%dlsubmit --view crad{DEFINITION}") + page.run("daylight.show(2, view='crad')")
    refused = [each["content"]["evalue"] for each in heard if each["msg_type"] == "error"]
    assert len(refused) == 2
    assert "--view: invalid choice: 'crad'" in refused[0]
    assert "did you mean card?" in refused[1]
    assert world.overview(3)
    with pytest.raises(NotFound):
        world.overview(4)


def test_where_nobody_watches_there_is_never_a_widget(execute: Run):
    cells = execute("%load_ext daylight", "%dl show 2 --view widget")
    assert error(cells[1]) is None
    (bundle,) = shown(cells[1])
    assert WIDGET not in bundle
    assert bundle["image/png"]
    assert bundle[MIME_TYPE]["overview"]["experiment"]["state"] == "completed"
