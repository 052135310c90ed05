"""Define how a paused experiment resumes, and how a different number of slots affects its result."""

from __future__ import annotations

from pydantic import Field

from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Record
from kernel_backend.spec.options import GANG, whole_number


class Resumption(Record):
    """Body of `POST /api/experiments/{number}/resume`; an empty one changes nothing."""

    slots: int | None = Field(None, ge=1)  # None: as many as before


def parse_slots(text: str) -> int:
    """Parse the value of the option `--slots`; raises InvalidRequest."""
    return whole_number(text, "--slots ", 1, GANG)


def resized_note(before: Config, slots: int, step: int) -> str:
    """Return a note on how resuming after `step` with a different number of slots affects a trial's result."""
    change = f"after step {step} with {slots} slot{'' if slots == 1 else 's'} instead of {before.slots}"
    if before.logical_workers is not None:
        return f"{change}: the result keeps its bits, since --logical-workers is {before.logical_workers}"
    return (
        f"{change}: the order of samples and the global batch stay, the last bits of the result may differ "
        "(--logical-workers at submission keeps them)"
    )
