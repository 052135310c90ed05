"""Test who may call each route: owner, group member, other user, admin, and a stolen attempt's token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kernel_backend.api import stream
from kernel_backend.api.cluster_page import PAGES
from kernel_backend.api.routes import ROUTES
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.errors import Conflict, Forbidden, NotFound
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.register.records import ModelEdit
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Choices, Parameter, Space
from kernel_backend.model.webhooks.rules import ADMIN_S, HostRules
from kernel_backend.service.outbox import sender
from kernel_backend.service.outbox.config import OutboxConfig
from tests.api.committed import commit
from tests.api.people import PEOPLE, FakeHub
from tests.api.served import Served, StillEngine, archive, submit, token_of
from tests.api.test_every_route import EXAMPLES
from tests.support.receivers import Receiver
from tests.support.world import until

HTTP = httpx.Client(timeout=120, trust_env=False)
ONE = "/api/experiments/{number}"
KEPT = f"{ONE}/checkpoints/{{trial}}/{{checkpoint}}"
# Whose a route is. `looks`: the owner, their group, and admins; others are told that there is no such experiment.
# `changes`: the owner and admins; the group is forbidden to. `all`: everybody, for themselves. `admins`: no one else.
# `orders`: admins, of what they see.
# `attempts`, `probes`, `holders`: no person at all.
WHOSE = {
    "looks": [
        *(
            f"GET {ONE}{what}"
            for what in (
                "",
                "/diff?other=1",
                "/reports",
                "/facts",
                "/curves",
                "/times",
                "/utilisation",
                "/logs",
                "/checkpoints",
                "/usage",
                "/export.csv",
            )
        ),
        *(f"GET {ONE}{what}" for what in ("/search", "/search/curves", "/search/importance", "/artifacts", "/source")),
        *(f"GET {ONE}{what}" for what in ("/environment", "/snapshot.zip", "/picture.png")),
        f"GET {KEPT}",
        f"GET {KEPT}/parts/{{part}}",
        f"GET {KEPT}/files.tar",
        f"POST {KEPT}/verify",
        f"GET {ONE}/trials/{{trial}}/artifacts/{{artifact}}",
        f"POST {ONE}/rerun",
        f"POST {ONE}/verify",
    ],
    "changes": [
        *(f"POST {ONE}/{verb}" for verb in ("label", "pause", "resume", "move", "extend", "trace")),
        *(f"POST {ONE}/{verb}" for verb in ("delete", "undelete")),
        *(f"POST {ONE}/trials/{{trial}}/{verb}" for verb in ("promote", "prune")),
        f"DELETE {KEPT}",
        f"POST {KEPT}/pin",
        f"POST {KEPT}/unpin",
        f"POST {KEPT}/register",
        f"POST {ONE}/stop",
        "POST /api/queue/{number}/priority",
    ],
    "orders": ["POST /api/queue/{number}/first"],
    "all": [
        *(f"GET /api/{what}" for what in ("experiments", "history", "stream", "nodes", "health")),
        *(f"GET /api/{what}" for what in ("openapi.json", "search/methods")),
        *(f"GET /api/{what}" for what in ("me", "accounts", "queue", "pools", "disk", "usage", "usage.csv")),
        "GET /api/accounts/{kind}/{name}/use",  # of others there is none: test_sharing.py
        "POST /api/experiments",
        "POST /api/gc",
        "GET /api/experiments/ended",
        "GET /api/experiments/table",
        "GET /api/webhooks",
        "POST /api/webhooks",
        "DELETE /api/webhooks/{number}",  # of others there are none: test_webhooks.py
        "POST /api/webhooks/{number}/test",
        "GET /api/models",
        "GET /api/models/{name}",  # of others there are none: below
        "POST /api/models/{name}",
        "HEAD /api/snapshots/{id}",
        "PUT /api/snapshots/{id}",
    ],
    "admins": [
        "GET /metrics",
        "GET /api/audit",
        *(f"{method} /api/accounts/{{kind}}/{{name}}/quota" for method in ("PUT", "DELETE")),
        *(f"POST /api/nodes/{{name}}/{verb}" for verb in ("drain", "undrain")),
        *(f"{method} /api/pools/{{name}}" for method in ("PUT", "DELETE")),
        "POST /api/pools/{name}/check",
    ],
    "attempts": [
        *(f"POST /api/attempts/{{key}}/{name}" for name in ("records", "join", "nodes", "artifacts")),
        *(f"GET /api/attempts/{{key}}/{name}" for name in ("job.json", "snapshot.zip", "environment.json")),
        "GET /api/attempts/{key}/wheels/{id}",
        *(f"PUT /api/attempts/{{key}}/{name}" for name in ("files/{file}", "artifacts/{digest}")),
    ],
    "probes": ["POST /api/pool-checks/{check}"],
    "holders": ["POST /api/allocations/{allocation}"],
}
BODIES = {
    "rerun": {"trust": "dave"},
    "experiments/1/verify": {"trust": "dave"},
    "extend": {"trials": 3},
    "label": {"name": "digits"},
    "move": {"pool": "local"},
    "trace": {"steps": 3},
    "quota": {"limit": 9},
    "priority": {"priority": -1},
    "pools/ada": {"engine": "slurm"},
    "register": {"name": "memes"},
    "models/ada": {"act": "protect", "alias": "production"},
}
# Pages that a service serves beside its routes, and what they show to a user who has not signed in to a hub.
NOT_SIGNED_IN = {
    "": "a redirect to the next",
    "/": "nothing: the hub's sign-in",
    r"/confirm/([0-9]{1,9})-([A-Za-z0-9_-]{43})": "what a link in a mail confirms, by the secret in it: test_mail.py",
    "/models": "nothing: the hub's sign-in",
    r"/experiments/[0-9]{1,9}": "nothing, whatever the number: the hub's sign-in",
    r"/static/((?:main|models|experiment|part)-[A-Z0-9]+\.(?:js|css))": "the pages' program",
}
SERVED = [f"{method} {route.path}" for route in ROUTES for method in route.operations]
CALLS = {call.partition("?")[0]: (call, whose) for whose, calls in WHOSE.items() for call in calls}


@pytest.fixture(scope="module")
def hub() -> FakeHub:
    return FakeHub()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Iterator[Served]:
    """Provide experiment #1 of dave, in the group vision."""
    served = Served(tmp_path_factory.mktemp("people"), StillEngine(), identity=hub)
    dave = served.client("dave")
    submit(dave, "digits")
    token_of(served, AttemptId(1, 1, 1))
    dave.close()
    yield served
    served.stop()


