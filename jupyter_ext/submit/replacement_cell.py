"""Offer a rewritten cell in place of a rejected one, displayed below it with a button in JupyterLab."""

from __future__ import annotations

from kernel_backend.errors import InvalidDefinition

MIME_TYPE = "application/vnd.daylight.cell+json"


def offered(refused: InvalidDefinition, line: str) -> InvalidDefinition:
    """Display the rewritten cell that an error suggests, and return an error whose message does not repeat the cell.

    An error without a suggested cell is returned unchanged.
    """
    if "cell" not in refused.details:
        return refused
    from IPython.display import display

    text = f"%%dlsubmit {line.strip()}".rstrip() + "\n" + refused.details["cell"]
    display({MIME_TYPE: {"cell": text}, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
    return InvalidDefinition(f"{refused.message.removesuffix(refused.details['shown'])}, shown above")
