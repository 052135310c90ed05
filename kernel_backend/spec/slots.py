"""Parse the number of slots of a training, and describe how a change of it affects the result."""

from __future__ import annotations

from typing import NamedTuple

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.spec.limits import GANG, whole_number


class SlotCount(NamedTuple):
    """Number of slots of a training. The fields have the names and the meaning of those of `Config`."""

    slots: int
    least_slots: int | None = None  # None: the training is not elastic


def parse_slots(text: str) -> SlotCount:
    """Parse the value of the option `--slots`, such as `4` or `1..4`; raises InvalidRequest.

    Examples
    --------
    >>> parse_slots("1..4")
    SlotCount(slots=4, least_slots=1)
    >>> parse_slots("4..4")
    SlotCount(slots=4, least_slots=None)
    """
    if ".." not in text:
        return SlotCount(whole_number(text, "--slots ", 1, GANG))
    try:
        return parse_range(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"--slots {text[:50]}: {error.message}") from None


def parse_range(text: str) -> SlotCount:
    """Parse a range of slots, such as `1..4`. Raises InvalidRequest, whose message does not name an option."""
    ends = text.split("..")
    if len(ends) != 2:
        raise InvalidRequest("write two numbers: 1..4")
    least, most = (whole_number(end.strip(), "", 1, GANG) for end in ends)
    if least > most:
        raise InvalidRequest(f"the least number comes first: {most}..{least}")
    return SlotCount(most, None if least == most else least)


def resumed_note(config: Config, before: int, slots: int, step: int) -> str:
    """Return a note on how the result is affected if a training resumes after `step` with another number of slots.

    `before` is the old number of slots, and `slots` the new one.
    """
    change = f"after step {step} with {slots} slot{'' if slots == 1 else 's'} instead of {before}"
    return f"{change}: {_effect(config)}"


def resized_note(config: Config, before: int, slots: int, step: int) -> str:
    """Return a note that an elastic training changed its number of slots after `step`, and how that affects its result.

    Examples
    --------
    >>> resized_note(Config(slots=4, least_slots=1, logical_workers=4), 2, 4, 120)
    'grew from 2 to 4 slots after step 120: the result keeps its bits, since --logical-workers is 4'
    """
    change = f"{'grew' if slots > before else 'shrank'} from {before} to {slots} slot{'' if slots == 1 else 's'}"
    return f"{change} after step {step}: {_effect(config)}"


def _effect(config: Config) -> str:
    if config.logical_workers is not None:
        return f"the result keeps its bits, since --logical-workers is {config.logical_workers}"
    return (
        "the order of samples and the global batch stay, the last bits of the result may differ "
        "(--logical-workers at submission keeps them)"
    )
