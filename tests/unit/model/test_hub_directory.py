"""Test the quotas of a hub's groups, read from properties that anybody may have written."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model.cluster.directory import directory, read_quota
from kernel_backend.model.cluster.quotas import Quota, SlotHours


def test_a_groups_quota_is_what_its_properties_say_under_our_name() -> None:
    given = {"daylight": {"guarantee": 8, "limit": 16, "slot_hours": "500/7d"}, "other": {"limit": 1}}
    week = SlotHours(hours=500, window=7 * 86400)
    assert read_quota(given) == (Quota(guarantee=8, limit=16, slot_hours=week), ())


@pytest.mark.parametrize("properties", [{}, {"other": 1}, None, [], {"daylight": None}])
def test_a_group_of_which_the_hub_says_nothing_has_no_quota_of_the_hubs(properties: object) -> None:
    assert read_quota(properties) == (None, ())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", -1),
        ("limit", "many"),
        ("limit", 1.5),
        ("limit", [8]),
        ("guarantee", None),
        ("weight", 0),
        ("weight", math.nan),
        ("slot_hours", "500 a week"),
        ("slot_hours", 500),
        ("priority", {}),
        ("gpus", 8),
    ],
)
def test_a_value_that_is_none_is_told_and_left_out_and_the_others_hold(field: str, value: object) -> None:
    quota, complaints = read_quota({"daylight": {"max_slots_per_trial": 4, field: value}})
    assert quota == Quota(max_slots_per_trial=4)
    (complaint,) = complaints
    assert complaint.startswith(f"{field}={value!r}: ")


def test_a_guarantee_above_the_limit_is_left_out() -> None:
    quota, complaints = read_quota({"daylight": {"guarantee": 20, "limit": 16}})
    assert quota == Quota(limit=16)
    assert complaints == ("guarantee=20: a guarantee of 20 is more than the limit of 16",)


def test_something_else_in_our_place_is_told() -> None:
    assert read_quota({"daylight": 16}) == (None, ("daylight=16: must be a mapping such as {'limit': 16}",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
FIELDS = st.sampled_from([*Quota.model_fields, "hours"])


@given(JSON | st.dictionaries(st.just("daylight"), st.dictionaries(FIELDS | st.text(), JSON)))
def test_whatever_the_properties_are_something_holds(properties: Any) -> None:
    quota, complaints = read_quota(properties)
    assert quota is None or Quota.model_validate(quota.model_dump()) == quota
    assert all(complaints)


def test_a_directory_keeps_the_hubs_order_of_a_persons_groups() -> None:
    users = [{"name": "dave", "groups": ["vision", "a"]}, {"name": "eve"}]
    groups = [{"name": "vision", "properties": {"daylight": {"limit": "x"}}}, {"name": "a"}]
    found = directory(users, groups)
    assert found.members == {"dave": ("vision", "a"), "eve": ()}
    assert found.groups == {"vision": Quota(), "a": None}
    assert list(found.complaints) == ["vision"]
