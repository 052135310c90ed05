"""Define the verbs rename, note and tag, which edit an experiment's labels."""

from __future__ import annotations

import time

from kernel_backend.commands.answer import Answer, Text
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.labels import LabelEdit, check_tag, split_tags
from kernel_backend.model.record import checked
from kernel_backend.text import head_text
from kernel_backend.text.labels import label_lines


def _rename(call: Call) -> Answer:
    words = call.arguments.words
    if not words:
        raise InvalidRequest(f"{call.command} takes an experiment and its new name: write {call.command} 12 wide net")
    return _edited(call, checked(LabelEdit, name=" ".join(words)))


def _note(call: Call) -> Answer:
    words, clear = call.arguments.words, call.arguments.clear
    if words and clear:
        raise InvalidRequest("a text and --clear: give one of them")
    if words or clear:
        return _edited(call, checked(LabelEdit, note=" ".join(words)))
    note = call.client.experiment(call.reference.experiment).experiment.note
    return Answer({"note": note}, [Text(note.splitlines() or ["there is no note"])])


def _tag(call: Call) -> Answer:
    add = [tag for word in call.arguments.words for tag in split_tags(word)]
    remove = call.arguments.remove or []
    if add or remove:
        return _edited(call, LabelEdit(add_tags=tuple(add), remove_tags=tuple(remove)))
    tags = call.client.experiment(call.reference.experiment).experiment.tags
    return Answer({"tags": tags}, [Text([", ".join(tags) or "there are no tags"])])


def _edited(call: Call, edit: LabelEdit) -> Answer:
    overview = call.client.label(call.reference.experiment, edit)
    return Answer(overview, [Text([head_text(overview, time.time()), *label_lines(overview.experiment)])])


VERBS = (
    Verb(
        "rename",
        "rename an experiment",
        _rename,
        (NUMBER, argument("words", nargs="*", metavar="NAME", help="the new name"), JSON),
        ("rename 12 wide net, more data",),
        client=("label",),
        job=("rename",),
    ),
    Verb(
        "note",
        "write a note on an experiment, or read it",
        _note,
        (
            NUMBER,
            argument("words", nargs="*", metavar="TEXT", help="the note, which replaces an earlier one"),
            argument("--clear", action="store_true", help="remove the note"),
            JSON,
        ),
        ("note 12 diverged after the learning rate was doubled", "note 12", "note 12 --clear"),
        client=("label",),
        job=("note",),
    ),
    Verb(
        "tag",
        "add tags to an experiment, remove some, or list them",
        _tag,
        (
            NUMBER,
            argument("words", nargs="*", metavar="TAG", help="tags to add"),
            argument("--remove", metavar="TAG", action="append", type=check_tag, help="a tag to remove; repeatable"),
            JSON,
        ),
        ("tag 12 baseline paper", "tag 12 --remove baseline", "tag 12"),
        client=("label",),
        job=("tag",),
    ),
)
