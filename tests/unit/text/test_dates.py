"""Test how the start of an experiment is told."""

from __future__ import annotations

from datetime import datetime

import pytest

from kernel_backend.text.dates import when_text

NOW = datetime(2026, 11, 29, 23, 0).timestamp()


@pytest.mark.parametrize(
    ("at", "now", "text"),
    [
        (datetime(2026, 11, 29, 21, 14), NOW, "today 21:14"),
        (datetime(2026, 11, 28, 1, 5), NOW, "yesterday 01:05"),
        (datetime(2026, 11, 3, 21, 14), NOW, "3 Nov 21:14"),
        (datetime(2025, 11, 28, 21, 14), NOW, "28 Nov 2025"),
        (datetime(2025, 12, 31, 21, 14), datetime(2026, 1, 1, 9, 0).timestamp(), "yesterday 21:14"),
    ],
)
def test_a_time_is_told_by_the_day_and_of_another_year_without_the_hour(at: datetime, now: float, text: str):
    assert when_text(at.timestamp(), now) == text