@pytest.fixture
def client(served: Served) -> Iterator[dict[str, Client]]:
    made = {name: served.client(name, patience=5) for name in ("dave", "danielle", "eve", "ada", "guest")}
    yield made
    for each in made.values():
        each.close()


def ask(served: Served, token: str, call: str) -> httpx.Response:
    method, path = call.format(**EXAMPLES).split(" ")
    body = next((body for end, body in BODIES.items() if path.endswith(f"/{end}")), None)
    return HTTP.request(method, served.url + path, headers={"Authorization": f"Bearer {token}"}, json=body)


def outcome(answer: httpx.Response) -> str:
    """Return `let in`, whatever the result of a request, else the class of the error by which it was refused."""
    media = answer.headers.get("Content-Type", "")
    said = answer.json().get("message", "") if answer.content and media.startswith("application/json") else ""
    if answer.status_code == 404 and "there is no experiment #1" in said:
        return "there is no such experiment"
    return {401: "unknown", 403: "forbidden"}.get(answer.status_code, "let in")


def test_it_is_written_down_whose_each_route_is() -> None:
    assert [call for call in SERVED if call not in CALLS] == []
    assert {path for path, _ in PAGES} == set(NOT_SIGNED_IN)


def test_a_model_is_its_users_or_its_groups_and_seen_by_the_group_of_its_experiments(
    served: Served, client: dict[str, Client]
) -> None:
    commit(served.home, 10, loss=0.5)
    dave, danielle, eve, ada, guest = (client[name] for name in ("dave", "danielle", "eve", "ada", "guest"))
    production = ModelEdit(act="set", alias="production", version=1, note="it is good")

    def names(of: Client) -> list[str]:
        return [f"{each.owner}/{each.name}" for each in of.models()]

    assert dave.register(1, 1, "10-1", "memes").version.title == "memes 1"
    for other in (danielle, guest):  # who may look at the experiment
        assert other.model_version("dave/memes").reference == "1.1/10-1"
        with pytest.raises(Forbidden, match=r"#1 is dave's|custom:daylight:submit"):
            other.register(1, 1, "10-1", "memes")
    with pytest.raises(Forbidden, match="dave/memes is dave's: you may look at it and not change it"):
        danielle.change_model("dave/memes", production)
    with pytest.raises(NotFound, match="there is no model dave/memes: daylight models lists them"):
        eve.change_model("dave/memes", production)
    assert dave.register(1, 1, "10-1", "vision/memes").version.title == "vision/memes 1"
    with pytest.raises(Forbidden, match="speech/memes is speech's"):
        dave.register(1, 1, "10-1", "speech/memes")
    with pytest.raises(Conflict, match=r"the group wrong see all .*#1 counts for vision: register it under another"):
        dave.register(1, 1, "10-1", "wrong/memes")
    assert danielle.change_model("vision/memes", production).aliases == {"production": 1}
    assert danielle.change_model("vision/memes", ModelEdit(act="protect", alias="production")).protected
    for refused in (dave, danielle):
        with pytest.raises(Forbidden, match="memes@production is protected: only admins"):
            refused.change_model("vision/memes", ModelEdit(act="unset", alias="production"))
    with pytest.raises(Forbidden, match="custom:daylight:submit"):
        guest.change_model("vision/memes", production)
    assert names(dave) == names(danielle) == names(ada) == ["dave/memes", "vision/memes"]
    assert names(eve) == []
    assert ada.change_model("vision/memes", ModelEdit(act="unset", alias="production")).aliases == {}
    assert [(each.who, each.act, each.detail) for each in ada.audit(search="vision/memes")] == [
        ("ada", "unset model", "production 1 -> unset"),
        ("danielle", "protect model", "production"),
        ("danielle", "set model", "production unset -> 1"),
        ("dave", "register model", "1.1/10-1"),
    ]
    assert ada.register(1, 1, "10-1", "memes").version.title == "ada/memes 1"
    assert [each.detail for each in ada.audit(search="register #1")] == ["ada/memes, of dave"]
    taken_back = ModelEdit(act="remove", version=1)  # so that #1 may be deleted
    with pytest.raises(Forbidden, match="custom:daylight:submit"):
        guest.change_model("vision/memes", taken_back)
    assert danielle.change_model("vision/memes", taken_back).versions == ()
    assert ada.change_model("memes", taken_back).versions == ()
    served.identity.people["dave"] = PEOPLE["dave"].model_copy(update={"submits": False})
    try:
        with pytest.raises(Forbidden, match="custom:daylight:submit"):
            dave.change_model("memes", production)
        assert dave.change_model("memes", taken_back).versions == ()
    finally:
        served.identity.people["dave"] = PEOPLE["dave"]
    dave.pin(1, 1, "10-1", pinned=False)


