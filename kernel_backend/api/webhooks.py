"""List and add webhooks."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.webhooks.records import NewWebhook


class WebhooksHandler(ApiHandler):
    """Handler that lists and adds webhooks."""

    async def get(self) -> None:
        """List the user's webhooks, or with `everyone=1` those of all users (admins); secrets are left out."""
        everyone = self.maybe_integer("everyone") or 0
        self.reply({"webhooks": await self.service.webhooks.webhooks(self.user, bool(everyone))})

    async def post(self) -> None:
        """Add a webhook; the reply is the only one that contains its secret."""
        added = await self.service.webhooks.add(self.user, self.parse(NewWebhook), self.request_id)
        self.set_status(201)
        self.reply(added)


HANDLERS: dict[str, type[RequestHandler]] = {"/api/webhooks": WebhooksHandler}
