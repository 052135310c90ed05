"""The corpus: programs with training loops of their own in the styles of the field, and some written to break them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1] / "programs"
PLAIN = {path.stem: path for path in sorted(ROOT.glob("*.py"))}
ADVERSARIAL = {path.stem: path for path in sorted((ROOT / "adversarial").glob("*.py"))}
PROGRAMS = PLAIN | ADVERSARIAL
