"""Keep files of the documentation equal to what the code says: rewrite them, or check that they are current."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parent


def between(page: str, name: str, text: str) -> str:
    """Return a page with the text from `<!-- NAME -->` to the next `<!-- end -->` replaced."""
    return re.sub(
        rf"(<!-- {name} -->)\n.*?(<!-- end -->)", lambda at: f"{at[1]}\n{text}\n{at[2]}", page, flags=re.DOTALL
    )


def keep_current(files: Mapping[Path, str], source: str) -> int:
    """Write each file whose content differs; with `--check` on the command line only say so and return 1."""
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} is older than {source}: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path], encoding="utf-8")
    return 0
