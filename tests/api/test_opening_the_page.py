"""Test that `daylight open` opens the page in a browser without showing the token to other users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.api.served import TOKEN, Served

PAGES = "https://hub.example.org/services/daylight"


def opened(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernel_backend.cli", "open", *words],
        env={**os.environ, "DAYLIGHT_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_browser_gets_a_file_of_its_owner_and_no_token(service: Served, tmp_path: Path):
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}\n')
    browser.chmod(0o700)
    done = opened(service.home, BROWSER=f"{browser} %s")
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + seen.read_text()
    door = Path(seen.read_text().strip().removeprefix("file://"))
    assert door.stat().st_mode & 0o077 == 0
    assert f"url={service.url}/#token={TOKEN}" in door.read_text()


def test_its_address_is_told_for_a_browser_elsewhere(service: Served):
    done = opened(service.home, "--json")
    assert json.loads(done.stdout) == {"url": f"{service.url}/#token={TOKEN}"}
    one = opened(service.home, "12", "--json")
    assert json.loads(one.stdout) == {"url": f"{service.url}/experiments/12#token={TOKEN}"}


def test_under_a_hub_the_hub_serves_it(service: Served):
    done = opened(service.home, DAYLIGHT_URL=service.url, DAYLIGHT_TOKEN=TOKEN)
    assert done.returncode == 2
    assert "choose Services, then daylight" in done.stderr
    service.service.pages = "/services/daylight"
    done = opened(service.home, "12", DAYLIGHT_URL=service.url, DAYLIGHT_TOKEN=TOKEN)
    assert "or open /services/daylight/experiments/12 there" in done.stderr
    service.service.pages = PAGES
    done = opened(service.home, "12", DAYLIGHT_URL=service.url, DAYLIGHT_TOKEN=TOKEN)
    assert (done.returncode, done.stdout) == (0, f"{PAGES}/experiments/12\n")
