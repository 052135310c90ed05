"""Handle requests of the programs (holders) that run a search's gangs in pods which the search keeps."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.launch.holder import HolderReport


class HolderHandler(ApiHandler):
    """Handler for holders: programs in the pods that a search keeps, which start the gangs of its trials there.

    Holders report to it and get orders. They authenticate by the token of their allocation (the kept pods).
    """

    async def authenticate(self) -> None:
        """Check that the request carries the allocation's token; return None, as there is no user.

        Raises Unauthenticated.
        """
        self.service.holders.check(self.path_args[0], self.bearer)

    async def post(self, id: str) -> None:
        """Report which gangs began or ended in a pod that a search keeps for its trials, and wait for orders to it.

        The request needs the token of the allocation (the search's kept pods).
        """
        report = self.parse(HolderReport, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.holders.report(id, self.bearer, report))


HANDLERS: dict[str, type[RequestHandler]] = {"/api/allocations/{allocation}": HolderHandler}
