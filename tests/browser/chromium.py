"""Start the Chromium that tests, benchmarks and screenshots use: an installed one, never a download."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
MISSING = f"no browser: run scripts/browser as root, or install one of {', '.join(NAMES)}"


def launch(playwright: Playwright, flags: Sequence[str] = ()) -> Browser | None:
    """Start a browser without a window, with additional `flags`; return None if this machine has none."""
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    return playwright.chromium.launch(executable_path=executable, args=[*FLAGS, *flags]) if executable else None
