"""Compare a rehearsed restart's variables with the training's, and describe how exactly a restart continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_backend.definition.script.signs import PROMISES, RUNGS, Rung, Sign, presumed_rung
from kernel_backend.model.values import listed
from kernel_backend.runner.determinism.exactness import unchanged

Digests = Mapping[int, Mapping[str, str]]  # by step, then by variable
_SHOWN = 3


@dataclass(frozen=True)
class Rehearsed:
    """Result of a rehearsed restart: digests of variables by step, or why the rehearsal's process ended early."""

    digests: Digests
    error: str = ""  # why the program failed or could not be restored
    refused: str = ""  # the action outside its own folder at which it was stopped


def difference(training: Digests, rehearsed: Rehearsed) -> str | None:
    """Return text on the first difference between training and rehearsal; None if all variables are equal at all steps.

    `training` has the digests of the training's variables, by step and variable name.

    Examples
    --------
    >>> difference({3: {"w": "a", "n": "1"}}, Rehearsed({3: {"w": "b", "n": "1"}}))
    'w differs after a restart, at step 3'
    """
    if rehearsed.error:
        return rehearsed.error
    for step, names in training.items():
        other = rehearsed.digests.get(step)
        if other is None:
            return f"a restarted process did not come to step {step}"
        differing = [name for name in {**names, **other} if names.get(name) != other.get(name)]
        if differing:
            named = listed(differing, _SHOWN)
            return f"{named} differ{'s' * (len(differing) == 1)} after a restart, at step {step}"
    return None


def serves(rung: Rung, outermost: bool) -> bool:
    """Return True if a restart may go on from a checkpoint; else it begins with an older one, or from the start.

    `rung` is the guarantee on restarts. `outermost` means that the checkpoint was saved at the start of an iteration of
    an outermost loop, to which "exact to the epoch" goes back.

    Examples
    --------
    >>> [serves(each, outermost=True) for each in RUNGS]
    [True, True, False, False]
    >>> [serves(each, outermost=False) for each in RUNGS]
    [True, False, False, False]
    """
    return rung == "step" or (rung == "epoch" and outermost)


def given(known: Mapping[str, Any], found: Sequence[Sign]) -> Rung:
    """Return the guarantee that a restart is given: that of a rehearsal's verdict, or else what the source allows.

    `known` is what a checkpoint says of rehearsals, `found` are the signs in the source.

    Examples
    --------
    >>> given({"judged": True, "rung": "epoch"}, []), given({"judged": False, "rung": "step"}, [])
    ('epoch', 'step')
    >>> given({"rung": "step", "settled": True}, [Sign("start", 3, "worker = Thread(...)")])
    'start'
    """
    rung: Rung = known["rung"] if known.get("judged") else presumed_rung(found)
    return rung


def refusal(known: Mapping[str, Any], found: Sequence[Sign]) -> str:
    """Return why a restart must not go on from a checkpoint, in view of the guarantee on restarts; "" if it may.

    `known` is what the checkpoint says of rehearsals and of its place, `found` are the signs in the source.

    Examples
    --------
    >>> refusal({"outermost": False}, [Sign("epoch", 3, "worker = Thread(...)")])
    'a restart is exact to the epoch, and not from within one'
    >>> refusal({"outermost": True}, [Sign("start", 3, "worker = Thread(...)")])
    'a restart begins from the start, with the same bits'
    """
    rung = given(known, found)
    if serves(rung, known.get("outermost", False)):
        return ""
    return f"a restart {'begins' if rung != 'epoch' else 'is'} {PROMISES[rung]}" + (
        ", and not from within one" if rung == "epoch" else ""
    )


def weaker(rung: Rung, found: Sequence[Sign], nested: bool) -> Rung:
    """Return the guarantee on restarts to rehearse next, as `rung` did not hold: a weaker one that `found` allows.

    The guarantees (`Rung`) are, from strong to weak: "step" (a restart continues exactly at the step), "epoch" (exactly
    at the start of the epoch), "start" (from the beginning, with the same results bit by bit) and "anew" (from the
    beginning, with other results). `found` are signs in the source, each of which rules out guarantees stronger than
    its own. A training without nested loops has no epochs to which it could go back.

    Examples
    --------
    >>> weaker("step", [], nested=True), weaker("step", [], nested=False)
    ('epoch', 'start')
    >>> weaker("step", [Sign("anew", 3, "rng = default_rng() has no seed")], nested=True)
    'anew'
    """
    indices = [RUNGS.index(rung) + 1, *(RUNGS.index(each.rung) for each in found)]
    chosen = RUNGS[min(max(indices), len(RUNGS) - 1)]
    return "start" if chosen == "epoch" and not nested else chosen


def guarantee(rung: Rung, why: str, steps: Mapping[int, object] | None = None) -> str:
    """Return text for the user on how exactly a restart continues.

    `rung` is the kind of guarantee, such as "step" for exact restarts at any step, `why` the reason that it is no
    stronger one, and `steps` has the steps at which it was rehearsed.

    Examples
    --------
    >>> guarantee("step", "", {3: {}, 4: {}})
    'exact to the step: a kill changes no bit of the result, on 1 slot and this kind of CPU; rehearsed at steps 3 to 4'
    >>> guarantee("epoch", "batches differs after a restart, at step 3")
    'exact to the epoch: batches differs after a restart, at step 3'
    """
    if rung == "step":
        at = f"; rehearsed at steps {min(steps)} to {max(steps)}" if steps else ""
        return f"{PROMISES[rung]}: {unchanged('1 slot', 'this kind of CPU')}{at}"
    return f"{PROMISES[rung]}: {why}"


def limited(guarantee: str, limits: Sequence[str]) -> str:
    """Return a guarantee with what a restart does not keep to.

    Examples
    --------
    >>> limited("exact to the step", ["a restart does not undo what was written to runs.db after its checkpoint"])
    'exact to the step, but a restart does not undo what was written to runs.db after its checkpoint'
    >>> limited("exact to the step", [])
    'exact to the step'
    """
    shown = [*limits[:_SHOWN], f"{len(limits) - _SHOWN} more"] if len(limits) > _SHOWN else limits
    return ", but ".join([guarantee, "; ".join(shown)]) if limits else guarantee


def explained(rung: Rung, why: str, found: Sequence[Sign]) -> str:
    """Return why the guarantee `rung` is no stronger one: the code that prevents it, then the variable that differed.

    `found` are the signs of such code in the source; `why` is the text on the variable, "" if there is none.

    Examples
    --------
    >>> sign = Sign("anew", 3, "rng = default_rng() has no seed")
    >>> explained("anew", "x differs after a restart, at step 1", [sign])
    'rng = default_rng() has no seed, line 3; x differs after a restart, at step 1'
    >>> explained("step", "", [])
    ''
    """
    causes = [each.text for each in found if RUNGS.index(each.rung) >= RUNGS.index(rung)]
    return "; ".join([*causes[:1], why]) if why else why
