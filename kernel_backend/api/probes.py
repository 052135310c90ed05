"""Handle the requests of the probes that a check of a pool runs on nodes."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.launch.probe import ProbeReport


class ProbeHandler(ApiHandler):
    """Handler to which the probe programs of a check report; each request carries the token of that check."""

    async def authenticate(self) -> None:
        """Verify the token of a check in progress, and return no user; raises Unauthenticated."""
        self.service.probes.check(self.path_args[0], self.bearer)

    async def post(self, check: str) -> None:
        """Store the answers of a node's probe program, and wait for orders; needs the token of the check."""
        report = self.parse(ProbeReport, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.probes.report(check, report))


HANDLERS: dict[str, type[RequestHandler]] = {"/api/pool-checks/{check}": ProbeHandler}