EXPECTED = {
    "looks": ("let in", "let in", "there is no such experiment", "let in"),
    "changes": ("let in", "forbidden", "there is no such experiment", "let in"),
    "orders": ("forbidden", "forbidden", "there is no such experiment", "let in"),
    "all": ("let in",) * 4,
    "admins": ("forbidden", "forbidden", "forbidden", "let in"),
    "attempts": ("unknown",) * 4,
    "probes": ("unknown",) * 4,
    "holders": ("unknown",) * 4,
}


# Before what others may do: stopped by its owner, the attempt ends some time later, and takes no more deliveries.
@pytest.mark.parametrize("called", SERVED)
def test_an_attempts_token_opens_nothing_but_its_own_delivery(served: Served, called: str) -> None:
    stolen = served.engine.tokens[AttemptId(1, 1, 1)]
    answer = ask(served, stolen, CALLS[called][0])
    if "/api/attempts/" in called:
        assert answer.status_code == (400 if called.startswith("POST") else 404)  # let in: no body, no staged files
        other = ask(served, stolen, CALLS[called][0].replace("{key}", "1.1-2"))
        assert other.status_code == 401
    else:
        assert answer.status_code == 401


# What changes an experiment comes last, and from those first who may not: #1 is there for all of them.
@pytest.mark.parametrize(
    "called", sorted(SERVED, key=lambda called: list(CALLS).index(called) if called in CALLS else 0)
)
def test_a_route_lets_in_whom_it_is_for(served: Served, called: str) -> None:
    call, whose = CALLS[called]
    for name, expected in reversed(list(zip(("dave", "danielle", "eve", "ada"), EXPECTED[whose], strict=True))):
        if name == "ada" and whose == "changes":
            continue  # below, where what she does to others' is looked at
        assert outcome(ask(served, name, call)) == expected, (name, call)


