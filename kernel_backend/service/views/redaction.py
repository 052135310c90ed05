"""Redact notes about others' experiments for users who may not see them: the number is replaced."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from kernel_backend.errors import NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.stream import Message
from kernel_backend.service.access import sees
from kernel_backend.store.base import Store

# As the loop writes it whatever the reader; `put aside` stands in the notes of older databases.
_PREEMPTED_FOR = re.compile(r"(?:(?<= was preempted: )|(?<= was put aside: ))#(\d+)(?:\.\d+)?")


class NoteRedactor:
    """Redactor of notes for one user; it blocks to look up an experiment that a note names."""

    def __init__(self, store: Store, who: Person) -> None:
        self._store, self._who = store, who
        self._sees: Callable[[int], bool] = cache(self._look)

    def note(self, text: str) -> str:
        """Return the text of a note, with "another's training" for an experiment's number that the user may not see."""
        return _PREEMPTED_FOR.sub(lambda found: found[0] if self._sees(int(found[1])) else "another's training", text)

    def note_message(self, json: str) -> str:
        """Return the JSON of a note's message with its text redacted."""
        message = Message.model_validate_json(json)
        data = {**message.data, "text": self.note(str(message.data["text"]))}
        return message.model_copy(update={"data": data}).model_dump_json()

    def _look(self, number: int) -> bool:
        try:
            return sees(self._who, self._store.experiment(number))
        except NotFound:
            return False
