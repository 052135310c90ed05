"""Define the labels of an experiment: name, note and tags. They can be changed at any time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import LONGEST_NAME, LONGEST_NOTE, Experiment
from kernel_backend.model.record import Record

MOST_TAGS = 32  # per experiment
_TAG = re.compile(r"\w[\w.:/+@=#-]{0,49}")


class Labels(NamedTuple):
    """Labels that a user gives to a new experiment."""

    name: str | None = None
    note: str = ""
    tags: tuple[str, ...] = ()


UNLABELLED = Labels()


class LabelEdit(Record):
    """Body of `POST /api/experiments/{number}/label`.

    None and empty lists leave a label as it is; an empty text removes the name or note.
    """

    name: str | None = Field(None, max_length=LONGEST_NAME)
    note: str | None = Field(None, max_length=LONGEST_NOTE)
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


def apply_edit(before: Experiment, edit: LabelEdit) -> dict[str, Any]:
    """Return the fields of the experiment `before` (its state before the edit) that change, with their new values.

    Raises InvalidRequest for an invalid tag or too many tags.
    """
    tags = edited_tags(before.tags, edit.add_tags, edit.remove_tags)
    after = {
        "name": before.name if edit.name is None else edit.name.strip(),
        "note": before.note if edit.note is None else edit.note.strip(),
        "tags": tags,
    }
    return {field: value for field, value in after.items() if value != getattr(before, field)}


def edit_text(before: Experiment, changes: dict[str, Any]) -> str:
    """Describe an edit for the audit log: `name 'a' -> 'b'; note changed; tags +good -bad`."""
    parts = []
    if "name" in changes:
        parts.append(f"name {before.name!r} -> {changes['name']!r}")
    if "note" in changes:
        parts.append("note changed")
    if "tags" in changes:
        added = [f"+{tag}" for tag in changes["tags"] if tag not in before.tags]
        removed = [f"-{tag}" for tag in before.tags if tag not in changes["tags"]]
        parts.append(" ".join(["tags", *added, *removed]))
    return "; ".join(parts)


def check_tag(text: str) -> str:
    """Return a tag if it is valid; raises InvalidRequest otherwise."""
    if not _TAG.fullmatch(text):
        raise InvalidRequest(
            f"{text[:60]!r} is no tag: up to 50 letters, digits and any of . : / + @ = # - _, a letter or digit first"
        )
    return text


def split_tags(text: str) -> list[str]:
    """Split `baseline,good` into tags; raises InvalidRequest if one is invalid, or for more than an experiment has."""
    found = list(dict.fromkeys(check_tag(tag.strip()) for tag in text.split(",") if tag.strip()))
    if len(found) > MOST_TAGS:
        raise InvalidRequest(f"{len(found)} tags: an experiment has at most {MOST_TAGS}")
    return found


def edited_tags(before: Sequence[str], add: Iterable[str], remove: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the tags after an edit, in the order in which they were added; comparisons ignore case.

    Raises InvalidRequest for an invalid tag or too many tags.
    """
    gone = {check_tag(tag).casefold() for tag in remove}
    found = {tag.casefold(): tag for tag in before if tag.casefold() not in gone}
    for tag in add:
        found.setdefault(check_tag(tag).casefold(), tag)
    if len(found) > MOST_TAGS:
        raise InvalidRequest(f"{len(found)} tags: an experiment has at most {MOST_TAGS}; remove some first")
    return tuple(found.values())
