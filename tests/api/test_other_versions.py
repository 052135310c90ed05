"""Test every route and verb between a client, a Jupyter server and a service of different versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import create_model

from kernel_backend import discovery
from kernel_backend.api.routes import ROUTES
from kernel_backend.client import Client
from kernel_backend.engines.allocations.callers import CallingHolders
from kernel_backend.engines.probing.exchange import ProbeExchange
from kernel_backend.errors import OtherVersion
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.checkpoints import GarbageRequest
from kernel_backend.model.cluster.accounts import Priority
from kernel_backend.model.cluster.pool_check import PoolCheck, PoolCheckRequest
from kernel_backend.model.cluster.pools import Move, PoolSettings
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Config, Keep, Submission
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.launch.holder import HolderEvent, HolderOrder, HolderOrders, HolderReport
from kernel_backend.model.launch.launch_spec import token_digest
from kernel_backend.model.launch.nodes import NodeOffer, NodeState
from kernel_backend.model.launch.probe import ProbeReport
from kernel_backend.model.launch.trace import TraceRequest
from kernel_backend.model.record import Record
from kernel_backend.model.register.records import ModelEdit, Registration
from kernel_backend.model.reports import ArtifactSaved, Delivery
from kernel_backend.model.versions import DEFAULTS, VERSION, at_defaults
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import Extension
from kernel_backend.model.webhooks.records import NewWebhook
from kernel_backend.routes.operations import Operation
from kernel_backend.spec.resume import Resumption
from kernel_backend.text.provenance import provenance_line
from tests.api.later import KEY, LATER, SEARCH, Later, told
from tests.api.served import SECOND, TOKEN, Served, archive, report, submit, token_of
from tests.support.world import until

NOWHERE = "http://127.0.0.1:9/"
VERBS: dict[str, Callable[[Client], Any]] = {
    "health": lambda client: client.health(),
    "experiments": lambda client: client.experiments(),
    "experiment": lambda client: client.experiment(1),
    "diff": lambda client: client.diff(1, SEARCH),
    "history": lambda client: client.history(),
    "reports": lambda client: client.reports(1),
    "facts": lambda client: client.facts(1),
    "curves": lambda client: client.curves(1),
    "times": lambda client: client.times(1),
    "spending": lambda client: client.spending(),
    "utilisation": lambda client: client.utilisation(1),
    "page": lambda client: client.page(1),
    "front": lambda client: client.front(SEARCH),
    "search": lambda client: client.search(SEARCH),
    "search_methods": lambda client: client.search_methods(),
    "trial_rows": lambda client: client.trial_rows(SEARCH),
    "search_curves": lambda client: client.search_curves(SEARCH),
    "importance": lambda client: client.importance(SEARCH),
    "logs": lambda client: client.logs(1),
    "checkpoints": lambda client: client.checkpoints(1),
    "artifacts": lambda client: client.artifacts(1),
    "artifact": lambda client: client.artifact(1, 1, "net"),
    "artifact_pieces": lambda client: b"".join(client.artifact_pieces(1, 1, "net")),
    "verify": lambda client: client.verify(1, 1, "10-1"),
    "pin": lambda client: client.pin(1, 1, "10-1"),
    "unpin": lambda client: client.pin(1, 1, "10-1", pinned=False),
    "manifest": lambda client: client.manifest(1, 1, "10-1"),
    "part": lambda client: b"".join(client.part(1, 1, "10-1", "model")),
    "archive": lambda client: client.archive(1),
    "collect": lambda client: client.collect(dry_run=True),
    "source": lambda client: client.source(1),
    "environment": lambda client: client.environment(1),
    "picture": lambda client: client.picture(1),
    "me": lambda client: client.me(),
    "accounts": lambda client: client.accounts(),
    "set_quota": lambda client: client.set_quota("user", client.me().person.name, {"weight": 2.0}),
    "clear_quota": lambda client: client.clear_quota("user", client.me().person.name),
    "usage": lambda client: client.usage("user", client.me().person.name),
    "queue": lambda client: client.queue(),
    "set_priority": lambda client: client.set_priority(SEARCH, 5),
    "put_first": lambda client: client.put_first(SEARCH),
    "drain": lambda client: client.drain("here"),
    "undrain": lambda client: client.undrain("here"),
    "pools": lambda client: client.pools(),
    "set_pool": lambda client: client.set_pool("second", SECOND),
    "remove_pool": lambda client: client.remove_pool("second"),
    "check_pool": lambda client: checked_pool(client),
    "audit": lambda client: client.audit(),
    "nodes": lambda client: client.nodes(),
    "ended": lambda client: client.ended(),
    "add_webhook": lambda client: client.add_webhook(NOWHERE),
    "webhooks": lambda client: client.webhooks(),
    "test_webhook": lambda client: client.test_webhook(1),
    "remove_webhook": lambda client: client.remove_webhook(1),
    "register": lambda client: client.register(1, 1, "30-1", "memes"),
    "change_model": lambda client: client.change_model("memes", ModelEdit(act="protect", alias="production")),
    "model": lambda client: client.model("memes"),
    "models": lambda client: client.models(),
    "model_version": lambda client: removed(client),
    "upload_snapshot": lambda client: client.upload_snapshot(*archive()),
    "submit": lambda client: submit(client),
    "submit_once": lambda client: submit(client),
    "rerun": lambda client: client.rerun(1),
    "retrain": lambda client: client.retrain(1),
    "promote": lambda client: client.promote(SEARCH, 1),
    "prune": lambda client: client.prune(SEARCH, 1),
    "extend": lambda client: client.extend(SEARCH, Extension(trials=30)),
    "disk": lambda client: client.disk(),
    "usage_of": lambda client: client.usage_of(1),
    "export": lambda client: client.export(1),
    "label": lambda client: client.label(1, LabelEdit(name="digits")),
    "trace": lambda client: client.trace(1, TraceRequest(steps=3)),
    "act": lambda client: client.act(1, "label", LabelEdit(name="digits")),
    "request": lambda client: client.request(Operation(Overview), "GET", "/api/experiments/1"),
    "watch": lambda client: list(islice(client.watch(experiment=1), 3)),
    "pause": lambda client: client.pause(1),
    "resume": lambda client: client.resume(1),
    "move": lambda client: client.move(1, "local"),
    "stop": lambda client: client.stop(1),
    "delete": lambda client: client.delete(1, 1, "20-1"),
    "delete_experiment": lambda client: deleted(client),
    "undelete": lambda client: client.undelete(1),
}
TOLD_BY_LAUNCHERS = {"deliver", "join", "node_state", "attempt_job", "attempt_snapshot", "stage_file"} | {
    "attempt_environment",
    "attempt_wheel",
    "keep_artifact",
    "stage_artifact",
    "probe_report",
    "holder_report",
}
NET = ArtifactSaved(name="net", size=5, digest="0" * 32, media="image/png", file="net.png", step=1)
# They may be newer: what is not known of them is ignored.
OF_LAUNCHERS = {
    Delivery,
    NodeOffer,
    NodeState,
    ArtifactSaved,
    ProbeReport,
    HolderReport,
    HolderEvent,
}
NO_REQUESTS = {"connect", "at_home", "at", "close"}
NO_CLIENT = {"/api/openapi.json", "/api/experiments/table"}


def test_every_verb_of_a_client_reads_what_a_later_service_answers(
    served: Served, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {name for name in dir(Client) if not name.startswith("_")}
    verbs = methods - NO_REQUESTS - TOLD_BY_LAUNCHERS
    assert VERBS.keys() - {"unpin"} == verbs
    told(served, client, tmp_path)
    later = Later(monkeypatch)
    more = Delivery(records=(report(9),))
    assert client.deliver(KEY, token_of(served, KEY), more).accepted == 9
    node = {"node": 0, "process": "launcher-0"}
    assert client.node_state(KEY, token_of(served, KEY), NodeState(**node)).action == "continue"
    offer = NodeOffer(**node, nodes=1, name="n1", addresses=(), kind="cpu", slots=1, version="9.9.9", clock=0.0)
    assert client.join(KEY, token_of(served, KEY), offer).action == "leave"
    staged = served.engine.jobs[KEY].model_copy(update={"staged": True})
    AttemptFolder(attempt_folder(served.home, KEY)).prepare(staged, token_of(served, KEY))
    assert client.stage_file(KEY, token_of(served, KEY), "rank-0.log", 0, b"a line\n") == 7
    assert client.stage_artifact(KEY, token_of(served, KEY), NET.digest, 0, b"a n") == 3
    assert client.keep_artifact(KEY, token_of(served, KEY), NET).size == 3
    with served.service.probes.opened("0" * 32, ProbeExchange(1, None)) as called:
        assert client.probe_report("0" * 32, called.token, ProbeReport(node=0)).count == 0
    served.service.holders = CallingHolders(lambda: {"cloud": HoldingEngine()})
    assert client.holder_report("1-5f3a9c", "a token", HolderReport(node=0)).orders[0].order == "close"
    for name, ask in VERBS.items():
        found = ask(client)
        if isinstance(found, Record):
            assert found == later.true, name
        elif isinstance(found, list) and name not in ("watch", "trial_rows"):
            assert [found] == [list(each) for each in later.true.values()], name
    answered = {route.handler for route in ROUTES if route.path not in NO_CLIENT and answers_json(route.operations)}
    assert later.handlers >= answered


class HoldingEngine:
    """An engine with one allocation, which is to be given back."""

    def holder_digest(self, id: str) -> str:
        return token_digest("a token")

    async def holder_report(self, id: str, report: HolderReport) -> HolderOrders:
        return HolderOrders(orders=(HolderOrder(order="close"),))


def deleted(client: Client) -> Overview:
    until(lambda: client.experiment(1).ended, "#1 has ended")
    return client.delete_experiment(1)


def removed(client: Client) -> list[Any]:
    assert client.model_version("memes").reference == "1.1/30-1"
    client.change_model("memes", ModelEdit(act="remove", version=1))  # it would keep #1 from being deleted
    client.pin(1, 1, "30-1", pinned=False)
    return client.models()


def checked_pool(client: Client) -> PoolCheck:
    client.set_pool("second", SECOND)
    return client.check_pool("second", "/usr/bin/python3")


def answers_json(operations: Mapping[str, Any]) -> bool:
    return any(each.answer is not None and not isinstance(each.answer, str) for each in operations.values())


class LaterKeep(Keep):
    """Retention rules of a later version, with an additional option whose default is not empty."""

    oldest: int = 3


class LaterConfig(Config):
    """Configuration of a later version, with an additional option, and another one within a nested record."""

    quantize: int = 8
    keep: LaterKeep = LaterKeep()


class LaterSubmission(Submission):
    """A submission with the fields of a later client."""

    config: LaterConfig = LaterConfig()


WHERE = {"trial": 1, "checkpoint": "30-1"}
NAMED: dict[type[Record], str] = {ModelEdit: "memes"}
BODIES: dict[type[Record], dict[str, Any]] = {
    Submission: {"snapshot": archive()[0], "python": "/usr/bin/python3", "cwd": "/", "again": True},
    Resumption: {},
    Move: {"pool": "local"},
    Rerun: {},
    LabelEdit: {"name": "digits"},
    TraceRequest: {"steps": 3},
    Extension: {"trials": 30},
    GarbageRequest: {"dry_run": True},
    Priority: {"priority": 5},
    PoolSettings: {"engine": "slurm"},
    PoolCheckRequest: {},
    NewWebhook: {"url": NOWHERE},
    Registration: {"name": "memes"},
    ModelEdit: {"act": "protect", "alias": "production"},
}


def test_what_a_later_runner_found_out_is_told(served: Served, client: Client, tmp_path: Path) -> None:
    told(served, client, tmp_path)
    facts = {fact.name: fact.value for fact in client.facts(1)}
    assert "3 samples delivered" in provenance_line(facts, client.source(1)[1])


def test_a_later_service_is_found_by_what_it_has_announced(service: Served) -> None:
    file = service.home / "service.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **LATER}))
    found = discovery.find(service.home)
    assert found is not None
    assert found.url == service.url


@pytest.mark.parametrize(
    ("config", "place"),
    [({"quantize": 4}, r"config\.quantize: .*, not 4"), ({"keep": LaterKeep(oldest=1)}, r"config\.keep\.oldest")],
)
def test_a_later_clients_defaults_may_be_unknown_and_what_its_user_asks_for_may_not(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], place: str
) -> None:
    client.upload_snapshot(*archive())
    monkeypatch.setattr("kernel_backend.client.conversation.__version__", "9.9.9")
    fields = BODIES[Submission]
    with pytest.raises(OtherVersion, match=place):
        client.submit(LaterSubmission(config=LaterConfig(**config), **fields))
    assert client.experiments() == []
    asked = LaterSubmission(config=LaterConfig(epochs=3), **fields)
    assert (asked.to_json()["config"]["quantize"], asked.to_json()["config"]["keep"]["oldest"]) == (8, 3)
    plain = Submission(config=Config(epochs=3), **fields)
    assert client.submit(asked).experiment.config == client.submit(plain).experiment.config


def test_no_route_takes_a_field_that_it_does_not_know_unless_it_changes_nothing(
    served: Served, client: Client, tmp_path: Path
) -> None:
    told(served, client, tmp_path)
    bodies = {(route.path, how, each.body) for route in ROUTES for how, each in route.operations.items()}
    kinds = {(*where, kind) for *where, kind in bodies if isinstance(kind, type) and kind not in OF_LAUNCHERS}
    assert {kind for *_, kind in kinds} == BODIES.keys()
    for path, how, kind in sorted(kinds, key=lambda each: each[0]):
        later = create_model("Later", __base__=kind, urgency=(str, "usual"))
        where = served.url + path.format(
            number=SEARCH if kind is Extension else 1, **WHERE | {"name": NAMED.get(kind, "second")}
        )
        for urgency, status in (("great", 400), ("usual", 200)):
            body = later(**BODIES[kind], urgency=urgency)
            headers = {"Authorization": f"Bearer {TOKEN}", VERSION: "9.9.9", DEFAULTS: ",".join(at_defaults(body))}
            answer = httpx.request(how, where, json=body.to_json(), headers=headers, trust_env=False)
            assert answer.status_code // 100 == status // 100, (path, answer.text)
            if status == 400:
                assert (answer.json()["error"], "'great'" in answer.text) == ("OtherVersion", True)
