"""Test GPUs of notebook servers: offers, pods and refusals, with real manifests but without a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.objects import Hub
from jupyterhub.roles import create_role
from jupyterhub.spawner import SpawnException
from jupyterhub.user import User
from kubespawner import KubeSpawner
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from jupyter_ext.hub.offers import OfferContext, describe, most, offers, refusal
from jupyter_ext.hub.profiles import check_server, profiles
from kernel_backend.model.cluster.accounts import Account
from kernel_backend.model.cluster.quotas import Quota, Use
from kernel_backend.model.cluster.servers import ServerRequest
from kernel_backend.model.views.overview import NodeUse

GPU = "nvidia.com/gpu"
EXAMPLE = Path(__file__).parents[2] / "examples" / "jupyterhub" / "kubespawner_config.py"


def user(held: int = 0, window: float | None = None, **quota: Any) -> Account:
    return Account(kind="user", name="dave", quota=Quota(**quota), use=Use(held=held, decayed=0.0, window=window))


def group(held: int = 0, window: float | None = None, **quota: Any) -> Account:
    return Account(kind="group", name="vision", quota=Quota(**quota), use=Use(held=held, decayed=0.0, window=window))


def node(slots: int = 8, used: int = 0, pool: str = "local", **fields: Any) -> NodeUse:
    return NodeUse(name=f"n-{pool}", kind="cuda", slots=slots, used=used, pool=pool, **fields)


def offered(status: OfferContext, pools: dict[str, dict[str, str]] | None = None, default: int = 8) -> list[str]:
    found = offers(status, resource=GPU, pools=pools or {}, images={}, default=default)
    return [f"{each['display_name']}: {each['description']}" for each in found[1:]]


# What is offered


def test_what_is_offered_is_what_one_server_may_have_and_says_what_is_left():
    assert offered(OfferContext([user(held=5, limit=8, max_slots_per_trial=6)], [node(8, 5)])) == [
        "1 GPU: 3 of your 8 are free.",
        "2 GPUs: 3 of your 8 are free.",
        "4 GPUs: Not just now: 3 of your 8 are free.",
        "6 GPUs: Not just now: 3 of your 8 are free.",
    ]


def test_the_tighter_of_a_user_and_a_group_is_named():
    assert offered(OfferContext([user(held=1, limit=4), group(held=8, limit=8)], [node(2)])) == [
        "1 GPU: Not just now: none of group vision's 8 is free.",
        "2 GPUs: Not just now: none of group vision's 8 is free.",
    ]


def test_a_server_is_on_one_node_and_waits_where_none_has_room():
    status = OfferContext([user(limit=8)], [node(4, 4, "a100"), node(2, 1, "t4")])
    assert offered(status, {"a100": {}, "t4": {}}) == [
        "1 GPU of pool a100: It would wait: none is free in pool a100.",
        "2 GPUs of pool a100: It would wait: none is free in pool a100.",
        "4 GPUs of pool a100: It would wait: none is free in pool a100.",
        "1 GPU of pool t4: 8 of your 8 are free.",
        "2 GPUs of pool t4: It would wait: 1 is free in pool t4.",
    ]


def test_who_has_no_limit_is_told_what_the_nodes_have():
    assert offered(OfferContext([user()], [node(2, 1)]))[0] == "1 GPU: 1 is free."
    assert offered(OfferContext(), default=1) == ["1 GPU: "]


def test_one_whose_limit_is_nothing_is_offered_nothing():
    assert offered(OfferContext([user(limit=0)], [node()])) == []
    assert offered(OfferContext([user()], [node(0)])) == []


def test_while_the_service_is_away_the_groups_numbers_hold_and_it_is_said():
    away = OfferContext([group(limit=2)], known=False)
    assert most(away, None, 8) == 2
    assert "does not answer" in describe(away, 1, None)


# What is refused


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            OfferContext([user(max_slots_per_trial=2)]),
            "4 GPUs requested for the notebook server; you may have 2 in one. Take 2 or fewer.",
        ),
        (
            OfferContext([user(), group(limit=1)]),
            "4 GPUs requested for the notebook server; those of group vision may have 1 in one. Take 1.",
        ),
        (
            OfferContext([user(held=6, limit=8)]),
            "4 GPUs requested for the notebook server; 2 of your 8 are free. Take 2 or fewer, or end something first.",
        ),
        (
            OfferContext([user(held=9, limit=8)]),
            "4 GPUs requested for the notebook server; none of your 8 is free. Take none, or end something first.",
        ),
        (
            OfferContext([user(), group(window=36000.0, slot_hours="10/7d")]),
            "4 GPUs requested for the notebook server; group vision's 10 slot-hours in 7 days are used up. Take none.",
        ),
    ],
    ids=["most", "group", "left", "beyond", "hours"],
)
def test_a_server_beyond_a_quota_is_refused_with_the_nearest_that_it_may_have(status: OfferContext, message: str):
    assert refusal(ServerRequest(4), status) == message
    assert refusal(ServerRequest(0), status) is None


def test_what_the_persons_other_servers_have_counts_though_the_service_has_not_heard_of_them():
    status = OfferContext([user(held=0, limit=4)])
    assert refusal(ServerRequest(2), status, beside=2) is None
    assert "1 of your 4 is free" in (refusal(ServerRequest(2), status, beside=3) or "")


# Pods

CLUSTER = """
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
users: [{name: nobody, user: {}}]
"""


@pytest.fixture(autouse=True, scope="module")
def no_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replace the functions by which a spawner connects to a cluster."""
    file = tmp_path_factory.mktemp("kube") / "config"
    file.write_text(CLUSTER, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        yield


@pytest.fixture
def hub_users() -> Iterator[dict[str, User]]:
    """Return the hub's users: dave and danielle of vision, eve of speech with an invalid quota, cy of no group."""
    db = orm.new_session_factory("sqlite:///:memory:")()
    create_role(db, {"name": "user", "description": "", "scopes": ["self"]})
    given = {"vision": {"limit": 4, "max_slots_per_trial": 2}, "speech": {"limit": "many", "max_slots_per_trial": 1}}
    for name, quota in given.items():
        db.add(orm.Group(name=name, properties={"daylight": quota}))
    found = {}
    for name, of in (("dave", "vision"), ("danielle", "vision"), ("eve", "speech"), ("cy@lab", None)):
        known = orm.User(name=name)
        db.add(known)
        if of is not None:
            known.groups = [orm.Group.find(db, of)]
        db.commit()
        found[name] = User(known, {"authenticator": None})
    yield found
    db.close()


def config() -> Config:
    """Provide the configuration that the documented example makes."""
    return PyFileConfigLoader(EXAMPLE.name, str(EXAMPLE.parent)).load_config()


def spawner(who: User, options: Any, given: Config | None = None) -> KubeSpawner:
    known = orm.Spawner(name="", user=who.orm_user)
    made = KubeSpawner(
        config=config() if given is None else given,
        user=who,
        orm_spawner=known,
        hub=Hub(),
        api_token="abc",
        oauth_client_id="x",
        user_options=options,
        _mock=True,
    )
    made.log = logging.getLogger("spawner")
    return made


async def pod(of: KubeSpawner) -> dict[str, Any]:
    """Return the manifest of a pod, made like the hub does: hook, options, pod."""
    await of.run_pre_spawn_hook()
    await of.load_user_options()
    manifest: dict[str, Any] = of.api.api_client.sanitize_for_serialization(await of.get_pod_manifest())
    return manifest


def gpus(manifest: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    resources = manifest["spec"]["containers"][0]["resources"]
    both = resources.get("limits") or {}, resources.get("requests") or {}
    return tuple({key: value for key, value in each.items() if key == GPU} for each in both)  # type: ignore[return-value]


def made(who: User, options: Any, given: Config | None = None) -> dict[str, Any]:
    async def make() -> dict[str, Any]:
        return await pod(spawner(who, options, given))

    return asyncio.run(make())


def test_a_pod_has_exactly_the_gpus_that_were_chosen_and_says_whose_they_are(hub_users):
    manifest = made(hub_users["dave"], {"profile": "daylight-2-a100", "image": "image-2"})
    assert gpus(manifest) == ({GPU: "2"}, {GPU: "2"})
    labels = manifest["metadata"]["labels"]
    assert (labels["daylight/slots"], labels["daylight/pool"], labels["daylight/owner"]) == ("2", "a100", "dave")
    assert manifest["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert manifest["spec"]["containers"][0]["image"] == "quay.io/jupyter/scipy-notebook:latest"


@pytest.mark.parametrize(
    "options", [{}, {"profile": "daylight-0"}, {"profile": ""}, {"slots": 0, "garbage": [1]}], ids=repr
)
def test_without_a_choice_there_is_no_gpu(hub_users, options):
    manifest = made(hub_users["danielle"], options)
    assert gpus(manifest) == ({}, {})
    assert not [label for label in manifest["metadata"]["labels"] if label.startswith("daylight/")]
    assert not manifest["spec"].get("nodeSelector")


def test_a_spawner_that_is_used_again_keeps_nothing_of_the_last_time(hub_users):
    async def one_after_another() -> list[dict[str, Any]]:
        again = spawner(hub_users["dave"], {})
        manifests = []
        for options in ({"profile": "daylight-2-a100"}, {"profile": "daylight-1-t4"}, {}):
            again.user_options = options
            manifests.append(await pod(again))
        return manifests

    two, one, none = asyncio.run(one_after_another())
    assert [gpus(each)[0] for each in (two, one, none)] == [{GPU: "2"}, {GPU: "1"}, {}]
    assert one["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "Tesla-T4"}
    assert not [label for label in none["metadata"]["labels"] if label.startswith("daylight/")]
    assert not none["spec"].get("nodeSelector")


def test_each_is_offered_what_their_group_allows_and_garbage_in_it_is_left_out(hub_users):
    async def slugs(name: str) -> list[str]:
        of = spawner(hub_users[name], {})
        return [each["slug"] for each in await of.profile_list(of)]

    dave, eve, cy = (asyncio.run(slugs(name)) for name in ("dave", "eve", "cy@lab"))
    assert dave == ["daylight-0", "daylight-1-a100", "daylight-2-a100", "daylight-1-t4", "daylight-2-t4"]
    assert eve == ["daylight-0", "daylight-1-a100", "daylight-1-t4"]
    assert cy[4] == "daylight-8-a100"


def test_a_name_that_is_no_label_is_written_as_one(hub_users):
    labels = made(hub_users["cy@lab"], {"profile": "daylight-1-t4"})["metadata"]["labels"]
    assert labels["daylight/owner"].startswith("cy-lab")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "daylight-4-a100"}, "may have 2 in one. Take 2 or fewer"),
        ({"profile": "daylight-999999"}, "may have 2 in one"),
        ({"slots": -1}, "slots=-1"),
        ({"slots": True}, "slots=True"),
        ({"slots": {"$gt": 0}}, "a whole number is wanted"),
        ({"slots": 1, "pool": ["a100"]}, "the name of a pool"),
    ],
    ids=repr,
)
def test_options_that_passed_the_form_by_are_refused(hub_users, options, message):
    with pytest.raises(SpawnException, match=message) as caught:
        made(hub_users["dave"], options)
    assert caught.value.status_code in (400, 403)


