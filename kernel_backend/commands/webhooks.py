"""Define the verb `webhook`, which adds addresses that are notified of events of experiments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kernel_backend.client import Client
from kernel_backend.commands.answer import FAILED, OK, Answer, Table, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.values import nearest
from kernel_backend.model.webhooks.records import ENDS, EVENTS, Webhook
from kernel_backend.model.webhooks.rules import redacted
from kernel_backend.text import webhooks as words

ACTIONS = ("list", "add", "remove", "test")
EXAMPLE = "https://example.org/hook"


def _webhook(call: Call) -> Answer:
    said, command = call.arguments.words, call.command
    action, rest = (said[0], said[1:]) if said else ("list", [])
    if action not in ACTIONS:
        raise InvalidRequest(f"{command} has no {action}{nearest(action, ACTIONS)}: {', '.join(ACTIONS)}")
    if action != "add" and (call.arguments.events is not None or call.arguments.secret is not None):
        raise InvalidRequest(f"--events and --secret are options of {command} add URL")
    if action == "list" and not rest:
        return _list(call)
    if len(rest) != 1:
        example = EXAMPLE if action == "add" else "1"
        raise InvalidRequest(f"{command} {action} takes one address or id: write {command} {action} {example}")
    if action == "add":
        return _add(call, rest[0])
    found = _find(call.client, rest[0], command)
    return _remove(call, found) if action == "remove" else _test(call, found)


def _list(call: Call) -> Answer:
    found = call.client.webhooks(everyone=call.arguments.everyone)
    table = Table(words.HEAD, [words.webhook_row(each) for each in found], "there are no webhooks")
    return Answer({"webhooks": found}, [table])


def _add(call: Call, url: str) -> Answer:
    given = call.arguments.events
    events = ENDS if given is None else tuple(each.strip() for each in given.split(",") if each.strip())
    if unknown := [each for each in events if each not in EVENTS]:
        raise InvalidRequest(
            f"--events {unknown[0]}: there is no such event{nearest(unknown[0], EVENTS)}; there are {', '.join(EVENTS)}"
        )
    added = call.client.add_webhook(url, events, _secret(call.arguments.secret), call.arguments.everyone)
    return Answer(added, [Text(words.added_lines(added, call.command))])


def _remove(call: Call, id: int) -> Answer:
    removed = call.client.remove_webhook(id)
    return Answer(removed, [Text([f"webhook {removed.id}, {removed.url}, is removed"])])


def _test(call: Call, id: int) -> Answer:
    tried = call.client.test_webhook(id)
    return Answer(tried, [Text([words.tried_line(tried)])], code=FAILED if tried.problem else OK)


def _find(client: Client, named: str, command: str) -> int:
    """Return the id of the webhook that `named` names by its id or address.

    `command` is the beginning of the command line, for the message of the error. Raises InvalidRequest unless exactly
    one webhook has this address.
    """
    if named.isdecimal():
        return int(named)
    hidden = redacted(named)
    found: Sequence[Webhook] = [each for each in client.webhooks() if each.url == hidden]
    if len(found) != 1:
        several = "several webhooks have" if found else "no webhook has"
        raise InvalidRequest(f"{several} the address {hidden}: name one by its id, which {command} list shows")
    return found[0].id


def _secret(file: str | None) -> str:
    if file is None:
        return ""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"--secret {file}: cannot be read: {error}") from None
    if not text.strip():
        raise InvalidRequest(f"--secret {file}: the file is empty")
    return text.strip()


WEBHOOK = Verb(
    "webhook",
    "be notified at an address when an experiment ends: list, add, remove and test webhooks",
    _webhook,
    (
        argument(
            "words",
            nargs="*",
            metavar="ACTION",
            help="nothing or list: the webhooks; add URL (http, https, mailto); remove or test an id or URL",
        ),
        argument(
            "--events",
            metavar="EVENTS",
            help=f"of {', '.join(EVENTS)}, separated by commas [{','.join(ENDS)}]",
            group="settings, of webhook add",
        ),
        argument(
            "--secret",
            metavar="FILE",
            help="file with the secret of the signatures, - for standard input [one is made]",
            complete="file",
            group="settings, of webhook add",
        ),
        argument(
            "--everyone", action="store_true", help="everyone's experiments, or with list everyone's webhooks (admins)"
        ),
        JSON,
    ),
    (
        "webhook",
        f"webhook add {EXAMPLE}",
        f"webhook add {EXAMPLE} --events failed,paused",
        "webhook test 1",
        "webhook remove 1",
    ),
    client=("webhooks", "add_webhook", "remove_webhook", "test_webhook"),
)