def test_a_foreign_experiment_is_nowhere(client: dict[str, Client]) -> None:
    mine = submit(client["eve"], "speech").experiment.number
    with pytest.raises(NotFound, match="there is no experiment #1"):
        client["eve"].diff(mine, 1)
    with pytest.raises(NotFound, match="there is no experiment #1"):
        client["eve"].collect(1)
    with pytest.raises(Forbidden, match="dave's"):
        client["danielle"].collect(1)
    shown = {experiment.experiment.number for experiment in client["eve"].experiments(group="")}
    assert 1 not in shown
    assert client["eve"].experiments(owner="dave") == client["eve"].experiments(group="vision") == []
    assert [each.number for each in client["eve"].history()] == [mine]


def test_one_lists_ones_own_or_all_of_ones_group(client: dict[str, Client]) -> None:
    def owners(name: str, **asked: Any) -> set[str]:
        return {each.experiment.owner for each in client[name].experiments(**asked)}

    submit(client["danielle"], "shared")
    assert owners("danielle") == {"danielle"}
    assert owners("danielle", group="") == owners("danielle", group="vision") == {"dave", "danielle"}
    assert owners("danielle", owner="dave") == {"dave"}
    assert owners("ada") <= {"ada"}
    assert owners("ada", group="") >= {"dave", "danielle"}


