"""Describe why a node cannot run its ranks of an attempt, with advice."""

from __future__ import annotations

import errno
from typing import Literal

from kernel_backend.errors import NoEnvironment, PlaceUnavailable
from kernel_backend.model.trial import Failure

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def refusal(error: Exception, node: str, scratch: str) -> tuple[Failure, Literal["failed", "lost"]]:
    """Return the failure of an attempt that a node cannot run, and the outcome of the attempt.

    An error that only users can repair counts as a storage failure, which pauses the experiment after some retries.
    Other errors may be temporary, and are retried like the loss of a node.

    Examples
    --------
    >>> failure, outcome = refusal(OSError(errno.ENOSPC, "No space left on device"), "n1", "/local/ada")
    >>> failure.message
    'the disk of n1 is full (/local/ada): free space there, or choose another `scratch` for the pool'
    >>> outcome
    'failed'
    """
    if isinstance(error, NoEnvironment):
        return _of_place(_environment(error.message, node)), "failed"
    if isinstance(error, OSError):
        return _of_place(_disk(error, node, error.filename or scratch)), "failed"
    message = f"the files of the training cannot be had on {node}: {error}"
    return Failure(rank=0, type="StagingFailed", message=message), "lost"


def _of_place(message: str) -> Failure:
    return Failure(rank=0, type=PlaceUnavailable.__name__, message=message)


def _environment(message: str, node: str) -> str:
    if "No space left" in message:
        return f"{message} on {node}: free space there, or choose another `scratch` for the pool"
    return f"{message}, on {node}: repair that there"


def _disk(error: OSError, node: str, where: str) -> str:
    if error.errno in _FULL:
        return f"the disk of {node} is full ({where}): free space there, or choose another `scratch` for the pool"
    why = error.strerror or str(error)
    return f"{node} cannot write its files ({where}, {why}): choose a `scratch` for the pool that its user may write"
