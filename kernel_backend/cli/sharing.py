"""The verbs about a shared cluster: quota, queue, nodes, audit."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from jupyter_ext import sharing
from kernel_backend.cli.output import print_json, print_table, tell
from kernel_backend.cli.verb import OK, Verb, takes_json
from kernel_backend.client import Client
from kernel_backend.model.options import OptionParser


def _verb(name: str, text: str, examples: tuple[str, ...], actions: str = "") -> Verb:
    answer, options = sharing.ACTS[name]

    def act(given: Namespace) -> int:
        found = answer(Client.connect(), given.words, given, f"daylight {name}")
        if given.json:
            print_json(found.body)
        else:
            if found.head:
                print_table(found.head, found.rows, found.empty)
            for line in found.lines:
                tell(line)
        return OK

    return Verb(name, text, act, _arguments(options, actions), examples, mixed=True)


def _arguments(options: Callable[[OptionParser], None], actions: str) -> Callable[[OptionParser], None]:
    def add(parser: OptionParser) -> None:
        if actions:
            parser.add_argument("words", nargs="*", metavar="ACTION", help=actions)
        options(parser)
        takes_json(parser)
        if not actions:
            parser.set_defaults(words=[])

    return add


VERBS = (
    _verb(
        "quota",
        "show what you may have and have in use; admins set it",
        (
            "quota",
            "quota show --all",
            "quota show group vision",
            "quota set user ada --limit 8 --guarantee 4 --slot-hours 500/7d",
            "quota set group vision --limit none",
            "quota clear user ada --limit",
            "quota clear user ada",
        ),
        "nothing: your own; show user NAME, show group NAME; set user NAME and clear user NAME with numbers below",
    ),
    _verb(
        "queue",
        "list what waits, with its place and why; give it another turn",
        ("queue", "queue priority 12 5", "queue first 12"),
        "nothing: the queue; priority NUMBER N, first NUMBER or priority NUMBER asked (admins)",
    ),
    _verb(
        "nodes",
        "list where experiments run, what is in use and by whom; drain a node",
        ("nodes", "nodes drain gpu7", "nodes undrain gpu7"),
        "nothing: the nodes; drain NAME or undrain NAME (admins)",
    ),
    _verb("audit", "list what admins have done to what others have", ("audit", "audit --limit 10 --json")),
)
