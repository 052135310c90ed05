"""Show the Mermaid state diagrams of a page as they are written."""

from __future__ import annotations

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Register Mermaid as plain text."""
    app.add_lexer("mermaid", TextLexer)
    return {"parallel_read_safe": True}
