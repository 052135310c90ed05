"""Receive an attempt's records from its launcher, and answer with an instruction."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import Unauthenticated
from kernel_backend.model.ids import parse_attempt
from kernel_backend.model.reports import Delivery


class RecordsHandler(ApiHandler):
    """Handler to which an attempt's launcher delivers the spooled records."""

    async def authenticate(self) -> None:
        """Check the attempt's own token, and return no user; raises Unauthenticated."""
        if not self.bearer:
            raise Unauthenticated("no valid token: send the attempt's own as Authorization: Bearer")
        await self.service.check_attempt(parse_attempt(self.path_args[0]), self.bearer)

    async def post(self, key: str) -> None:
        """Deliver records of an attempt (an empty list is a heartbeat), with the attempt's own token."""
        delivery = self.parse(Delivery, lambda value, place: True)  # unknown fields of a newer version are ignored
        self.reply(await self.service.deliver(parse_attempt(key), self.bearer, delivery))


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/attempts/{key}/records": RecordsHandler,
}
