"""Fill in the templates from which plain scripts are composed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_NAME = re.compile(r"<(\w+)>")
_FLAG = re.compile(r"( *)\?(!?)(\w+) (.*)")


def filled(template: str, flags: Collection[str] = (), texts: Mapping[str, str] = {}) -> str:
    """Return the template with the lines that the flags select, and with `<name>` replaced by its text.

    Names that are not in `texts` stay. A text of several lines needs a template line of its own, and gets its
    indentation.

    Examples
    --------
    >>> filled("?ema a = <decay>\\n?!ema a = 1\\n<rest>", {"ema"}, {"decay": "2", "rest": "b\\nc"})
    'a = 2\\nb\\nc'
    """
    lines = []
    for line in template.strip("\n").split("\n"):
        kept = line
        if found := _FLAG.fullmatch(line):
            indent, without, flag, rest = found.groups()
            if (flag in flags) == bool(without):
                continue
            kept = indent + rest
        indent = kept[: len(kept) - len(kept.lstrip())]
        whole = _NAME.fullmatch(kept.strip())
        if whole and whole[1] in texts:
            lines += [
                indent + each if each else "" for each in texts[whole[1]].strip("\n").split("\n") if texts[whole[1]]
            ]
        else:
            lines.append(_NAME.sub(lambda name: texts.get(name[1], name[0]), kept))
    return "\n".join(lines)
