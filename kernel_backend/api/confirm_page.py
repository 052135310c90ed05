"""Serve the page on which the owner of a mail address confirms that it is to get a webhook's messages."""

from __future__ import annotations

from tornado.escape import xhtml_escape

from kernel_backend.api.pages import ICON, POLICY, PublicPage, built
from kernel_backend.model.webhooks.records import StoredWebhook

DOCUMENT = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>Daylight</title>
    <link rel="icon" href="{icon}">
    <link rel="stylesheet" href="../static/{style}">
  </head>
  <body>
    <div class="dl-page">
      <header class="dl-page-head"><h1><img src="{icon}" alt="" width="20" height="20">Daylight</h1></header>
      <main class="dl-page-body">
        <section class="dl-wide dl-ask">
          <h2>Mail from Daylight</h2>
{body}
        </section>
      </main>
    </div>
  </body>
</html>
"""
QUESTION = """\
          <p>{owner} wants mail about {whose} trainings ({events}) sent to <b>{address}</b>.</p>
          <p class="dl-dim">If you do not know of it, close this page: nothing is sent.</p>
          <form method="post" class="dl-ask-buttons"><button class="dl-push">Send it to this address</button></form>"""
ANSWER = "          <p>{address} gets mail about {whose} trainings from now on. {owner} can end that.</p>"


class ConfirmHandler(PublicPage):
    """Handler of the link in a mail: the secret in it is its right, since who owns the address may be no user.

    Only the page's button confirms, as programs that look for harmful mail open its links.
    """

    def set_default_headers(self) -> None:
        """Set the headers of pages, and allow the form."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", POLICY.replace("form-action 'none'", "form-action 'self'"))

    async def get(self, id: str, secret: str) -> None:
        """Ask whether the address is to get the webhook's messages."""
        self._say(QUESTION, await self.service.webhooks.asking(int(id), secret))

    async def post(self, id: str, secret: str) -> None:
        """Confirm the address."""
        self._say(ANSWER, await self.service.webhooks.confirm(int(id), secret))

    def _say(self, body: str, hook: StoredWebhook) -> None:
        said = {
            "owner": hook.owner,
            "whose": "everyone's" if hook.everyone else "their",
            "events": ", ".join(hook.events),
            "address": hook.url.partition(":")[2],
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        shown = body.format(**{name: xhtml_escape(text) for name, text in said.items()})
        self.finish(DOCUMENT.format(body=shown, icon=ICON, style=built(".css") or ""))
