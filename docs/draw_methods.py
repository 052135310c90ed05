"""Write the table of search methods into `reference/search-methods.md`, from their records.

python docs/draw_methods.py            rewrite the page where it is out of date
python docs/draw_methods.py --check    change nothing; exit code 1 where it is
"""

from __future__ import annotations

import sys

from generated import DOCS, between, keep_current

from kernel_backend.model.search.methods import BUILT_IN, SearchMethod

PAGE = DOCS / "reference" / "search-methods.md"
JUDGED = {"end": "at its end", "midway": "at the ends of rounds", "rungs": "at rungs"}


def row(method: SearchMethod) -> str:
    """Return a method's row of the table: its purpose, its options, its number of trials, and when it judges one."""
    name = f"{method.name}:CLASS" if method.own_class else method.name
    uses = [f"`--{field.replace('_', '-')}`" for field in method.uses if field != "source"]
    trials = str(method.trials or "its own number")
    sampler = "" if method.own_class or method.space == "counted" else method.sampler
    return f"| `{name}` | {method.summary} | {' '.join(uses)} | {trials} | {sampler} | {JUDGED[method.judged]} |"


def drawn(page: str) -> str:
    """Return the page with its table written anew."""
    head = "| method | what it does | its options | trials | sampler | judges a trial |\n|---|---|---|---|---|---|"
    table = "\n".join([head, *(row(method) for method in BUILT_IN if method.space != "none")])
    return between(page, "methods", table)


if __name__ == "__main__":
    sys.exit(keep_current({PAGE: drawn(PAGE.read_text(encoding="utf-8"))}, "the search methods"))
