"""Define the verbs of a shared cluster: quota, queue, nodes, audit and others."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Sequence
from typing import Any

from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Table, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.accounts import Account, AccountKind
from kernel_backend.model.cluster.quota_settings import label
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.values import nearest
from kernel_backend.model.views.overview import Overview
from kernel_backend.spec.options import Candidates, Option
from kernel_backend.text import cluster as words
from kernel_backend.text import state_text

ASKED = "asked"  # in place of a number: the priority that the experiment's owner has requested
POINTS = 28  # points of a curve over a week: one per six hours

_HELP = {
    "weight": ("W", "of two that both want more, one of weight 2 gets twice as much"),
    "guarantee": ("N", "slots guaranteed to them, which others may use while they do not need them"),
    "limit": ("N", "the most slots they may hold; none: no limit"),
    "slot_hours": ("H/T", "what they may use in a rolling window: 500/7d, 40/12h; none: no limit"),
    "max_slots_per_trial": ("N", "the most slots of one trial; none: no limit"),
    "priority": ("N", "the highest priority that they may request"),
    "storage": ("SIZE", "the most that their experiments may have on disk: 200MB, 500GB, 2TB; none: no limit"),
}


def _quota(call: Call) -> Answer:
    said, options, client, command = call.arguments.words, call.arguments, call.client, call.command
    action, rest = (said[0], said[1:]) if said else ("show", [])
    if action not in ("show", "set", "clear"):
        raise InvalidRequest(
            f"{command} has no {action}{nearest(action, ('show', 'set', 'clear'))}: show, set or clear"
        )
    given = {name: vars(options)[name] for name in Quota.model_fields if vars(options).get(name) is not None}
    if action == "show":
        if given:
            example = f"{command} set user NAME --{label(next(iter(given)))} 8"
            raise InvalidRequest(f"numbers are set with: {example}")
        return _show(client, rest, options.all, command)
    kind, name = _account(rest, f"{command} {action}")
    before = _find(client.accounts(), kind, name)
    if action == "set":
        bare = [label(each) for each, value in given.items() if value is True]
        if bare or not given:
            raise InvalidRequest(f"which {bare[0] if bare else 'number'}? write {command} set {kind} {name} --limit 8")
        after = client.set_quota(kind, name, words.set_numbers(given))
    else:
        valued = [f"--{label(each)} {value}" for each, value in given.items() if value is not True]
        if valued:
            raise InvalidRequest(f"clear takes no number, not {valued[0]}: write {command} clear {kind} {name} --limit")
        after = client.set_quota(kind, name, dict.fromkeys(given)) if given else client.clear_quota(kind, name)
    body = {"before": before.to_json(), "after": after.to_json()}
    return Answer(body, [Text(words.changed_lines(before, after, command))])


def _action(text: str, complete: Candidates = "") -> Option:
    return argument("words", nargs="*", metavar="ACTION", help=text, complete=complete)


def _show(client: Client, rest: Sequence[str], everyone: bool, command: str) -> Answer:
    body: dict[str, Any]
    if everyone and rest:
        raise InvalidRequest(f"--all shows everybody, not {' '.join(rest)} alone: leave one of them out")
    if rest:
        kind, name = _account(rest, f"{command} show")
        account = _find(client.accounts(), kind, name)
        use = client.usage(kind, name, points=POINTS)
        lines = [*words.quota_notes([account]), *words.account_lines(account, use)]
        body = {"account": account.to_json(), "use": use.to_json()}
        return Answer(body, [Table(words.QUOTA_HEAD, [words.quota_row(account)], ""), Text(lines)])
    if everyone:
        found = client.accounts()
        body = {"accounts": [each.to_json() for each in found]}
    else:
        me = client.me()
        found, body = list(me.accounts), me.to_json()
    rows = [words.quota_row(each) for each in found]
    return Answer(body, [Table(words.QUOTA_HEAD, rows, "no users or groups yet"), Text(words.quota_notes(found))])


def _account(rest: Sequence[str], command: str) -> tuple[AccountKind, str]:
    if len(rest) == 2:
        try:
            return words.account_kind(rest[0]), rest[1]
        except ValueError:
            pass
    found = f", not {' '.join(rest)}" if rest else ""
    raise InvalidRequest(f"{command} takes one account{found}: write {command} user ada, or {command} group vision")


def _find(accounts: Sequence[Account], kind: AccountKind, name: str) -> Account:
    """Return the account of this kind and name; a new, empty one if there is none.

    A quota may be set before the account is used.
    """
    nobody = {"kind": kind, "name": name, "quota": Quota(), "use": {"held": 0, "decayed": 0.0}}
    found = (each for each in accounts if (each.kind, each.name) == (kind, name))
    return next(found, Account.model_validate(nobody))


def _queue(call: Call) -> Answer:
    said, client, command = call.arguments.words, call.client, call.command
    if not said:
        found, now = client.queue(), time.time()
        rows = words.queue_rows(found, now)
        return Answer({"queue": found}, [Table(words.queue_head(found), rows, "nothing waits")])
    action, rest = said[0], said[1:]
    if action == "priority" and len(rest) == 2:
        number = call.resolve(rest[0]).experiment
        asked = None if rest[1] == ASKED else _whole(rest[1])
        before, after = client.experiment(number), client.set_priority(number, asked)
    elif action == "first" and len(rest) == 1:
        number = call.resolve(rest[0]).experiment
        before, after = client.experiment(number), client.put_first(number)
    else:
        near = nearest(action, ("priority", "first"))
        known = f"{command} priority 12 5, or {command} first 12"
        raise InvalidRequest(f"{command} {' '.join(said)}: there is no such action{near}; write {known}")
    was, become = _priority(before), _priority(after)
    change = f"{words.priority_text(was)} -> {words.priority_text(become)}"
    lines = [f"#{number}: priority {change}; it is {state_text(after)}"]
    person, had = client.me().person, before.experiment.priority
    if was != become and (had is None or person.admin):
        given = had is None and after.experiment.priority is not None and person.name != before.experiment.owner
        back = f"first {number}" if words.priority_text(was) == "first" else f"priority {number} {was}"
        lines.append(f"to take it back: {command} {f'priority {number} {ASKED}' if given else back}")
    return Answer(after, [Text(lines)])


def _priority(overview: Overview) -> int:
    experiment = overview.experiment
    return experiment.config.priority if experiment.priority is None else experiment.priority


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(f"priority {text}: must be a whole number") from None


def _nodes(call: Call) -> Answer:
    said, client, command = call.arguments.words, call.client, call.command
    if not said:
        found = client.nodes()
        rows = [words.node_row(each, time.time()) for each in found]
        notes = words.node_notes(found, command, time.time())
        return Answer({"nodes": found}, [Table(words.NODE_HEAD, rows, "there are no nodes"), Text(notes)])
    if said[0] not in ("drain", "undrain") or len(said) != 2:
        near = nearest(said[0], ("drain", "undrain"))
        known = f"{command} drain NAME, or {command} undrain NAME"
        raise InvalidRequest(f"{command} {' '.join(said)}: there is no such action{near}; write {known}")
    node = client.drain(said[1]) if said[0] == "drain" else client.undrain(said[1])
    return Answer(node, [Text(words.drained_lines(node, command, time.time()))])


def _audit(call: Call) -> Answer:
    options, command = call.arguments, call.command
    if options.words:
        raise InvalidRequest(f"{command} takes no {options.words[0]!r}: --search, --limit and --before choose lines")
    found = call.client.audit(options.before, options.limit, options.search)
    rows = [words.audit_row(each) for each in found]
    whole = len(found) < options.limit or found[-1].seq == 1
    same = f" --search {shlex.quote(options.search)}" if options.search else ""
    more = [] if whole else [f"older ones: {command}{same} --before {found[-1].seq}"]
    none = f"no line of the log has {options.search}" if same else "nothing has been done to what others have"
    return Answer({"audit": found}, [Table(words.AUDIT_HEAD, rows, none), Text(more)])


_QUOTA_ACTIONS = (
    "nothing: your own; show user NAME, show group NAME; set user NAME and clear user NAME with numbers below"
)
NUMBERS = "numbers, of quota set; quota clear takes those that are named, or all"
VERBS = (
    Verb(
        "quota",
        "show your quotas and what you use of them; admins set quotas",
        _quota,
        (
            _action(_QUOTA_ACTIONS),
            *(
                argument(f"--{label(name)}", metavar=metavar, nargs="?", const=True, help=text, group=NUMBERS)
                for name, (metavar, text) in _HELP.items()
            ),
            argument("--all", action="store_true", help="quota show: all users and groups (admins)"),
            JSON,
        ),
        (
            "quota",
            "quota show --all",
            "quota show group vision",
            "quota set user ada --limit 8 --guarantee 4 --slot-hours 500/7d",
            "quota set group vision --limit none",
            "quota clear user ada --limit",
            "quota clear user ada",
        ),
        client=("me", "accounts", "usage", "set_quota", "clear_quota"),
    ),
    Verb(
        "queue",
        "list waiting experiments with position and reason; change priorities",
        _queue,
        (_action("nothing: the queue; priority NUMBER N, first NUMBER or priority NUMBER asked (admins)"), JSON),
        ("queue", "queue priority 12 5", "queue first 12"),
        client=("queue", "set_priority", "put_first"),
    ),
    Verb(
        "nodes",
        "list nodes, their state, their slots in use and by whom; drain a node",
        _nodes,
        (
            _action("nothing: the nodes; drain NAME, undrain NAME (admins), which trusts a suspect one, too", "node"),
            JSON,
        ),
        ("nodes", "nodes drain gpu7", "nodes undrain gpu7"),
        client=("nodes", "drain", "undrain"),
    ),
    Verb(
        "audit",
        "list admins' changes to other users' experiments and to shared objects",
        _audit,
        (
            argument("words", nargs="*", help=argparse.SUPPRESS),
            argument("--limit", metavar="N", type=int, default=50, help="maximum number of entries, newest first [50]"),
            argument("--before", metavar="NO", type=int, help="entries before this number of the log"),
            argument("--search", metavar="TEXT", default="", help="entries that contain all of these words"),
            JSON,
        ),
        ("audit", "audit --limit 10 --json"),
        host="terminal",
        client=("audit",),
    ),
)
