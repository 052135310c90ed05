"""Open the cluster page, or that of an experiment, in a browser (`daylight open`)."""

from __future__ import annotations

import html
import webbrowser

from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.home import home
from kernel_backend.model.ids import parse_subject
from kernel_backend.reconnect import to_stderr

# Other users can read a browser's command line, so it names this file, which only its owner can read.
REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url={url}"><title>Daylight</title>'


def _open(call: Call) -> Answer:
    address = discovery.start(say=to_stderr)
    # Also checks that the service itself listens, before the page's server gets the token.
    pages = str(Client(lambda: address).health().get("pages", ""))
    given = None if call.arguments.reference is None else call.reference
    below = "/" if given is None else f"/experiments/{given.experiment}"
    if not address.pid:
        return _at_the_hub(pages, below)
    url = f"{address.url}{below}#token={address.token}"
    if call.json:
        return Answer({"url": url})
    page = home() / "open.html"
    discovery.write_private(page, REDIRECT.format(url=html.escape(url)))
    if webbrowser.open(page.as_uri()):
        return Answer(None, [Text([f"{address.url}{below.rstrip('/')} opens in your browser"])])
    alone = "no browser here; open this address in one, and show it to no other user:"
    return Answer(None, [Text([alone, url])])


def _at_the_hub(pages: str, below: str) -> Answer:
    """Return the address of a page that the hub serves; raises InvalidRequest with its path if that is all we know."""
    if not pages.startswith("http"):
        raise InvalidRequest(
            "the hub serves this page, and signs you in: choose Services, then daylight, in its menu"
            + (f", or open {pages}{below} there" if pages else "")
        )
    return Answer({"url": f"{pages}{below}"}, [Text([f"{pages}{below}"])])


OPEN = Verb(
    "open",
    "open the page of slots, queue and nodes in a browser, or that of an experiment",
    _open,
    (
        argument(
            "reference",
            nargs="?",
            help="the experiment to open, as 12",
            metavar="NUMBER",
            type=parse_subject,
            complete="experiment",
        ),
        JSON,
    ),
    ("open", "open 12", "open --json"),
    host="terminal",
)
