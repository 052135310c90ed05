"""Define how a paused experiment resumes."""

from __future__ import annotations

from pydantic import Field

from kernel_backend.model.record import Record


class Resumption(Record):
    """Body of `POST /api/experiments/{number}/resume`: the number of slots from now on.

    An empty body changes nothing.
    """

    slots: int | None = Field(None, ge=1)  # None: as many as before
    least_slots: int | None = Field(None, ge=1)  # of an elastic training from now on; has no effect without `slots`
