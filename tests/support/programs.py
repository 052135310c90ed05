"""List the corpus of programs with training loops, in the usual styles, and some that are written to break Daylight."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1] / "programs"
PLAIN = {path.stem: path for path in sorted(ROOT.glob("*.py"))}
ADVERSARIAL = {path.stem: path for path in sorted((ROOT / "adversarial").glob("*.py"))}
PROGRAMS = PLAIN | ADVERSARIAL
