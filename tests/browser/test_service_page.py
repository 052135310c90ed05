"""Test the cluster page in a real browser: admins change settings, other users see only what they may."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from kernel_backend.api.pages import BUNDLE
from kernel_backend.model.disk import nearly_full
from kernel_backend.model.register.records import ModelEdit
from kernel_backend.model.resources import Node
from kernel_backend.service import disk
from kernel_backend.service.loop import ends
from tests.api.committed import commit
from tests.api.test_searching import begun, search, trained
from tests.browser.cluster_page import ClusterPage
from tests.browser.conftest import cannot
from tests.browser.shared_cluster import MEMBERS, Cluster
from tests.browser.test_readable_by_all import AXE, RUN
from tests.browser.view import LATE
from tests.support.world import until

pytestmark = pytest.mark.browser
SEEN = "document.activeElement.matches('body') || getComputedStyle(document.activeElement).outlineStyle !== 'none'"
VIEWS = {  # with the tables of each, which are loaded by requests of their own
    "Cluster": ("Queue", "Nodes", "Use and cost"),
    "Users and groups": ("Users and groups",),
    "Audit log": ("Audit log",),
}
NARROW = {"width": 360, "height": 800}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not list(BUNDLE.glob("main-*.js")):
        cannot(f"{BUNDLE} is not built: run npm run build")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(service: Cluster) -> Iterator[Cluster]:
    yield service
    service.clear()


@pytest.fixture
def opened(cluster: Cluster, browser: Browser) -> Iterator[Callable[..., ClusterPage]]:
    """Provide a function that opens the page as a user."""
    made: list[ClusterPage] = []
    with ExitStack() as closing:

        def as_(name: str, **options: Any) -> ClusterPage:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            closing.callback(context.close)
            made.append(ClusterPage(context))
            return made[-1].open(f"{cluster.served.url}/#token={name}")

        yield as_
    complaints = [error for page in made for error in page.errors]
    assert not complaints, "\n".join(complaints)


def test_a_limit_is_set_where_it_stands_by_keyboard_decides_and_is_taken_back(opened, cluster):
    cluster.trains("dave", 4)
    page = opened("ada").go("Users and groups")
    page.type("Limit of dave", "4")
    expect(page.said).to_have_text("Limit of dave: 4, it was none")
    expect(page.number("Limit of dave")).to_be_focused()
    expect(page.row("Users and groups", "dave")).to_contain_text("hub: none")
    second = cluster.waits("dave", 2)
    page.go("Cluster")
    expect(page.row("Queue", f"#{second}")).to_contain_text("limit of 4 is in use")
    page.page.keyboard.press("Control+z")
    expect(page.said).to_have_text("dave: as it was")
    until(lambda: cluster.state(second) == "starting", "the limit is gone, and it starts")
    expect(page.row("Queue", f"#{second}")).to_have_count(0)
    page.go("Audit log")
    lines = page.table("Audit log").locator("tbody").get_by_role("row")
    expect(lines.nth(0)).to_contain_text("limit 4 -> none")
    page.page.get_by_role("searchbox", name="Search the log").fill("ada limit none")
    expect(lines.nth(1)).to_contain_text("limit none -> 4")


def test_what_cannot_be_is_said_beside_the_number_and_escape_leaves_it(opened, cluster):
    page = opened("ada").go("Users and groups")
    field = page.type("Guarantee of group vision", "11")
    expect(page.alert).to_have_text(re.compile("a guarantee of 11 is more than the limit of 10"))
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile("guarantee of 11"))
    page.page.keyboard.press("Escape")
    expect(page.number("Guarantee of group vision")).to_be_focused()
    expect(page.number("Guarantee of group vision")).to_have_text("4")
    page.type("Slot-hours of group vision", "lots")
    expect(page.alert).to_have_text(re.compile("write 500/7d"))
    page.page.keyboard.press("Escape")
    page.type("Slot-hours of group vision", "500/7d")
    expect(page.said).to_have_text("Slot-hours of group vision: 500/7d, it was none")
    expect(page.number("Slot-hours of group vision")).to_be_focused()
    page.page.keyboard.press("ArrowRight")
    expect(page.number("Weight of group vision")).to_be_focused()
    page.type("Weight of group vision", "2")
    expect(page.number("Weight of group vision")).to_have_text("2")
    page.button("Reset group vision to the hub's numbers").click()
    expect(page.number("Slot-hours of group vision")).to_have_text("none")
    expect(page.number("Weight of group vision")).to_have_text("1")
    page.button("Undo").click()
    expect(page.number("Slot-hours of group vision")).to_have_text("500/7d")
    expect(page.number("Weight of group vision")).to_have_text("2")


def test_a_node_is_drained_after_a_question_that_says_what_runs_there(opened, cluster):
    number = cluster.trains("dave", 8)
    page = opened("ada")
    page.button("Drain n2").click()
    asked = page.page.get_by_role("dialog", name="Drain n2?")
    expect(asked).to_contain_text(f"#{number} dave, 8 slots")
    page.page.keyboard.press("Escape")
    expect(asked).to_have_count(0)
    assert not any(node.drained for node in cluster.client("ada").nodes())
    page.button("Drain n2").click()
    asked.get_by_role("button", name="Drain it").click()
    expect(page.said).to_have_text("n2 is drained: nothing new starts there")
    expect(page.row("Nodes", "n2")).to_contain_text("drained")
    waiting = cluster.waits("danielle", 6)
    page.button("Undo").click()
    expect(page.button("Drain n2")).to_be_visible()
    cluster.stop("dave", number)
    until(lambda: cluster.state(waiting) == "starting", "n2 takes new work again")


def gpu_node(name: str, state: str = "idle", **fields: Any) -> Node:
    return Node(name=name, kind="cuda", address=name, slots=4, devices=("A100",) * 4, pool="gpu", state=state, **fields)


def test_nodes_of_all_pools_have_their_state_and_reason_and_a_suspect_one_is_trusted_again(tmp_path, browser):
    gpu = [gpu_node("g1"), gpu_node("g2", "allocated"), gpu_node("g3", "down*", healthy=False, reason="Not responding")]
    cluster = Cluster(tmp_path, {"gpu": gpu})
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        number = cluster.trains("dave", 4, pool="gpu")
        cluster.lose(number, "gpu", 2)
        page = ClusterPage(context).open(f"{cluster.served.url}/#token=ada")
        suspect = page.row("Nodes", "g1")
        expect(suspect).to_contain_text("suspect idle")
        expect(suspect).to_contain_text("2 attempts were lost there within an hour: its launcher vanished")
        expect(page.row("Nodes", "g3")).to_contain_text("does not answer down*Not responding")
        expect(page.row("Nodes", "n1")).to_contain_text("ready")
        page.shot("nodes-of-two-pools")
        page.button("Trust g1").click()
        expect(page.said).to_have_text("g1 is trusted again: new work starts there")
        expect(suspect).to_contain_text("ready")
        assert not page.errors
    finally:
        context.close()
        cluster.close()


def test_the_queue_is_put_in_another_order_by_keyboard(opened, cluster):
    cluster.trains("dave", 8)
    first, second = cluster.waits("danielle", 6, "first"), cluster.waits("danielle", 6, "second")
    page = opened("ada")
    rows = page.table("Queue").locator("tbody").get_by_role("row")
    expect(rows.nth(0)).to_contain_text(f"#{first} first")
    page.button(f"Move #{second} to the front").focus()
    page.page.keyboard.press("Enter")
    expect(rows.nth(0)).to_contain_text(f"#{second} second")
    expect(page.number(f"Priority of #{second}")).to_have_text("first")
    page.button("Undo").click()
    expect(rows.nth(0)).to_contain_text(f"#{first} first")
    page.type(f"Priority of #{second}", "7")
    expect(page.said).to_have_text(f"Priority of #{second}: 7, it was 0")
    expect(rows.nth(0)).to_contain_text(f"#{second} second")


def test_who_is_no_admin_sees_what_is_theirs_and_changes_nothing_else(opened, cluster):
    running, waiting = cluster.trains("dave", 8, "dave's secret"), cluster.waits("eve", 6, "mine")
    page = opened("eve")
    expect(page.page.get_by_role("navigation", name="Views")).to_have_text("ClusterModels")
    expect(page.page.get_by_role("article", name="You")).to_contain_text("0 slots in use")
    expect(page.row("Your experiments", f"#{waiting} mine")).to_contain_text("queued")
    expect(page.row("Nodes", "n2")).to_contain_text("a user of vision, 8 slots")
    other = cluster.waits("danielle", 7, "danielle's secret")
    expect(page.row("Queue", "a user of vision")).to_be_visible()
    body = page.page.locator("body")
    for secret in (f"#{running}", f"#{other}", "dave", "danielle"):
        expect(body).not_to_contain_text(secret)
    expect(page.page.get_by_role("button", name=re.compile("Drain|front|Limit|Guarantee"))).to_have_count(0)
    page.page.goto(f"{cluster.served.url}/#accounts")
    expect(page.heading("Your use")).to_be_visible()
    page.type(f"Priority of #{waiting}", "7")
    expect(page.alert).to_contain_text("you may request 0 at most")
    page.page.keyboard.press("Escape")
    headers = {"Authorization": "Bearer eve"}
    calls = [
        ("PUT", "accounts/user/eve/quota"),
        ("DELETE", "accounts/group/vision/quota"),
        ("POST", "nodes/n1/drain"),
        ("POST", f"queue/{waiting}/first"),
        ("GET", "audit"),
    ]
    for method, path in calls:
        url = f"{cluster.served.url}/api/{path}"
        answer = httpx.request(method, url, json={}, headers=headers, timeout=60, trust_env=False)
        assert answer.status_code == 403, (method, path, answer.text)


def test_a_user_sees_the_largest_experiments_and_a_warning_before_the_disk_is_full(opened, cluster, monkeypatch):
    monkeypatch.setattr(disk, "nearly_full", lambda free, size: nearly_full(size // 20, size))
    number = cluster.trains("eve", 1, "large")
    kept = cluster.served.home / "checkpoints" / str(number) / "1" / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"x" * 3_200_000)
    page = opened("eve")
    expect(page.alert).to_contain_text("The disk is nearly full, 5% is free: daylight delete and daylight gc make room")
    row = page.row("Largest experiments", f"#{number} large")
    expect(row).to_contain_text("3.2 MB")
    expect(row).to_contain_text("checkpoints 3.2 MB")
    expect(page.page.get_by_role("article", name="Disk")).to_contain_text("3.2 MB of yours")
    page.shot("service-page-disk")


def test_an_experiment_opens_from_its_row_with_the_view_of_jupyterlab_and_is_stopped_there(opened, cluster):
    number = cluster.trains("dave", 4)
    cluster.reports("dave", number, 0.5, 0.25)
    page = opened("dave")
    page.row("Your experiments", f"#{number} digits").get_by_role("link").press("Enter")
    view = page.experiment(number)
    view.until_state("running")
    expect(page.page).to_have_url(f"{cluster.served.url}/experiments/{number}")
    expect(page.page).to_have_title(f"#{number} digits – Daylight")
    expect(view.root).to_contain_text("loss 0.25 best")
    expect(view.curve).to_have_count(1)
    view.open_log()
    expect(view.log).to_contain_text("world")
    view.button("Stop").press("Enter")
    view.question.get_by_role("button", name="Stop it").press("Enter")
    view.until_state("stopping", "stopped")
    cluster.stop("dave", number)
    view.until_state("stopped")  # which nobody has told it: it looks by itself
    page.page.get_by_role("link", name="Cluster page").click()
    expect(page.heading("Your use")).to_be_visible()


def test_an_admin_opens_a_search_of_a_user_from_where_it_runs_and_stops_it(opened, cluster, monkeypatch):
    monkeypatch.setattr(ends, "STOP_GRACE_S", 0.1)  # the gangs of this engine do not hear that they are to stop
    number = search(cluster.client("dave"), trials=4, parallel=2)
    begun(cluster.client("dave"), number, 2)
    for trial, value in ((1, 0.5), (2, 0.25)):
        trained(cluster.served, cluster.client("dave"), number, trial, value)
    page = opened("ada")
    page.row("Nodes", f"#{number}").get_by_role("link").first.click()
    view = page.experiment(number)
    expect(view.root.get_by_role("table", name="Trials")).to_contain_text("0.25")
    for tab in ("Parameters", "Pairs"):  # with colours, which the page's policy allows only by a script
        view.root.get_by_role("tab", name=tab).click()
        page.shot(f"experiment-{tab.lower()}")
    view.button("Stop").click()
    view.question.get_by_role("button", name="Stop it").click()
    view.until_state("stopping", "stopped")
    assert cluster.client("ada").audit()[0].on == f"#{number}"
    cluster.stop("dave", number)


def test_an_experiment_that_one_may_not_see_is_as_one_that_does_not_exist(opened, cluster):
    number = cluster.trains("dave", 4)
    page = opened("eve")
    said = []
    for each in (number, 999_999):
        page.page.goto(f"{cluster.served.url}/experiments/{each}")
        expect(page.alert).to_contain_text("or it is an experiment that you may not see")
        expect(page.page.get_by_role("article")).to_have_count(0)
        said.append(page.page.locator(".dl-page").inner_text().replace(f"#{each}", "#"))
    assert said[0] == said[1]
    page.page.get_by_role("link", name="Open the cluster page").press("Enter")
    expect(page.heading("Your use")).to_be_visible()


def test_the_address_of_an_experiment_alone_signs_nobody_in(browser, cluster):
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{cluster.served.url}/experiments/12")
        expect(page.get_by_role("alert")).to_contain_text("daylight open 12")
    finally:
        context.close()


def test_the_last_numbers_stay_greyed_while_nothing_answers(opened, cluster):
    cluster.trains("dave", 8)
    page = opened("ada")
    expect(page.row("Nodes", "n2")).to_contain_text("8 of 8 slots")
    page.page.context.set_offline(True)
    expect(page.alert).to_contain_text(re.compile(r"Nothing answers here.*These numbers are those of \d\d:"))
    expect(page.page.get_by_role("main")).to_have_attribute("data-stale", "true")
    expect(page.row("Nodes", "n2")).to_contain_text("8 of 8 slots")
    page.page.context.set_offline(False)
    expect(page.alert).to_have_count(0)
    expect(page.page.get_by_role("main")).to_have_attribute("data-stale", "false")


def test_a_thousand_users_are_searched_and_turned_over(opened, cluster):
    cluster.give({**MEMBERS, **{f"u{number}": ("crowd",) for number in range(1, 1001)}})
    page = opened("ada").go("Users and groups")
    rows = page.table("Users and groups").locator("tbody").get_by_role("row")
    expect(rows).to_have_count(50)
    page.button("Users").click()
    while page.button("Next").is_enabled():
        page.button("Next").click()
    expect(rows.last).to_contain_text("u1000")
    page.page.get_by_role("searchbox", name="Search users and groups").fill("u99")
    expect(rows).to_have_count(11)  # and u990 to u999
    page.type("Weight of u995", "3")
    page.button("Changed here").click()
    expect(rows).to_have_count(1)
    cluster.give(MEMBERS)


def test_use_is_drawn_against_the_limit(opened, cluster):
    cluster.trains("dave", 4)
    page = opened("ada").go("Users and groups")
    page.button("vision").click()
    for span in ("7 d", "1 d", "30 d"):
        page.button(span).click()
        expect(page.button(span)).to_have_attribute("aria-pressed", "true")
        expect(page.page.get_by_role("img", name=re.compile("at most; the limit is 10"))).to_be_visible()
    page.shot("cluster-use")


def test_models_are_shown_and_their_aliases_moved_by_those_who_may(tmp_path, browser):
    cluster = Cluster(tmp_path)
    context = browser.new_context(viewport={"width": 1400, "height": 900}, bypass_csp=True)  # for axe's script alone
    try:
        cluster.trains("dave", 4)
        dave, page = cluster.client("dave"), ClusterPage(context)
        page.open(f"{cluster.served.url}/#token=dave").page.get_by_role("link", name="Models", exact=True).click()
        models = page.page.get_by_role("article", name="Models")
        expect(models).to_contain_text("daylight register 12 --as memes")

        for step, loss in ((10, 0.5), (20, 0.25)):
            commit(cluster.served.home, step, loss=loss)
            dave.register(1, 1, f"{step}-1", "memes", f"after step {step}")
        row = page.row("Models", "memes")
        expect(row).to_contain_text("loss 0.25", timeout=LATE)
        version = page.row("Versions", "after step 10")
        for text in ("#1", "step 10", "0.5", "dave", "today"):
            expect(version).to_contain_text(text)

        models.get_by_label("Alias", exact=True).fill("production")
        models.get_by_label("to version").select_option("1")
        models.get_by_label("Why").fill("the first that we trust")
        models.get_by_role("button", name="Set", exact=True).click()
        expect(models.get_by_role("status")).to_have_text("production is version 1")
        expect(version).to_contain_text("production")
        change = page.row("Changes", "production unset -> 1")
        expect(change).to_contain_text("the first that we trust")
        assert dave.model("memes").aliases == {"production": 1}

        held: list[Route] = []  # until then the page knows nothing of a move elsewhere
        page.page.route("**/api/models", lambda route: held.append(route))
        dave.change_model("memes", ModelEdit(act="set", alias="production", version=2))
        models.get_by_role("button", name="Unset").click()
        expect(models.get_by_role("alert").last).to_have_text("memes@production is 2, not 1: someone has moved it")
        page.page.unroute("**/api/models")  # which lets what is held go on
        expect(row).to_contain_text("production 2", timeout=LATE)
        models.get_by_role("button", name="Protect", exact=True).click()
        expect(models.get_by_role("status")).to_have_text("production is version 2, protected")
        models.get_by_role("button", name="Unset").click()
        expect(models.get_by_role("alert").last).to_contain_text("memes@production is protected: only admins move it")
        page.page.add_script_tag(path=AXE)
        for scheme, width in ((scheme, width) for scheme in ("light", "dark") for width in (1400, 900, 390)):
            page.page.emulate_media(color_scheme=scheme)
            page.page.set_viewport_size({"width": width, "height": 900})
            page.shot(f"models-{scheme}-{width}")
            found = page.page.evaluate(RUN, [".dl-page"])
            assert not found, "\n".join(found)
            assert page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
        models.get_by_role("button", name="#1").first.click()
        page.experiment(1)

        other = ClusterPage(context)
        other.page.goto(f"{cluster.served.url}/models#token=danielle")
        expect(other.row("Models", "dave/memes")).to_contain_text("production 2")
        expect(other.page.get_by_role("button", name="Set", exact=True)).to_have_count(0)
        assert not [*page.errors, *other.errors]
    finally:
        context.close()
        cluster.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_by_all_and_has_room_on_a_phone(opened, cluster, scheme):
    number = cluster.trains("dave", 8)
    cluster.reports("dave", number, 0.5, 0.25)
    cluster.waits("danielle", 6)
    cluster.waits("eve", 6, "<b>bold</b>" + "very-long" * 9)
    cluster.client("ada").set_quota("user", "dave", {"limit": 4})
    for name, viewport in (("wide", {"width": 1600, "height": 900}), ("narrow", NARROW)):
        page = opened("ada", viewport=viewport, color_scheme=scheme, bypass_csp=True)  # for axe's script alone
        page.page.add_script_tag(path=AXE)
        for view, tables in VIEWS.items():
            if view != "Cluster":
                page.go(view)
            page.filled(*tables)
            page.shot(f"cluster-{scheme}-{name}-{view.split()[0].lower()}")
            found = page.page.evaluate(RUN, [".dl-page"])
            assert not found, "\n".join(found)
            assert page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (name, view)
        page.page.goto(f"{cluster.served.url}/experiments/{number}")
        expect(page.experiment(number).curve).to_be_visible()
        page.page.add_script_tag(path=AXE)
        page.shot(f"experiment-{scheme}-{name}")
        found = page.page.evaluate(RUN, [".dl-page"])
        assert not found, "\n".join(found)
        assert page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name


def test_every_control_is_reached_by_the_tab_key(opened, cluster):
    cluster.trains("dave", 8)
    cluster.waits("danielle", 6)
    cluster.client("ada").set_quota("user", "dave", {"limit": 8})
    page = opened("ada")
    for view, tables in VIEWS.items():
        if view != "Cluster":
            page.go(view)
        page.filled(*tables)
        page.page.evaluate("document.activeElement.blur()")
        controls = page.page.locator("main :is(button:enabled, input, a)").count()
        seen = set()
        for _ in range(controls + 10):
            page.page.keyboard.press("Tab")
            seen.add(page.page.evaluate("[...document.querySelectorAll('main *')].indexOf(document.activeElement)"))
            assert page.page.evaluate(SEEN), "what has the focus is seen"
        assert len(seen - {-1}) == controls, view
