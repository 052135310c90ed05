"""Escape control characters in text from others, so that the text cannot control a terminal."""

from __future__ import annotations

import re

# Control characters except tab and line break, and characters that change the direction of text.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Colours and other styles, and the characters that redraw a progress bar.
_LOG = re.compile(r"\x1b\[[0-9;:]*m|[\r\x08]|" + _STEERING.pattern)


def harmless(text: str) -> str:
    """Return the text with characters that control a terminal escaped, such as `\\x1b`."""
    return _STEERING.sub(_spelled, text)


def harmless_log(text: str) -> str:
    """Return a log's text with control characters escaped, except colours, carriage returns and backspaces."""
    return _LOG.sub(lambda found: found[0] if len(found[0]) > 1 or found[0] in "\r\x08" else _spelled(found), text)


def _spelled(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
