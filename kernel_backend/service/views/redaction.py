"""Hide the numbers of experiments that the reader of a note may not see."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from kernel_backend.errors import NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.stream import Message
from kernel_backend.service.access import sees
from kernel_backend.store.base import Store

# The text that the loop writes; older databases have `put aside` instead.
_PREEMPTED_FOR = re.compile(r"(?:(?<= was preempted: )|(?<= was put aside: )|(?<= shrinks: ))#(\d+)(?:\.\d+)?")


class NoteRedactor:
    """Redactor of notes for the user `who`; it looks up in the store the experiments that a note names (blocks)."""

    def __init__(self, store: Store, who: Person) -> None:
        self._store, self._who = store, who
        self._sees: Callable[[int], bool] = cache(self._look)

    def note(self, text: str) -> str:
        """Return a note's text; experiments that the user may not see are named "another's training"."""
        return _PREEMPTED_FOR.sub(lambda found: found[0] if self._sees(int(found[1])) else "another's training", text)

    def note_message(self, json: str) -> str:
        """Return a message (JSON text) that contains a note, with the text of the note redacted."""
        message = Message.model_validate_json(json)
        data = {**message.data, "text": self.note(str(message.data["text"]))}
        return message.model_copy(update={"data": data}).model_dump_json()

    def _look(self, number: int) -> bool:
        try:
            return sees(self._who, self._store.experiment(number))
        except NotFound:
            return False
