"""Serve the cluster page at the service's root: a short HTML document, and the JavaScript bundle that renders it."""

from __future__ import annotations

from pathlib import Path

from tornado.web import RequestHandler

from kernel_backend.api.confirm_page import ConfirmHandler
from kernel_backend.api.pages import BUNDLE, ICON, Page, PublicPage, built
from kernel_backend.errors import NotFound

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
YEAR_S = 365 * 86400
DOCUMENT = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>Daylight</title>
    <link rel="icon" href="{icon}">
    <link rel="stylesheet" href="static/{style}">
    <script type="module" src="static/{script}"></script>
  </head>
  <body>
    <div id="daylight"></div>
    <noscript>This page needs JavaScript. On the command line: daylight quota, daylight queue, daylight nodes</noscript>
  </body>
</html>
"""


class ClusterHandler(Page):
    """Handler of the cluster page's HTML document, which is the same for all users: its data comes from the API."""

    async def prepare(self) -> None:
        """Require sign-in if the service runs on a hub; otherwise serve the document to everybody.

        That is safe, since the document has no data: the page gets them by API requests, which carry a token.
        """
        if self.settings["browsers"] is None:
            self.prepared = self.known = True
        else:
            await super().prepare()

    def get(self) -> None:
        """Return the HTML document, which names the newest bundle, so that an update is used at the next page load."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(DOCUMENT.format(icon=ICON, style=_built(".css"), script=_built(".js")))


class BundleHandler(PublicPage):
    """Handler of the page's script and style sheet, which are the same for all users.

    They need no sign-in: browsers request them in another way than pages, so that a redirect to a sign-in page is of no
    use.
    """

    def get(self, name: str) -> None:
        """Send the script or style sheet with the file name `name`; browsers may cache it without limit.

        The name contains a digest of the content, so a new version has a new name.
        """
        if name not in {path.name for path in BUNDLE.glob("main-*")}:
            raise NotFound(f"there is no {name}: the page has become a newer one, load it again")
        self.set_header("Cache-Control", f"public, max-age={YEAR_S}, immutable")
        self.set_header("Content-Type", TYPES[Path(name).suffix])
        self.finish((BUNDLE / name).read_bytes())


class SlashHandler(PublicPage):
    """Handler that redirects from the cluster page's URL without trailing slash, where relative links do not work.

    It must not require sign-in: the sign-in cookie is valid only for the path with the slash, so a browser does not
    send it here and would be redirected to the hub's sign-in page again and again.
    """

    def get(self) -> None:
        """Redirect to the same URL with a trailing slash."""
        self.redirect(f"{self.request.path}/")


PAGES: list[tuple[str, type[RequestHandler]]] = [
    ("", SlashHandler),
    ("/", ClusterHandler),
    (r"/confirm/([0-9]{1,9})-([A-Za-z0-9_-]{43})", ConfirmHandler),
    (r"/static/(main-[A-Z0-9]+\.(?:js|css))", BundleHandler),
]


def _built(suffix: str) -> str:
    if (name := built(suffix)) is None:
        raise NotFound(f"the page is not built: there is no main-*{suffix} in {BUNDLE}; npm run build makes it")
    return name
