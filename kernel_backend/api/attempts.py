"""Handle the calls of an attempt's launchers: their records and files, and the meeting of a gang's nodes."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import Unauthenticated
from kernel_backend.model.ids import parse_attempt
from kernel_backend.model.launch.nodes import NodeOffer, NodeState
from kernel_backend.model.reports import Delivery


class AttemptHandler(ApiHandler):
    """Base of handlers for launchers, which have their attempt's own token."""

    async def authenticate(self) -> None:
        """Check the attempt's own token, and return no user; raises Unauthenticated."""
        if not self.bearer:
            raise Unauthenticated("no valid token: send the attempt's own as Authorization: Bearer")
        await self.service.check_attempt(parse_attempt(self.path_args[0]), self.bearer)


class RecordsHandler(AttemptHandler):
    """Handler to which an attempt's launcher delivers the spooled records."""

    async def post(self, key: str) -> None:
        """Deliver records of an attempt (an empty list is a heartbeat), with the attempt's own token."""
        delivery = self.parse(Delivery, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.deliver(parse_attempt(key), self.bearer, delivery))


class JoinHandler(AttemptHandler):
    """Handler at which the launchers of a gang's nodes meet."""

    async def post(self, key: str) -> None:
        """Offer a node's part in a gang, with the attempt's own token, again until the answer is `go` or `leave`."""
        offer = self.parse(NodeOffer, lambda value, place: True)
        self.reply(await self.service.gang_nodes.join(parse_attempt(key), offer))


class NodesHandler(AttemptHandler):
    """Handler to which the launchers of a gang report how their ranks are."""

    async def post(self, key: str) -> None:
        """Report the state of a node's ranks, and wait for news of other nodes, with the attempt's own token."""
        state = self.parse(NodeState, lambda value, place: True)
        self.reply(await self.service.gang_nodes.state(parse_attempt(key), state))


class JobHandler(AttemptHandler):
    """Handler from which launchers on nodes without the service's home get the launch spec."""

    async def get(self, key: str) -> None:
        """Return the launch spec of an attempt, with the attempt's own token."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(await self.service.staging.job(parse_attempt(key)))


class SnapshotHandler(AttemptHandler):
    """Handler from which launchers on nodes without the service's home get the code of a training."""

    async def get(self, key: str) -> None:
        """Return the snapshot of an attempt's experiment as a zip, with the attempt's own token."""
        self.set_header("Content-Type", "application/zip")
        self.finish(await self.service.staging.snapshot(parse_attempt(key)))


class FilesHandler(AttemptHandler):
    """Handler to which launchers on nodes without the service's home send logs and records."""

    async def put(self, key: str, file: str) -> None:
        """Append a piece of a log at an offset, or replace a record; return the size of the service's file."""
        offset = self.integer("offset", 0)
        self.reply(await self.service.staging.write(parse_attempt(key), file, offset, self.body))


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/attempts/{key}/records": RecordsHandler,
    "/api/attempts/{key}/join": JoinHandler,
    "/api/attempts/{key}/nodes": NodesHandler,
    "/api/attempts/{key}/job.json": JobHandler,
    "/api/attempts/{key}/snapshot.zip": SnapshotHandler,
    "/api/attempts/{key}/files/{file}": FilesHandler,
}
