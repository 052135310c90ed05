"""Open the cluster page in a browser (`daylight open`)."""

from __future__ import annotations

import html
import webbrowser

from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Text
from kernel_backend.commands.verb import JSON, Call, Verb
from kernel_backend.errors import InvalidRequest
from kernel_backend.home import home
from kernel_backend.reconnect import to_stderr

# Other users can read a browser's command line, so it names this file, which only its owner can read.
REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url={url}"><title>Daylight</title>'


def _open(call: Call) -> Answer:
    address = discovery.start(say=to_stderr)
    if not address.pid:
        raise InvalidRequest("the hub serves this page, and signs you in: choose Services, then daylight, in its menu")
    Client(lambda: address).health()  # checks that the service itself listens, before the page's server gets the token
    url = f"{address.url}/#token={address.token}"
    if call.json:
        return Answer({"url": url})
    page = home() / "open.html"
    discovery.write_private(page, REDIRECT.format(url=html.escape(url)))
    if webbrowser.open(page.as_uri()):
        return Answer(None, [Text([f"{address.url} opens in your browser"])])
    alone = "no browser here; open this address in one, and show it to no other user:"
    return Answer(None, [Text([alone, url])])


OPEN = Verb(
    "open",
    "open the page of slots, queue and nodes in a browser",
    _open,
    (JSON,),
    ("open", "open --json"),
    host="terminal",
)
