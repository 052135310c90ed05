"""Test references that users type, and the keys of gangs for engines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import AttemptId, Reference, parse_attempt, parse_reference

numbers = st.integers(0, 999_999_999)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("12", Reference(12)),
        ("#12", Reference(12)),
        (" 12 ", Reference(12)),
        ("12.3", Reference(12, 3)),
        ("#12.3-2", Reference(12, 3, 2)),
    ],
)
def test_a_reference_is_read_as_people_write_it(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("text", ["", "#", "twelve", "12.", "12-2", "12.3-", "-1", "12.3.4", "1e3", "12 3", "1" * 10])
def test_what_is_no_reference_is_refused_with_the_text_in_the_message(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_reference(text)
    assert repr(text) in refused.value.message


@given(experiment=numbers, trial=numbers, number=numbers)
def test_an_attempts_key_reads_back_as_the_attempt(experiment: int, trial: int, number: int) -> None:
    attempt = AttemptId(experiment, trial, number)
    assert parse_attempt(str(attempt)) == attempt


@pytest.mark.parametrize("text", ["12", "12.3"])
def test_a_key_without_an_attempt_is_refused_and_shown_what_one_looks_like(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"names no attempt: an attempt's key looks like 12\.3-2"):
        parse_attempt(text)


@given(st.text(max_size=20))
def test_any_text_is_either_read_or_refused_in_our_own_words(text: str) -> None:
    try:
        reference = parse_reference(text)
    except InvalidRequest:
        return
    assert reference.experiment >= 0
