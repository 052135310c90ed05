"""Compare experiment `b` with `a`: first the causes in order of likelihood, then the results."""

from __future__ import annotations

from kernel_backend.differences.code import code
from kernel_backend.differences.data import data, pretrained
from kernel_backend.differences.environment import environment, hardware
from kernel_backend.differences.results import results
from kernel_backend.differences.settings import beginning, configuration, daylight, hyperparameters, seed
from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Diff, Difference

_CLASSES = (code, hyperparameters, data, pretrained, environment, seed, hardware, configuration, beginning, daylight)
# Differences of delivered data and of the weights at step 0 mostly follow from other differences.
_FOLLOWS = ("delivered", "step 0")


# Provenance records of a training, and what cannot be compared without them.
_UNKNOWN = {
    "delivered": "which data was delivered",
    "observed": "which files were read",
    "weights": "the model at step 0",
    "runtime": "what its ranks ran with",
}


def diff(a: Side, b: Side) -> Diff:
    """Return how experiment `b` differs from `a`: the likeliest cause first, harmless ones last, and the results."""
    found, came = causes(a, b), results(a, b)
    if came.identical is False and all(each.harmless or each.name in _FOLLOWS for each in found):
        # If results differ and nothing else does, a harmless difference must be the cause.
        found = tuple(each.model_copy(update={"harmless": False}) for each in found)
        found = tuple(sorted(found, key=lambda each: each.name in _FOLLOWS))
    numbers = a.experiment.number, b.experiment.number
    return Diff(a=numbers[0], b=numbers[1], differences=found, unknown=(*_unknown(a), *_unknown(b)), results=came)


def _unknown(side: Side) -> list[str]:
    missing = [text for name, text in _UNKNOWN.items() if name not in side.facts]
    return [f"of #{side.experiment.number}: {', '.join(missing)}"] if missing else []


def causes(a: Side, b: Side) -> tuple[Difference, ...]:
    """Return the differences of `b` from `a` that may cause different results, the likeliest first.

    Harmless ones come last.
    """
    found = [difference for each in _CLASSES for difference in each(a, b)]
    return tuple(sorted(found, key=lambda each: (each.harmless, each.name in _FOLLOWS)))
