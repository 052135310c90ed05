"""Handle requests of the programs (holders) that run a search's gangs in pods which the search keeps."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.launch.holder import HolderReport


class HolderHandler(ApiHandler):
    """Handler to which the holder in a pod reports; it authenticates by the token of its allocation."""

    async def authenticate(self) -> None:
        """Check that the request carries the allocation's token; return None, as there is no user.

        Raises Unauthenticated.
        """
        self.service.holders.check(self.path_args[0], self.bearer)

    async def post(self, id: str) -> None:
        """Report what has happened in a pod that a search keeps, and wait for orders; needs the allocation's token."""
        report = self.parse(HolderReport, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.holders.report(id, self.bearer, report))


HANDLERS: dict[str, type[RequestHandler]] = {"/api/allocations/{allocation}": HolderHandler}
