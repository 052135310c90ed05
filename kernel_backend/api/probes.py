"""Handle requests of probe programs, which run on the nodes of a pool while an admin or user checks that pool."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.launch.probe import ProbeReport


class ProbeHandler(ApiHandler):
    """Handler to which probe programs report what they find on nodes; each request carries the token of its check."""

    async def authenticate(self) -> None:
        """Check that the request carries the token of a check in progress; return None, as there is no user.

        Raises Unauthenticated.
        """
        self.service.probes.check(self.path_args[0], self.bearer)

    async def post(self, check: str) -> None:
        """Store what a node's probe program has found, and wait for its next orders; needs the token of the check."""
        report = self.parse(ProbeReport, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.probes.report(check, report))


HANDLERS: dict[str, type[RequestHandler]] = {"/api/pool-checks/{check}": ProbeHandler}
