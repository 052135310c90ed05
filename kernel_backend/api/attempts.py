"""Handle the requests of an attempt's launchers: records, files, and the joining of a gang's nodes."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import Unauthenticated
from kernel_backend.model.ids import parse_attempt
from kernel_backend.model.launch.nodes import NodeOffer, NodeState
from kernel_backend.model.reports import ArtifactSaved, Delivery


class AttemptHandler(ApiHandler):
    """Base class of handlers for launchers, which authenticate by their attempt's token."""

    async def authenticate(self) -> None:
        """Check the attempt's own token, and return no user; raises Unauthenticated."""
        if not self.bearer:
            raise Unauthenticated("no valid token: send the attempt's own as Authorization: Bearer")
        await self.service.attempts.check(parse_attempt(self.path_args[0]), self.bearer)


class RecordsHandler(AttemptHandler):
    """Handler to which an attempt's launcher delivers the spooled records."""

    async def post(self, key: str) -> None:
        """Deliver records of an attempt (an empty list is a heartbeat), with the attempt's own token."""
        delivery = self.parse(Delivery, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.attempts.deliver(parse_attempt(key), self.bearer, delivery))


class JoinHandler(AttemptHandler):
    """Handler through which the launchers of a gang's nodes agree to start their ranks together."""

    async def post(self, key: str) -> None:
        """Offer to run a gang's ranks on a node; repeated until the answer is `go` or `leave`.

        It needs the attempt's own token.
        """
        offer = self.parse(NodeOffer, lambda value, place: True)
        self.reply(await self.service.gang_nodes.join(parse_attempt(key), offer))


class NodesHandler(AttemptHandler):
    """Handler through which the launchers of a gang report the state of their ranks and learn that of other nodes."""

    async def post(self, key: str) -> None:
        """Report the state of a node's ranks, and wait for changes on other nodes; needs the attempt's own token."""
        state = self.parse(NodeState, lambda value, place: True)
        self.reply(await self.service.gang_nodes.state(parse_attempt(key), state))


class JobHandler(AttemptHandler):
    """Handler that gives the launch spec to launchers on nodes that cannot read the service's home directory."""

    async def get(self, key: str) -> None:
        """Return the launch spec of an attempt, with the attempt's own token."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(await self.service.staging.job(parse_attempt(key)))


class SnapshotHandler(AttemptHandler):
    """Handler that gives a training's code to launchers on nodes that cannot read the service's home directory."""

    async def get(self, key: str) -> None:
        """Return the snapshot of an attempt's experiment as a zip, with the attempt's own token."""
        self.set_header("Content-Type", "application/zip")
        self.finish(await self.service.staging.snapshot(parse_attempt(key)))


class EnvironmentHandler(AttemptHandler):
    """Handler that gives an environment's lock file to launchers on nodes that build the environment."""

    async def get(self, key: str) -> None:
        """Return the locked environment of an attempt, and some of its wheels; all if `everything` is set.

        All wheels are included only when the service has downloaded them.
        """
        everything = bool(self.integer("everything", 0, most=1))
        self.reply(await self.service.node_environments.offer(parse_attempt(key), everything=everything))


class WheelHandler(AttemptHandler):
    """Handler that gives an environment's wheels to launchers on nodes that build the environment."""

    async def get(self, key: str, wheel: str) -> None:
        """Return a piece of a wheel from a byte offset; an empty piece at its end."""
        self.set_header("Content-Type", "application/octet-stream")
        self.finish(await self.service.node_environments.wheel(parse_attempt(key), wheel, self.integer("offset", 0)))


class FilesHandler(AttemptHandler):
    """Handler that takes logs and records from launchers on nodes that cannot read the home directory."""

    async def put(self, key: str, file: str) -> None:
        """Append a piece to a log at an offset, or replace a record; return the size of the file in the service."""
        offset = self.integer("offset", 0)
        self.reply(await self.service.staging.write(parse_attempt(key), file, offset, self.body))


class StagedArtifactsHandler(AttemptHandler):
    """Handler that takes artifacts' records from launchers on nodes that cannot read the home directory."""

    async def post(self, key: str) -> None:
        """Store an artifact if all of its bytes have arrived; else return how many have."""
        saved = self.parse(ArtifactSaved, lambda value, place: True)
        self.reply(await self.service.staging.keep_artifact(parse_attempt(key), saved))


class StagedContentHandler(AttemptHandler):
    """Handler that takes artifacts' bytes from launchers on nodes that cannot read the home directory."""

    async def put(self, key: str, digest: str) -> None:
        """Append a piece at an offset to the bytes of an artifact; return how many have arrived."""
        offset = self.integer("offset", 0)
        self.reply(await self.service.staging.write_artifact(parse_attempt(key), digest, offset, self.body))


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/attempts/{key}/records": RecordsHandler,
    "/api/attempts/{key}/join": JoinHandler,
    "/api/attempts/{key}/nodes": NodesHandler,
    "/api/attempts/{key}/job.json": JobHandler,
    "/api/attempts/{key}/snapshot.zip": SnapshotHandler,
    "/api/attempts/{key}/environment.json": EnvironmentHandler,
    "/api/attempts/{key}/wheels/{id}": WheelHandler,
    "/api/attempts/{key}/files/{file}": FilesHandler,
    "/api/attempts/{key}/artifacts": StagedArtifactsHandler,
    "/api/attempts/{key}/artifacts/{digest}": StagedContentHandler,
}
