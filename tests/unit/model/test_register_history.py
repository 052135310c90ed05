"""Test which changes of registered models are allowed, and what aliases were at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.experiment import Metric
from kernel_backend.model.ids import ModelReference, Reference, parse_model, parse_subject
from kernel_backend.model.register.history import aliases_at, choose_version, decide_change, known_version, model_of
from kernel_backend.model.register.records import Model, ModelChange, ModelEdit, ModelVersion


def version(number: int, **fields: Any) -> ModelVersion:
    plain: dict[str, Any] = {
        "owner": "ada", "name": "memes", "version": number, "experiment": number, "trial": 1, "search": False,
        "checkpoint": "10-1", "step": 10, "digest": f"d{number}", "snapshot": "0" * 64, "author": "ada",
        "group": "lab", "metric": Metric(), "who": "ada", "at": float(number),
    }  # fmt: skip
    return ModelVersion(**plain | fields)


def change(number: int, act: Any, **fields: Any) -> ModelChange:
    return ModelChange(number=number, at=float(number), who="ada", act=act, **fields)


def model(*log: ModelChange, versions: int = 3) -> Model:
    registered = [change(number, "register", version=number) for number in range(1, versions + 1)]
    return model_of([version(number) for number in range(1, versions + 1)], [*registered, *log])


def decided(before: Model, act: Any, admin: bool = False, **fields: Any) -> ModelChange | None:
    return decide_change(before, ModelEdit(act=act, **fields), "ada", 9.0, admin=admin)


def test_an_alias_moves_and_the_log_says_from_where_and_why() -> None:
    moved = model(change(4, "set", alias="production", version=2))
    entry = decided(moved, "set", alias="production", version=3, note="better")
    assert entry == ModelChange(
        at=9.0, who="ada", act="set", version=3, alias="production", before=2, note="better"
    )  # fmt: skip
    assert decided(moved, "set", alias="production", version=2) is None
    assert decided(moved, "unset", alias="candidate") is None
    unset = decided(moved, "unset", alias="production")
    assert unset is not None
    assert (unset.before, unset.version) == (2, None)


def test_a_move_that_expects_another_version_is_refused() -> None:
    moved = model(change(4, "set", alias="production", version=2))
    assert decided(moved, "set", alias="production", version=3, expect=2) is not None
    assert decided(moved, "set", alias="candidate", version=3, expect=0) is not None
    for expect in (0, 1):
        with pytest.raises(Conflict, match=f"memes@production is 2, not {expect or 'unset'}: someone has moved it"):
            decided(moved, "set", alias="production", version=3, expect=expect)
    assert decided(moved, "set", alias="production", version=2, expect=1) is None  # a request that was repeated


def test_what_is_not_there_is_refused_with_what_is() -> None:
    before = model(change(4, "set", alias="production", version=2), change(5, "remove", version=1))
    for act, fields in (("set", {"alias": "x", "version": 1}), ("remove", {"version": 7})):
        with pytest.raises(NotFound, match="memes has no version . its versions: 2, 3".replace(". ", r"\d; ")):
            decided(before, act, **fields)
    with pytest.raises(NotFound, match=r"no alias producton \(did you mean production\?\); its aliases: production"):
        choose_version(before, "producton")
    for act, fields in (("set", {"alias": "x"}), ("unset", {}), ("remove", {"alias": "x"}), ("unset", {"version": 1})):
        with pytest.raises(InvalidRequest, match="name the"):
            decided(before, act, **fields)


def test_a_version_is_removed_unless_an_alias_names_it() -> None:
    before = model(change(4, "set", alias="production", version=2))
    with pytest.raises(Conflict, match="memes@production is version 2: move that alias first"):
        decided(before, "remove", version=2)
    gone = model(change(4, "remove", version=3))
    assert [each.version for each in gone.versions] == [1, 2]
    assert choose_version(gone, "").version == 2
    assert decided(gone, "remove", version=3) is None
    assert known_version(gone, version(3)) is None  # it may be registered again
    assert known_version(before, version(8, experiment=3, digest="d3")) == version(3)
    with pytest.raises(NotFound, match="all versions of memes are removed"):
        choose_version(model(change(2, "remove", version=1), versions=1), "")


def test_a_protected_alias_is_moved_and_freed_by_admins_alone() -> None:
    guarded = model(change(4, "set", alias="production", version=2), change(5, "protect", alias="production"))
    assert guarded.protected == ("production",)
    for act, fields in (("set", {"version": 3}), ("unset", {}), ("unprotect", {})):
        with pytest.raises(Forbidden, match="memes@production is protected: only admins"):
            decided(guarded, act, alias="production", **fields)
        assert decided(guarded, act, alias="production", admin=True, **fields) is not None
    assert decided(guarded, "protect", alias="production") is None
    assert decided(guarded, "set", alias="candidate", version=3) is not None


def test_a_log_that_is_ahead_of_the_versions_counts_up_to_these() -> None:
    log = [change(1, "register", version=1), change(2, "register", version=2), change(3, "set", alias="a", version=2)]
    assert model_of([version(1)], log).log == tuple(log[:1])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 3)), max_size=30), st.integers(0, 99)
)
def test_an_alias_was_what_its_last_move_before_says(moves: list[tuple[str, int, int]], at: int) -> None:
    now, log = 0, []
    for alias, to, pause in moves:
        now += pause
        fields = {"version": to} if to else {}
        log.append(ModelChange(at=float(now), who="ada", act="set" if to else "unset", alias=alias, **fields))
    found = aliases_at(log, float(at))
    for alias in "abc":
        last = next((each for each in reversed(log) if each.alias == alias and each.at <= at), None)
        assert found.get(alias) == (last.version if last else None)


def test_a_name_is_a_model_and_a_number_an_experiment() -> None:
    assert parse_subject("12.3") == Reference(12, 3)
    assert parse_subject("memes@production") == ModelReference("", "memes", "production")
    assert parse_subject("vision/memes-2@3") == ModelReference("vision", "memes-2", "3")
    assert parse_model("dave@example.org/memes@3") == ModelReference("dave@example.org", "memes", "3")
    for text in ("", "3d", "memes@", "a/b/c", "memes@1.5", "@production"):
        with pytest.raises(InvalidRequest, match="names no"):
            parse_subject(text)
