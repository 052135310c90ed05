"""Handle the requests of the probes that a check of a pool runs on nodes."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.launch.probe import ProbeReport


class ProbeHandler(ApiHandler):
    """Handler to which the probes of a check report, authenticated by the token of that check."""

    async def authenticate(self) -> None:
        """Check the token of a check that is in progress, and return no user; raises Unauthenticated."""
        self.service.probes.check(self.path_args[0], self.bearer)

    async def post(self, check: str) -> None:
        """Report the answers of a node's probe, and wait for orders, with the token of the check."""
        report = self.parse(ProbeReport, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.probes.report(check, report))


HANDLERS: dict[str, type[RequestHandler]] = {"/api/pool-checks/{check}": ProbeHandler}
