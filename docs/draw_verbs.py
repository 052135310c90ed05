"""Write verbs into `reference/commands.md`, `magics.md` and `http.md`, from their records.

python docs/draw_verbs.py            rewrite the pages where they are out of date
python docs/draw_verbs.py --check    change nothing; exit code 1 where one is
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS

from generated import DOCS, between, keep_current

from jupyter_ext.magics.commands import VERBS
from kernel_backend.cli import verbs
from kernel_backend.commands.verb import Verb
from kernel_backend.routes import ENDPOINTS
from kernel_backend.routes.operations import Operation
from kernel_backend.spec.option_parser import options_for
from kernel_backend.spec.options import OPTIONS, Option

COMMANDS, MAGICS, HTTP = (DOCS / "reference" / f"{name}.md" for name in ("commands", "magics", "http"))


def commands() -> str:
    """Return the table of the verbs of the command line, each with a link to its arguments."""
    rows = [f"| [`daylight {verb.name}`](#{verb.name}) | {cell(verb.help)} |" for verb in verbs().values()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def arguments() -> str:
    """Return a section for each verb of the command line: examples, and its arguments with their help."""
    return "\n\n".join("\n".join(section(verb)) for verb in verbs().values())


def section(verb: Verb) -> list[str]:
    """Return the lines of a verb's section; the options of a submission are on a page of their own."""
    own = [option for option in options_for("terminal", verb.arguments) if option not in OPTIONS]
    shown = [option for option in own if option.help != SUPPRESS and option.dest != "json"]
    lines = [f"### {verb.name}", "", *(f"    daylight {each}" for each in verb.examples_for("terminal"))]
    if shown:
        lines += ["", "| argument | meaning |", "|---|---|"]
        lines += [f"| `{words(option)}` | {cell(option.help)} |" for option in shown]
    if any(option in OPTIONS for option in verb.arguments):
        lines += ["", "And the [options of a submission](options.md)."]
    return lines


def words(option: Option) -> str:
    """Return how an argument is written on the command line, with the name of its value."""
    value = option.kwargs.get("metavar") or "\\|".join(option.kwargs.get("choices", ()))
    if not option.flags[0].startswith("-"):
        return str(value or option.dest.upper())
    return f"{', '.join(option.flags)} {value}".strip() if "action" not in option.kwargs or value else option.flags[0]


def cell(text: str) -> str:
    """Return a text as a cell of a Markdown table."""
    return text.replace("%%", "%").replace("|", "\\|")


def magics() -> str:
    """Return the table of the verbs of `%dl`."""
    rows = [f"| `%dl {verb.usage()}` | {verb.help} |" for verb in VERBS.values()]
    return "\n".join(["| magic | what it does |", "|---|---|", *rows])


def routes(page: str) -> str:
    """Return the table of the routes that change something by a verb, without those that the page describes by hand."""
    by_hand = re.sub("<!-- verbs -->.*?<!-- end -->", "", page, flags=re.DOTALL)
    rows = [
        f"| `{method} {endpoint.path}` | {operation.does} | {fields(operation)} | {'yes' if operation.page else ''} |"
        for endpoint in ENDPOINTS
        for method, operation in endpoint.operations.items()
        if operation.verb and method != "GET" and f"`{method} {endpoint.path}`" not in by_hand
    ]
    return "\n".join(["| route | what it does | fields of the body | pages may call it |", "|---|---|---|---|", *rows])


def fields(operation: Operation) -> str:
    """Return the names of the body's fields."""
    return " ".join(f"`{name}`" for name in operation.body.model_fields) if isinstance(operation.body, type) else ""


if __name__ == "__main__":
    http = HTTP.read_text(encoding="utf-8")
    pages = {
        COMMANDS: between(between(COMMANDS.read_text(encoding="utf-8"), "verbs", commands()), "arguments", arguments()),
        MAGICS: between(MAGICS.read_text(encoding="utf-8"), "verbs", magics()),
        HTTP: between(http, "verbs", routes(http)),
    }
    sys.exit(keep_current(pages, "the table of verbs"))
