"""Repeat requests while the service cannot be reached."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from kernel_backend.errors import DaylightError, NoEnvironment
from kernel_backend.retry import RetryPolicy, exponential

RETRY = RetryPolicy(exponential(0.5, 5.0), limit=300.0)  # applies while the service cannot be reached
DAMAGED = 3  # downloads with a wrong digest after which the attempt ends
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class StagingFailed(Exception):
    """Error: the files that the ranks need could not be fetched."""


def retried(ask: Callable[[], _T]) -> _T:
    """Return the result of `ask`, a request to the service; it is repeated while the service cannot be reached.

    Raises StagingFailed if the service refuses the request or stays unreachable; NoEnvironment is raised at once.
    """
    waits = RETRY.waits()
    while True:
        try:
            return ask()
        except NoEnvironment:  # not retried: only users can repair it
            raise
        except DaylightError as error:
            pause = next(waits, None) if error.http_status >= 500 else None
            if pause is None:
                raise StagingFailed(error.message) from None
            _log.info("the service cannot be reached now: %s", error.message)
        time.sleep(pause)
