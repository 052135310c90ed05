"""Handle requests of the launchers of an attempt: deliver records and files, and start the nodes of a gang together."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import Unauthenticated
from kernel_backend.model.ids import parse_attempt
from kernel_backend.model.launch.nodes import NodeOffer, NodeState
from kernel_backend.model.reports import ArtifactSaved, Delivery


class AttemptHandler(ApiHandler):
    """Base class of handlers for launchers, which authenticate by their attempt's token instead of a user's."""

    async def authenticate(self) -> None:
        """Check that the request carries the attempt's token; return None, as there is no user.

        Raises Unauthenticated.
        """
        if not self.bearer:
            raise Unauthenticated("no valid token: send the attempt's own as Authorization: Bearer")
        await self.service.attempts.check(parse_attempt(self.path_args[0]), self.bearer)


class RecordsHandler(AttemptHandler):
    """Handler to which an attempt's launcher delivers metrics, events and other records that the ranks have written."""

    async def post(self, key: str) -> None:
        """Deliver records of an attempt, such as metrics, and get an instruction for its ranks.

        An empty list of records is a heartbeat. The request needs the attempt's token.
        """
        delivery = self.parse(Delivery, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.attempts.deliver(parse_attempt(key), self.bearer, delivery))


class JoinHandler(AttemptHandler):
    """Handler through which the launchers of a gang's nodes agree to start their ranks together."""

    async def post(self, key: str) -> None:
        """Report that a node is ready to run ranks of a gang; the reply is whether to wait, to start or to give up.

        The node's launcher repeats the request until the reply is `go` or `leave`. The request needs the attempt's
        token.
        """
        offer = self.parse(NodeOffer, lambda value, place: True)
        self.reply(await self.service.gang_nodes.join(parse_attempt(key), offer))


class NodesHandler(AttemptHandler):
    """Handler through which a gang's launchers report the state of their ranks and learn the state of other nodes."""

    async def post(self, key: str) -> None:
        """Report the state of a node's ranks, and wait for changes on other nodes; needs the attempt's token."""
        state = self.parse(NodeState, lambda value, place: True)
        self.reply(await self.service.gang_nodes.state(parse_attempt(key), state))


class JobHandler(AttemptHandler):
    """Handler that gives the launch spec to launchers on nodes that cannot read the service's home directory."""

    async def get(self, key: str) -> None:
        """Return the launch spec of an attempt; needs the attempt's token."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(await self.service.staging.job(parse_attempt(key)))


class SnapshotHandler(AttemptHandler):
    """Handler that gives a training's code to launchers on nodes that cannot read the service's home directory."""

    async def get(self, key: str) -> None:
        """Return the snapshot of an attempt's experiment as a zip; needs the attempt's token."""
        self.set_header("Content-Type", "application/zip")
        await self.send(await self.service.staging.snapshot(parse_attempt(key)))


class EnvironmentHandler(AttemptHandler):
    """Handler that gives the lock file of an environment to launchers whose nodes build the environment themselves."""

    async def get(self, key: str) -> None:
        """Return an attempt's locked environment, with the wheels that no package index has; needs the attempt's token.

        With `everything=1` all wheels are included, once the service has downloaded them.
        """
        everything = bool(self.integer("everything", 0, most=1))
        self.reply(await self.service.node_environments.offer(parse_attempt(key), everything=everything))


class WheelHandler(AttemptHandler):
    """Handler that gives the wheels of an environment to launchers whose nodes build the environment themselves."""

    async def get(self, key: str, wheel: str) -> None:
        """Return a piece of the wheel with file name `wheel`, from a byte offset on; no bytes at the wheel's end."""
        self.set_header("Content-Type", "application/octet-stream")
        self.finish(await self.service.node_environments.wheel(parse_attempt(key), wheel, self.integer("offset", 0)))


class FilesHandler(AttemptHandler):
    """Handler that stores logs and small JSON files of launchers on nodes that cannot read the service's home."""

    async def put(self, key: str, file: str) -> None:
        """Append bytes at an offset to a log in the service's copy of an attempt's folder, or replace a small file.

        The reply has the size in bytes of the service's copy of the file.
        """
        offset = self.integer("offset", 0)
        self.reply(await self.service.staging.write(parse_attempt(key), file, offset, self.body))


class StagedArtifactsHandler(AttemptHandler):
    """Handler that stores descriptions (name, digest) of artifacts on nodes that cannot write to the service's home."""

    async def post(self, key: str) -> None:
        """Add an artifact to its trial if all of its bytes have arrived; otherwise return how many have arrived."""
        saved = self.parse(ArtifactSaved, lambda value, place: True)
        self.reply(await self.service.staging.keep_artifact(parse_attempt(key), saved))


class StagedContentHandler(AttemptHandler):
    """Handler that receives artifacts' bytes from launchers on nodes that cannot read the service's home."""

    async def put(self, key: str, digest: str) -> None:
        """Append bytes at an offset to the artifact with this digest; return how many bytes of it have arrived."""
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
