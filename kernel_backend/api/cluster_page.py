"""Serve the pages of the cluster, of models and of experiments: short HTML documents, and their JavaScript."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

from tornado.escape import xhtml_escape
from tornado.web import RequestHandler

from kernel_backend.api.confirm_page import ConfirmHandler
from kernel_backend.api.pages import BUNDLE, ICON, POLICY, Page, PublicPage, built
from kernel_backend.errors import NotFound
from kernel_backend.identity.base import Browsers

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
    <link rel="stylesheet" href="{root}static/{style}">
    <script type="module" src="{root}static/{script}"></script>
  </head>
  <body>
    <div id="daylight" data-links="{links}"></div>
    <noscript>This page needs JavaScript. On the command line: {instead}</noscript>
  </body>
</html>
"""


class DocumentHandler(Page):
    """Base class of handlers of an HTML document, which is the same for all users: its data comes from the API."""

    page = ""  # name of its script and style sheet
    root = ""  # relative URL of the service's root
    instead = ""  # commands with the same data

    async def prepare(self) -> None:
        """Require sign-in if the service runs on a hub; otherwise serve the document to everybody.

        That is safe, since the document has no data: the page gets them by API requests, which carry a token.
        """
        if self.settings["browsers"] is None:
            self.prepared = self.known = True
        else:
            await super().prepare()

    def get(self, *parts: str) -> None:
        """Return the HTML document, which names the newest bundle, so that an update is used at the next page load."""
        browsers: Browsers | None = self.settings["browsers"]
        links = {**({} if browsers is None else browsers.links), **_documentation()}
        self.set_header("Content-Type", "text/html; charset=utf-8")
        document = DOCUMENT.format(
            icon=ICON,
            root=self.root,
            style=_built(".css", self.page),
            script=_built(".js", self.page),
            links=xhtml_escape(json.dumps(links)),
            instead=self.instead,
        )
        self.finish(document)


class ClusterHandler(DocumentHandler):
    """Handler of the cluster page."""

    page = "main"
    instead = "daylight quota, daylight queue, daylight nodes"


class ModelsHandler(DocumentHandler):
    """Handler of the page of registered models."""

    page = "models"
    instead = "daylight models"


class ExperimentHandler(DocumentHandler):
    """Handler of the page of an experiment, whose document is the same whether or not there is such an experiment."""

    page = "experiment"
    root = "../"
    instead = "daylight show"

    def set_default_headers(self) -> None:
        """Set the headers of pages, and allow pictures of artifacts, which the page gets by the API."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", POLICY.replace("img-src 'self'", "img-src 'self' blob:"))


class BundleHandler(PublicPage):
    """Handler of the pages' scripts and style sheets, which are the same for all users.

    They need no sign-in: browsers request them in another way than pages, so that a redirect to a sign-in page is of no
    use.
    """

    def get(self, name: str) -> None:
        """Send the script or style sheet with the file name `name`; browsers may cache it without limit.

        The name contains a digest of the content, so a new version has a new name.
        """
        if name not in {path.name for path in BUNDLE.glob("*-*")}:
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
    ("/models", ModelsHandler),
    (r"/confirm/([0-9]{1,9})-([A-Za-z0-9_-]{43})", ConfirmHandler),
    (r"/experiments/[0-9]{1,9}", ExperimentHandler),
    (r"/static/((?:main|models|experiment|part)-[A-Z0-9]+\.(?:js|css))", BundleHandler),
]


def _documentation() -> dict[str, str]:
    """Return the URL of this version's documentation, by the text of its link; empty if it is not known."""
    try:
        urls = dict(each.split(", ", 1) for each in metadata.metadata("daylight").get_all("Project-URL", ()))
    except metadata.PackageNotFoundError:
        return {}
    return {"Docs": urls["Documentation"]} if "Documentation" in urls else {}


def _built(suffix: str, page: str) -> str:
    if (name := built(suffix, page)) is None:
        raise NotFound(f"the page is not built: there is no {page}-*{suffix} in {BUNDLE}; npm run build makes it")
    return name
