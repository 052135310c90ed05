"""Write the tables of verbs into `reference/magics.md` and `reference/http.md`, from their records.

python docs/draw_verbs.py            rewrite the pages where they are out of date
python docs/draw_verbs.py --check    change nothing; exit code 1 where one is
"""

from __future__ import annotations

import sys

from generated import DOCS, between, keep_current

from jupyter_ext.magics.commands import VERBS
from kernel_backend.routes import ENDPOINTS, Operation

MAGICS, HTTP = DOCS / "reference" / "magics.md", DOCS / "reference" / "http.md"


def magics() -> str:
    """Return the table of the verbs of `%dl`."""
    rows = [f"| `%dl {verb.usage()}` | {verb.help} |" for verb in VERBS.values()]
    return "\n".join(["| magic | what it does |", "|---|---|", *rows])


def routes() -> str:
    """Return the table of the routes that call a verb."""
    rows = [
        f"| `{method} {endpoint.path}` | {operation.does} | {fields(operation)} | {'yes' if operation.page else ''} |"
        for endpoint in ENDPOINTS
        for method, operation in endpoint.operations.items()
        if operation.verb
    ]
    return "\n".join(["| route | what it does | fields of the body | pages may call it |", "|---|---|---|---|", *rows])


def fields(operation: Operation) -> str:
    """Return the names of the body's fields."""
    return " ".join(f"`{name}`" for name in operation.body.model_fields) if isinstance(operation.body, type) else ""


if __name__ == "__main__":
    pages = {
        MAGICS: between(MAGICS.read_text(encoding="utf-8"), "verbs", magics()),
        HTTP: between(HTTP.read_text(encoding="utf-8"), "verbs", routes()),
    }
    sys.exit(keep_current(pages, "the table of verbs"))
