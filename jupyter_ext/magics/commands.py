"""Run `%dl` lines: the verbs that notebooks share with the command line, and their help."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_ext.magics.render import Cell
from jupyter_ext.values.awaited import AwaitedValues
from kernel_backend.commands.table import VERBS as ALL
from kernel_backend.commands.table import listing
from kernel_backend.commands.verb import Call, Verb
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.values import nearest
from kernel_backend.text.terminal import tell

VERBS = {name: verb for name, verb in ALL.items() if verb.host in ("both", "notebook")}
_WIDTH = 100  # characters of a line that fits below a cell
HELP = "\n".join(
    [
        "%dl VERB ...",
        *listing(VERBS.values(), Verb.usage, _WIDTH),
        "",
        "  %dl help VERB: the help of one",
    ]
)


def run_command(tokens: Sequence[str], awaited: AwaitedValues) -> None:
    """Run one `%dl` line; raises InvalidRequest for an unknown verb, with the most similar verb.

    `awaited` binds values of jobs in the notebook.
    """
    if not tokens or tokens[0] in ("help", "--help", "-h"):
        tell(_help(*tokens[1:2]))
        return
    name, *rest = tokens
    if name not in VERBS:
        raise InvalidRequest(f"%dl has no verb {name!r}{nearest(name, VERBS)}; it has: {' '.join(VERBS)}")
    if {"--help", "-h"} & set(rest):
        tell(_help(name))
        return
    arguments = VERBS[name].parse(rest, "notebook")
    console = Cell(arguments, awaited)
    console.show(VERBS[name].run(Call(arguments, console)))


def _help(name: str = "") -> str:
    return VERBS[name].parser("notebook").format_help().rstrip() if name in VERBS else HELP
