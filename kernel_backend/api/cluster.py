"""A shared cluster: who may have what, who waits, on what, and what admins have done."""

from __future__ import annotations

import json
from typing import Any, cast

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.accounts import AccountKind, Priority

POINTS, MOST_POINTS = 200, 2000
ROWS, MOST_ROWS = 1000, 100_000  # of the queue, of each pool
DEEDS, MOST_DEEDS = 100, 1000


class MeHandler(ApiHandler):
    """Who asks."""

    async def get(self) -> None:
        """Tell who asks, and what is theirs and their groups'."""
        self.reply(await self.service.sharing.me(self.user))


class AccountsHandler(ApiHandler):
    """Users and groups."""

    async def get(self) -> None:
        """List users and groups with their quotas and use: for admins all, for others their own."""
        self.reply({"accounts": await self.service.sharing.accounts(self.user)})


class AccountQuotaHandler(ApiHandler):
    """What a user or a group may have."""

    async def put(self, kind: str, name: str) -> None:
        """Set some numbers of a quota; null has one be the hub's again. For admins."""
        given = _object(self.body)
        self.reply(await self.service.sharing.set_quota(self.user, cast(AccountKind, kind), name, given))

    async def delete(self, kind: str, name: str) -> None:
        """Have all numbers of a quota be the hub's again. For admins."""
        self.reply(await self.service.sharing.clear_quota(self.user, cast(AccountKind, kind), name))


class AccountUseHandler(ApiHandler):
    """What a user or a group has held."""

    async def get(self, kind: str, name: str) -> None:
        """Tell how many slots were held over time, of the last week unless another time is named."""
        since, until = self.maybe_integer("since"), self.maybe_integer("until")
        points = self.integer("points", POINTS, least=1, most=MOST_POINTS)
        self.reply(await self.service.sharing.use(self.user, cast(AccountKind, kind), name, since, until, points))


class QueueHandler(ApiHandler):
    """Who waits."""

    async def get(self) -> None:
        """List what waits, in the order of the turns, pool by pool; of what is not one's own only that it does."""
        limit = self.integer("limit", ROWS, least=1, most=MOST_ROWS)
        self.reply({"queue": await self.service.cluster.queue(self.user, limit)})


class QueuePriorityHandler(ApiHandler):
    """Another turn."""

    async def post(self, number: str) -> None:
        """Give an experiment another priority: an admin any, its owner one that quotas allow."""
        asked = self.parse(Priority)
        self.reply(await self.service.cluster.priority(self.user, int(number), asked.priority))


class QueueFirstHandler(ApiHandler):
    """The next turn."""

    async def post(self, number: str) -> None:
        """Put an experiment ahead of everything that waits. For admins."""
        self.reply(await self.service.cluster.first(self.user, int(number)))


class NodesHandler(ApiHandler):
    """Where gangs run."""

    async def get(self) -> None:
        """List the nodes, and what holds how many of their slots."""
        self.reply({"nodes": await self.service.cluster.nodes(self.user)})


class DrainHandler(ApiHandler):
    """A node that is to be empty."""

    async def post(self, name: str) -> None:
        """Start nothing more on a node; what runs there goes on. For admins."""
        self.reply(await self.service.cluster.drain(self.user, name))


class UndrainHandler(ApiHandler):
    """A node that is used again."""

    async def post(self, name: str) -> None:
        """Start gangs on a node again. For admins."""
        self.reply(await self.service.cluster.drain(self.user, name, drained=False))


class PoolsHandler(ApiHandler):
    """Nodes with a queue of their own."""

    async def get(self) -> None:
        """List the pools: what they have, what of it is in use, and how many wait for it."""
        self.reply({"pools": await self.service.cluster.pools()})


class AuditHandler(ApiHandler):
    """What admins have done."""

    async def get(self) -> None:
        """List what was done to what is not one's own or what all share, newest first. For admins."""
        limit = self.integer("limit", DEEDS, least=1, most=MOST_DEEDS)
        before, search = self.maybe_integer("before"), self.get_query_argument("search", "")
        self.reply({"audit": await self.service.sharing.audit(self.user, before, limit, search)})


def _object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; raises InvalidRequest."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest('body: must be a JSON object such as {"limit": 8}') from None
    if not isinstance(found, dict):
        raise InvalidRequest(f'body: must be a JSON object such as {{"limit": 8}}, not {str(found)[:100]}')
    return found


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/me": MeHandler,
    "/api/accounts": AccountsHandler,
    "/api/accounts/{kind}/{name}/quota": AccountQuotaHandler,
    "/api/accounts/{kind}/{name}/use": AccountUseHandler,
    "/api/queue": QueueHandler,
    "/api/queue/{number}/priority": QueuePriorityHandler,
    "/api/queue/{number}/first": QueueFirstHandler,
    "/api/nodes": NodesHandler,
    "/api/nodes/{name}/drain": DrainHandler,
    "/api/nodes/{name}/undrain": UndrainHandler,
    "/api/pools": PoolsHandler,
    "/api/audit": AuditHandler,
}