def test_a_list_of_a_group_says_whose_each_is(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAYLIGHT_URL", served.url)
    monkeypatch.setenv("DAYLIGHT_TOKEN", "danielle")
    assert main(["list", "--group", "vision"]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head[:4] == ["id", "owner", "group", "name"]
    assert ["1", "dave", "vision", "digits"] in [row[:4] for row in rows]
    assert main(["list", "--owner", "eve"]) == 0
    assert capsys.readouterr().out == "no experiments that you may see\n"


def test_anothers_code_runs_as_oneself_only_by_a_word_that_names_whose_it_is(client: dict[str, Client]) -> None:
    for asked in (None, Rerun(trust="eve"), Rerun(trust="danielle")):
        for again in (client["danielle"].rerun, client["danielle"].retrain, client["ada"].rerun):
            with pytest.raises(Forbidden, match=r"is dave's, and its code would run as you.*--trust dave"):
                again(1, asked)
    assert client["danielle"].rerun(1, Rerun(trust="dave")).experiment.owner == "danielle"


def test_only_who_may_change_a_training_gives_it_values_by_an_evaluation(client: dict[str, Client]) -> None:
    id, data = archive("def evaluate_data(): return 'test_data'\n", contract=CONTRACT)
    follows = Search(method="checkpoints", options={"follow": True})
    config = Config(form="evaluation", batch_size=256, weights_from="1", search=follows)
    for name, refusal, why in (("danielle", Forbidden, "dave's"), ("eve", NotFound, "no experiment #1")):
        client[name].upload_snapshot(id, data)
        with pytest.raises(refusal, match=why):
            client[name].submit(Submission(snapshot=id, config=config, python="/usr/bin/python3", cwd="/"))


def test_who_only_looks_has_nothing_trained_and_stores_nothing(client: dict[str, Client]) -> None:
    id, data = archive()
    with pytest.raises(Forbidden, match="custom:daylight:submit"):
        submit(client["guest"])
    with pytest.raises(Forbidden, match="custom:daylight:submit"):
        client["guest"].rerun(1)
    assert client["guest"].experiment(1).experiment.owner == "dave"
    client["dave"].upload_snapshot(id, data)


def test_who_has_lost_the_right_to_submit_may_pause_and_stop_and_not_go_on(
    served: Served, client: dict[str, Client]
) -> None:
    number = submit(client["danielle"], "once allowed").experiment.number
    people, danielle = served.identity.people, PEOPLE["danielle"]
    people["danielle"] = danielle.model_copy(update={"submits": False})
    try:
        client["danielle"].pause(number)
        with pytest.raises(Forbidden, match="custom:daylight:submit"):
            client["danielle"].resume(number)
        client["danielle"].set_priority(number, -3)
        with pytest.raises(Forbidden, match="custom:daylight:submit"):
            client["danielle"].set_priority(number, 0)
        client["danielle"].stop(number)
    finally:
        people["danielle"] = danielle


def test_who_has_left_a_group_may_pause_and_stop_and_not_go_on_at_its_cost(
    served: Served, client: dict[str, Client]
) -> None:
    id, data = archive()
    client["danielle"].upload_snapshot(id, data)
    space = Space(parameters=(Parameter(name="lr", domain=Choices(values=[0.1, 0.2])),))
    config = Config(search=Search(method="random", trials=2))
    asked = Submission(snapshot=id, config=config, space=space, python="/usr/bin/python3", cwd="/")
    number = client["danielle"].submit(asked).experiment.number
    people, danielle = served.identity.people, PEOPLE["danielle"]
    people["danielle"] = danielle.model_copy(update={"groups": ("speech",)})
    try:
        client["danielle"].pause(number)
        for body, call in (
            (None, "resume"),
            ({"pool": "local"}, "move"),
            ({"trials": 3}, "extend"),
            (None, "trials/1/promote"),
        ):
            headers = {"Authorization": "Bearer danielle"}
            answer = HTTP.post(f"{served.url}/api/experiments/{number}/{call}", headers=headers, json=body)
            assert (call, answer.status_code) == (call, 403)
            assert "counts for the group vision, which you are not in any more" in answer.json()["message"]
        client["danielle"].stop(number)
    finally:
        people["danielle"] = danielle


# Verbs by which users end, free or describe what is theirs, and those by which they use a right.
TAKE_BACK = [
    *(f"POST {ONE}/{verb}" for verb in ("label", "pause", "trials/{trial}/prune", "stop", "delete", "undelete")),
    f"POST {KEPT}/unpin",
    f"DELETE {KEPT}",
    "POST /api/queue/{number}/priority",
    "POST /api/gc",
    "DELETE /api/webhooks/{number}",
]
USE = [
    *(f"POST {ONE}/{verb}" for verb in ("rerun", "verify", "resume", "move", "extend", "trials/{trial}/promote")),
    "POST /api/experiments",
    "PUT /api/snapshots/{id}",
    "POST /api/webhooks",
    "POST /api/webhooks/{number}/test",
    f"POST {KEPT}/register",
]
MODELS = ["POST /api/models/{name}"]  # moves an alias, or takes back a version that would keep an experiment
NEITHER = [f"POST {KEPT}/verify", f"POST {KEPT}/pin", f"POST {ONE}/trace"]  # to look closer, or to keep what is there


def test_it_is_written_down_which_verbs_take_back() -> None:
    of_users = [call for whose in ("looks", "changes", "all") for call in WHOSE[whose] if not call.startswith("GET ")]
    assert sorted([*TAKE_BACK, *USE, *MODELS, *NEITHER, "HEAD /api/snapshots/{id}"]) == sorted(of_users)


@pytest.mark.parametrize("withdrawn", ["submits", "the group", "slots and storage"])
def test_users_without_a_right_may_take_back_what_is_theirs(
    served: Served, client: dict[str, Client], withdrawn: str
) -> None:
    number = submit(client["danielle"], withdrawn).experiment.number
    hook = client["danielle"].add_webhook("http://127.0.0.1:9/").id
    people, danielle = served.identity.people, PEOPLE["danielle"]
    account = f"{served.url}/api/accounts/user/danielle/quota"
    if withdrawn == "slots and storage":
        none = {"limit": 0, "storage": 1}
        assert HTTP.put(account, headers={"Authorization": "Bearer ada"}, json=none).status_code == 200
    else:
        less = {"submits": {"submits": False}, "the group": {"groups": ("speech",)}}[withdrawn]
        people["danielle"] = danielle.model_copy(update=less)
    try:
        for call in TAKE_BACK:
            own = call.replace("{number}", str(hook if "webhooks" in call else number))
            answer = ask(served, "danielle", own)
            assert answer.status_code < 500
            assert outcome(answer) == "let in", (call, answer.text)
    finally:
        people["danielle"] = danielle
        HTTP.delete(account, headers={"Authorization": "Bearer ada"})


def test_who_has_lost_a_right_may_remove_webhooks_and_not_use_them(served: Served, client: dict[str, Client]) -> None:
    people = served.identity.people
    shared = client["ada"].add_webhook("http://127.0.0.1:9/", everyone=True).id
    own = client["danielle"].add_webhook("http://127.0.0.1:9/").id
    people["ada"] = Person(name="ada")
    people["danielle"] = PEOPLE["danielle"].model_copy(update={"submits": False})
    try:
        for name, id in (("ada", shared), ("danielle", own)):
            with pytest.raises(Forbidden):
                client[name].test_webhook(id)
            client[name].remove_webhook(id)
            assert client[name].webhooks() == []
    finally:
        people |= {name: PEOPLE[name] for name in ("ada", "danielle")}


def test_who_is_no_admin_any_more_is_not_told_of_everyones_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "LOOK_S", 0.02)
    monkeypatch.setattr(sender, "QUIET_S", 0.1)
    receiver, hub = Receiver(), FakeHub()
    rules = HostRules(hosts=("127.0.0.1",), inside=False)
    served = Served(tmp_path, StillEngine(), identity=hub, outbox=OutboxConfig(rules))
    store, ada = served.service._store, served.client("ada", patience=5)
    ada.add_webhook(receiver.url, ["submitted"], everyone=True)
    submit(served.client("dave"), "one")
    until(lambda: receiver.taken == [("experiment.submitted", 1)], "an admin is told")
    hub.people["ada"] = Person(name="ada")
    assert ada.webhooks()[0].unconfirmed == "", (
        "tokens may have fewer rights than their users: for a week that says nothing"
    )
    (stored,) = store.webhooks()
    store.change_webhook(stored, admin_at=stored.admin_at - ADMIN_S)
    submit(served.client("dave"), "two")
    submit(ada, "three")
    assert "waits until ada uses Daylight as an admin again" in ada.webhooks()[0].unconfirmed
    assert served.run(served.service._outbox._next(1, 0)) is None, "it is not sent"
    hub.people["ada"] = PEOPLE["ada"]
    monkeypatch.setattr("kernel_backend.service.verbs.webhooks.SEEN_S", -1.0)
    assert ada.webhooks()[0].unconfirmed == ""
    until(lambda: len(receiver.taken) == 3, "an admin gets what has waited")
    served.stop()
    receiver.stop()


def test_who_is_called_as_a_group_has_nothing_of_it(served: Served, client: dict[str, Client]) -> None:
    served.service.quotas.learn(Directory(members={"eve": ("speech",)}, groups={"vision": None, "speech": None}))
    served.identity.people["vision"] = Person(name="vision")
    squatter = served.client("vision", patience=5)
    with pytest.raises(Forbidden, match="there is a group vision, which you are not in"):
        submit(squatter, "squatted")
    assert squatter.experiments(group="vision") == []
    squatter.close()


def test_a_stream_carries_what_one_may_see(served: Served, client: dict[str, Client]) -> None:
    submit(client["eve"], "her own")

    def first(token: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return connect(f"ws://127.0.0.1:{served.port}/api/stream?after=0", additional_headers=headers, proxy=None)

    with first("danielle") as watching:
        assert '"experiment":1,' in str(watching.recv(20))
    with first("eve") as watching:
        assert '"experiment":1,' not in str(watching.recv(20))


@pytest.mark.parametrize("change", ["revoked", "barred", "left the group"])
def test_a_watcher_who_may_not_any_more_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setattr(stream, "LOOK_AGAIN_S", 0.05)
    hub = FakeHub()
    served = Served(tmp_path, StillEngine(), identity=hub)
    headers = {"Authorization": "Bearer danielle"}
    with connect(f"ws://127.0.0.1:{served.port}/api/stream", additional_headers=headers, proxy=None) as watching:
        if change == "revoked":
            del hub.people["danielle"]
        elif change == "barred":
            hub.barred.add("danielle")
        else:
            hub.people["danielle"] = Person(name="danielle")
        with pytest.raises(ConnectionClosed) as closed:
            watching.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == (1001 if change == "left the group" else 1008)
    served.stop()


def test_while_the_hub_is_away_whom_it_knew_may_look_and_not_change(
    served: Served, hub: FakeHub, client: dict[str, Client]
) -> None:
    assert client["danielle"].experiment(1)
    hub.away = True
    try:
        assert client["danielle"].experiment(1).experiment.owner == "dave"
        answer = ask(served, "danielle", "POST /api/experiments/1/rerun")
        assert answer.status_code == 503
        assert "the hub does not answer" in answer.json()["message"]
        assert ask(served, "nobody", "GET /api/nodes").status_code == 503
    finally:
        hub.away = False


def test_an_admin_ends_what_is_anothers(client: dict[str, Client]) -> None:
    number = submit(client["eve"], "endless").experiment.number
    client["ada"].stop(number)
    until(lambda: client["eve"].experiment(number).state in ("stopping", "stopped"), "it ends")