@pytest.mark.parametrize("slug", ["daylight-1", "daylight-2-nowhere", "daylight--1-a100", "../daylight-1-a100"])
def test_a_profile_that_is_not_offered_starts_nothing(hub_users, slug):
    with pytest.raises(ValueError, match="No such profile"):
        made(hub_users["dave"], {"profile": slug})


def test_words_beside_a_profile_add_no_gpu(hub_users):
    manifest = made(
        hub_users["dave"],
        {"profile": "daylight-1-t4", "slots": 8, "extra_resource_limits": {GPU: "8"}, "image--unlisted-choice": ""},
    )
    assert gpus(manifest) == ({GPU: "1"}, {GPU: "1"})


def test_the_form_shows_the_offers_as_text(hub_users):
    async def shown() -> str:
        of = spawner(hub_users["dave"], {})
        return str(await of._render_options_form_dynamically(of))

    form = asyncio.run(shown())
    assert "2 GPUs of pool a100" in form
    assert "how many are free is not known" in form


def test_without_pools_the_resource_and_the_number_alone_are_said(hub_users):
    given = Config()
    given.KubeSpawner.profile_list = profiles(resource="amd.com/gpu", most=1)
    given.KubeSpawner.pre_spawn_hook = check_server()
    manifest = made(hub_users["cy@lab"], {"profile": "daylight-1"}, given)
    assert manifest["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"
    assert manifest["metadata"]["labels"]["daylight/pool"] == "local"


def test_a_hook_of_ones_own_goes_on_after_it(hub_users):
    given, seen = Config(), []

    async def own(of: KubeSpawner) -> None:
        seen.append(of.user.name)

    given.KubeSpawner.profile_list = profiles()
    given.KubeSpawner.pre_spawn_hook = check_server(then=own)
    made(hub_users["dave"], {}, given)
    assert seen == ["dave"]
