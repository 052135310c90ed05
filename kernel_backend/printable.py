"""Text as a terminal may have it: what somebody else has named or printed is shown, and steers nothing."""

from __future__ import annotations

import re

# Control characters but for tab and line break, and those that turn the direction of text round.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Colours and the like, and what a progress bar is redrawn by.
_LOG = re.compile(r"\x1b\[[0-9;:]*m|[\r\x08]|" + _STEERING.pattern)


def harmless(text: str) -> str:
    """Return the same text, with what steers a terminal as `\\x1b`."""
    return _STEERING.sub(_spelled, text)


def harmless_log(text: str) -> str:
    """Return the same text of a log, with all that steers a terminal but colours, carriage returns and backspaces."""
    return _LOG.sub(lambda found: found[0] if len(found[0]) > 1 or found[0] in "\r\x08" else _spelled(found), text)


def _spelled(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
