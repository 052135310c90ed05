"""Test Daylight in a real JupyterHub: authentication, permissions, and the effects of the hub's end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from jupyter_ext.job.job import Job
from kernel_backend.errors import Forbidden, ImpossibleAsk, NotFound, Unauthenticated
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Rerun
from tests.hub.hub import MONITOR, PASSWORD, Hub
from tests.support.world import DEFINITION

FOREVER = f"%%dlsubmit --slots 1 --epochs 100000 --name endless pause=0.05\n{DEFINITION}"


@pytest.fixture(scope="module")
def submitted(hub: Hub) -> Iterator[int]:
    """Provide the number of a running training that dave has submitted from his notebook."""
    notebook = hub.notebook("dave")
    said = notebook.run("%load_ext daylight") + notebook.run(FOREVER)
    notebook.close()
    number = re.search(r"#(\d+)", said)
    assert number is not None, said
    hub.until(lambda: hub.client("dave").experiment(int(number[1])).state == "running", "it runs")
    yield int(number[1])
    hub.client("ada").stop(int(number[1]))


def test_a_stranger_is_refused_and_people_come_in_by_their_tokens(hub: Hub) -> None:
    assert hub.ask(None, "GET", "/api/nodes").status_code == 401
    for user in ("dave", "eve", "ada"):
        assert hub.ask(user, "GET", "/api/nodes").json()["nodes"][0]["slots"] == 4


def test_a_monitoring_service_of_the_hub_reads_the_numbers_and_nothing_else(hub: Hub, submitted: int) -> None:
    token = {"Authorization": f"Bearer {MONITOR}"}
    numbers = got(f"{hub.service}/metrics", headers=token)
    assert 'daylight_slots_used{group="vision",pool="local",use="training",user="dave"} 1.0' in numbers.text
    assert got(f"{hub.service}/api/experiments/{submitted}", headers=token).status_code == 404
    assert hub.ask("dave", "GET", "/metrics").status_code == 403
    assert hub.ask("ada", "GET", "/metrics").status_code == 200


def test_what_is_submitted_from_a_notebook_is_seen_by_the_group_and_changed_by_its_owner(
    hub: Hub, submitted: int
) -> None:
    experiment = hub.client("danielle").experiment(submitted).experiment
    assert (experiment.owner, experiment.group) == ("dave", "vision")
    with pytest.raises(Forbidden, match="dave's"):
        hub.client("danielle").stop(submitted)
    with pytest.raises(NotFound, match=f"there is no experiment #{submitted}"):
        hub.client("eve").stop(submitted)


def test_the_panel_of_a_notebook_server_shows_what_its_owner_may_see(hub: Hub, submitted: int) -> None:
    notebook = hub.notebook("dave")
    listed = notebook.get("/daylight/api/experiments").json()["experiments"]
    assert submitted in [each["experiment"]["number"] for each in listed]
    notebook.close()


def got(url: str, **request: Any) -> httpx.Response:
    """Return the answer to a GET without cookies."""
    return httpx.get(url, timeout=60, trust_env=False, **request)


def test_a_role_that_is_taken_away_and_a_token_that_is_revoked_open_nothing_soon_after(hub: Hub) -> None:
    made = hub.api("POST", "users/eve/tokens", note="to be revoked")
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert got(f"{hub.service}/api/nodes", headers=headers).status_code == 200
    hub.api("DELETE", f"users/eve/tokens/{made['id']}")
    hub.until(lambda: got(f"{hub.service}/api/nodes", headers=headers).status_code == 401, "refused")


def signed_in(hub: Hub, user: str, password: str) -> tuple[httpx.Client, httpx.Response]:
    """Sign a browser in as a user who opened the page; return the browser, and the last response."""
    browser = httpx.Client(follow_redirects=True, timeout=60, trust_env=False)
    form = browser.get(f"{hub.url}/services/daylight/")
    assert "/hub/login" in str(form.url)
    answers = {"username": user, "password": password, "_xsrf": browser.cookies.get("_xsrf", path="/hub/")}
    return browser, browser.post(str(form.url), data=answers)


def test_a_browser_signs_in_at_the_hub_and_its_cookie_alone_changes_nothing(hub: Hub) -> None:
    browser, page = signed_in(hub, "eve", PASSWORD)
    assert str(page.url) == f"{hub.url}/services/daylight/"  # and not the hub's
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    asked, xsrf = f"{hub.url}/services/daylight/api/gc", browser.cookies.get("_xsrf", path="/services/daylight/")
    dry = {"dry_run": True}
    script = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    assert browser.post(asked, json=dry).status_code == 401
    assert browser.post(asked, json=dry, headers={**script, "X-XSRFToken": "guessed"}).status_code == 401
    assert browser.post(asked, json=dry, headers={**script, "X-XSRFToken": str(xsrf)}).status_code == 200
    stream = browser.get(asked.replace("gc", "stream"), headers={"Sec-Fetch-Mode": "websocket"})
    assert stream.status_code == 401  # though it comes with the cookie
    foreign = browser.get(
        asked.replace("gc", "nodes"), headers={"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "cross-site"}
    )
    assert foreign.status_code == 401
    browser.close()


def test_the_api_answers_a_browser_without_a_session_with_json_and_no_redirect(hub: Hub) -> None:
    answer = got(f"{hub.url}/services/daylight/api/nodes")
    assert (answer.status_code, answer.json()["error"]) == (401, "Unauthenticated")


def test_a_state_that_another_browser_was_given_signs_nobody_in(hub: Hub) -> None:
    browser, _ = signed_in(hub, "eve", PASSWORD)
    start = got(f"{hub.url}/services/daylight/")
    state = re.search(r"state=([^&]+)", start.headers["Location"])
    assert state is not None
    callback = f"{hub.url}/services/daylight/oauth_callback?code=stolen&state={state[1]}"
    assert got(callback).status_code == 403
    browser.close()


def test_a_hub_that_is_killed_ends_no_training_and_its_successor_takes_over(hub: Hub, submitted: int) -> None:
    before = hub.running()
    assert before is not None
    step = hub.client("dave").experiment(submitted).trials[0].step
    hub.kill()
    dry = {"dry_run": True}
    hub.until(lambda: hub.ask("dave", "POST", "/api/gc", json=dry).status_code == 503, "nobody may change anything")
    assert hub.client("dave").experiment(submitted).state == "running"
    hub.until(lambda: hub.client("dave").experiment(submitted).trials[0].step > step, "it trains")
    hub.start()
    hub.until(lambda: (hub.running() or before).pid != before.pid, "another service has taken over")
    hub.until(lambda: hub.client("dave").experiment(submitted).state == "running", "it runs")
    assert hub.client("danielle").experiment(submitted).experiment.owner == "dave"


def test_a_token_that_nobody_has_is_nobodys(hub: Hub) -> None:
    with pytest.raises(Unauthenticated, match="that the hub gave you"):
        hub.with_token("nobody's").nodes()


def test_what_the_hub_gives_a_group_is_in_force_soon_after(hub: Hub) -> None:
    def limit() -> int | None:
        accounts = {each.name: each for each in hub.client("danielle").accounts() if each.kind == "group"}
        return accounts["vision"].quota.limit

    assert limit() == 3
    before = hub.api("GET", "groups/vision")["properties"]
    hub.api("PUT", "groups/vision/properties", daylight={"limit": 1})
    try:
        hub.until(lambda: limit() == 1, "the new limit is in force")
        with pytest.raises(ImpossibleAsk, match="group vision may have 1"):
            hub.client("danielle").rerun(1, Rerun(config={"slots": 2}, trust="dave"))
    finally:
        hub.api("PUT", "groups/vision/properties", **before)
    hub.until(lambda: limit() == 3, "the old limit is in force")


def test_a_groups_numbers_that_cannot_be_are_told_on_its_account(hub: Hub) -> None:
    (wrong,) = [each for each in hub.client("eve").accounts() if each.name == "wrong"]
    assert wrong.quota.guarantee == 1
    assert any("limit=-1" in warning for warning in wrong.warnings)


def test_people_are_as_the_hub_knows_them(hub: Hub) -> None:
    assert hub.client("dave").me().person == Person(name="dave", groups=("vision",))
    assert hub.client("ada").me().person == Person(name="ada", admin=True, monitors=True)
    assert {each.name for each in hub.client("ada").accounts()} >= {"dave", "danielle", "eve", "vision", "speech"}


def test_anothers_code_is_loaded_only_where_its_owner_is_trusted(hub: Hub, submitted: int) -> None:
    job = Job(submitted, hub.client("danielle"))
    with pytest.raises(Forbidden, match=r"dave's: its code would run in this process.*trust dave.*trust=True"):
        job.load()
    hub.until(job.checkpoints, "something is saved")
    assert not job.load(trust=True, wait=False).training


def test_an_admin_ends_what_is_anothers_and_it_is_written_down(hub: Hub, submitted: int) -> None:
    hub.client("ada").stop(submitted)
    hub.until(lambda: hub.client("dave").experiment(submitted).state == "stopped", "it ends")
    entry = hub.client("ada").audit()[0]
    assert (entry.who, entry.act, entry.on) == ("ada", "stop", f"#{submitted}")
    with pytest.raises(Forbidden):
        hub.client("dave").audit()
