"""Provide GPU profiles for KubeSpawner, and a hook that enforces quotas for any spawner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jupyter_ext.hub.configure import USES
from jupyter_ext.hub.offers import OfferContext, offers, refusal
from kernel_backend.client import Client
from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.model.cluster.accounts import Account
from kernel_backend.model.cluster.directory import read_quota
from kernel_backend.model.cluster.quotas import Use
from kernel_backend.model.cluster.servers import server_request

ANSWER_S = 5.0  # for Daylight to answer before a form is shown
TOKEN_S = 60  # seconds that the token for the request is valid

Hook = Callable[[Any], Awaitable[None]]


def profiles(
    *,
    resource: str = "nvidia.com/gpu",
    pools: Mapping[str, Mapping[str, str]] | None = None,
    images: Mapping[str, str] | None = None,
    most: int = 8,
    url: str | None = None,
) -> Callable[[Any], Awaitable[list[dict[str, Any]]]]:
    """Return a callable for `c.KubeSpawner.profile_list` that lists the numbers of GPUs a user may request.

    `resource` is the name of the GPU resource in Kubernetes. `pools` maps each pool to the labels of its nodes,
    `images` maps display names to images. `most` is the maximum number of GPUs of one server if neither a quota nor a
    node limits it. `url` is Daylight's URL, unless `daylight(c)` has set it.
    """

    async def of(spawner: Any) -> list[dict[str, Any]]:
        context = await offer_context(spawner, url)
        return offers(context, resource=resource, pools=pools or {}, images=images or {}, default=most)

    return of


def check_server(*, url: str | None = None, then: Callable[[Any], Any] | None = None) -> Hook:
    """Return a `c.Spawner.pre_spawn_hook` that refuses servers with too many GPUs; for others it calls the hook `then`.

    The check applies to every spawner, and also to requests through the hub's API, which bypass the form for users;
    `server_request` says which options it reads.
    """

    async def hook(spawner: Any) -> None:
        from jupyterhub.spawner import SpawnException

        try:
            wanted = server_request(spawner.user_options)
        except InvalidRequest as error:
            raise SpawnException(error.message, reason="daylight", status_code=400) from error
        if wanted.slots:
            refused = refusal(wanted, await offer_context(spawner, url), _beside(spawner))
            if refused is not None:
                raise SpawnException(refused, reason="daylight", status_code=403)
        if then is not None and (more := then(spawner)) is not None:
            await more

    return hook


async def offer_context(spawner: Any, url: str | None = None) -> OfferContext:
    """Return the accounts and nodes that limit the user of a spawner, as Daylight's service reports them.

    If the service does not answer, the only account is the user's first hub group with its quota.
    """
    address = url or spawner.environment.get("DAYLIGHT_URL")
    if address:
        token = None
        try:
            token = spawner.user.new_api_token(note="Daylight's profiles", expires_in=TOKEN_S, scopes=[USES])
            own, uid = f"{spawner.user.name}/{spawner.name}", spawner.environment.get("DAYLIGHT_SERVICE_UID")
            answer = asyncio.to_thread(_ask, address, token, own, None if uid is None else int(uid))
            return await asyncio.wait_for(answer, ANSWER_S)
        except (DaylightError, TimeoutError, ValueError) as error:
            spawner.log.warning("Daylight at %s does not say what %s may have: %s", address, spawner.user.name, error)
        finally:
            if token is not None:
                _revoke(spawner, token)
    return OfferContext(_given(spawner.user), known=False)


def _ask(url: str, token: str, own: str, uid: int | None) -> OfferContext:
    client = Client.at(url, token, patience=0.0, user=uid)
    me = client.me()
    counted = sum(server.slots for server in me.servers if server.full_name == own)  # a restart frees its slots
    theirs = [each for each in me.accounts if each.kind == "user" or each.name == me.person.group]
    return OfferContext([_without(each, counted) for each in theirs], client.nodes())


def _without(account: Account, slots: int) -> Account:
    """Return a copy of an account in which the number of slots that it holds is smaller by `slots`."""
    use = account.use.model_copy(update={"held": account.use.held - slots})
    return account.model_copy(update={"use": use})


def _revoke(spawner: Any, token: str) -> None:
    from jupyterhub import orm

    found = orm.APIToken.find(spawner.user.db, token)
    if found is not None:
        spawner.user.db.delete(found)
        spawner.user.db.commit()


def _given(user: Any) -> list[Account]:
    """Return the user's first hub group as an account that uses none of its slots; empty if it has no quota."""
    first = next(iter(user.groups), None)
    quota = read_quota(first.properties)[0] if first is not None else None
    if first is None or quota is None:
        return []
    return [Account(kind="group", name=first.name, quota=quota, use=Use(held=0, decayed=0.0))]


def _beside(spawner: Any) -> int:
    """Return how many slots the user's other notebook servers request, including servers that are starting."""
    total = 0
    for other in spawner.user.spawners.values():
        if other.name != spawner.name and (other.active or other.pending):
            try:
                total += server_request(other.user_options).slots
            except InvalidRequest:
                continue
    return total
