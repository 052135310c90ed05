"""Test the public simulator of the scheduler: waits of a workload under given quotas."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from daylight.scheduler import Quota, Workload, simulate

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "try-quotas.md"
NODES = {"gpu1": 8, "gpu2": 8}


def test_the_guides_script_prints_what_the_guide_shows() -> None:
    script, shown = re.findall(r"^```(?:python|text)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(script, {})
    assert said.getvalue() == shown


def test_a_limit_of_the_group_holds_for_its_users_together() -> None:
    jobs = [Workload(number, 0.0, 600.0, 4, owner, "vision") for number, owner in enumerate(["ada", "bob", "ada"], 1)]
    found = simulate(jobs, NODES, groups={"vision": Quota(limit=8)})
    assert {user: (each.jobs, each.longest) for user, each in found.items()} == {"ada": (2, 600.0), "bob": (1, 0.0)}
    assert found["ada"].slot_hours == pytest.approx(8 * 600 / 3600)


def test_what_never_starts_waits_until_the_end() -> None:
    jobs = [Workload(1, 0.0, 600.0, 8, "ada"), Workload(2, 100.0, 600.0, 32, "bob")]
    found = simulate(jobs, NODES)
    assert (found["bob"].started, found["bob"].longest, found["bob"].slot_hours) == (0, 500.0, 0.0)
    assert simulate(jobs, NODES, until=50.0).keys() == {"ada"}
    assert simulate([], NODES) == {}
