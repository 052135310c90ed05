"""Copy checkpoints into the trials that start from them (warm start), in background threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from kernel_backend.checkpoints.copy import copy_checkpoint
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.errors import CheckpointDamaged, DaylightError, NotFound, PlaceUnavailable
from kernel_backend.model.trial import ScheduledTrial
from kernel_backend.service.lookups import Lookups

AGAIN_S = 60.0  # seconds before a copy is retried after a transient error, such as a full disk
_Trial = tuple[int, int]  # experiment and trial index
_log = logging.getLogger(__name__)


class CheckpointCopies:
    """Copier of checkpoints into the trials that start from them; it remembers which copies failed.

    Users' files are accessed only in daemon threads, which end with the service.
    """

    def __init__(self, storage: CheckpointStorage, wake: Callable[[], None]) -> None:
        self._storage = storage
        self._failed: dict[_Trial, tuple[float, DaylightError | OSError]] = {}  # when, and by what
        self.lookups = Lookups(wake)

    def wait(self, owner: str, trial: ScheduledTrial, source: str | None, *, or_newer: bool = False) -> str:
        """Return why a trial must still wait for its copy of the checkpoint `source`; "" if it need not.

        The trial starts from that checkpoint of another trial. Does not block: the copy is made in a thread. If
        `source` was deleted and `or_newer` is set, a newer checkpoint of the other trial is copied. "" is also returned
        if the copy can never be made; `missing` then returns the reason.
        """
        key = trial.experiment, trial.index
        if source is None or trial.attempt or self.missing(*key) is not None:
            return ""
        found = self.lookups.answer(owner, key, partial(self._find, source, *key, or_newer))
        return f"checkpoint {source}, from which it begins, is being copied" if found is None else found

    def missing(self, experiment: int, trial: int) -> NotFound | CheckpointDamaged | None:
        """Return the error because of which a trial can never get the checkpoint from which it starts; None if it can.

        The reason is that the checkpoint is deleted (NotFound) or damaged.
        """
        _, error = self._failed.get((experiment, trial), (0.0, None))
        return error if isinstance(error, NotFound | CheckpointDamaged) else None

    def forget(self, experiment: int, trial: int) -> None:
        """Drop the state of the copy for a trial, which is no longer needed once the trial has its first attempt."""
        self.lookups.forget((experiment, trial))
        self._failed.pop((experiment, trial), None)

    def _find(self, source: str, experiment: int, trial: int, or_newer: bool) -> str:
        """Copy the checkpoint `source` into a trial that has none yet; return why that failed, "" on success."""
        key = experiment, trial
        try:
            if self._storage.open(*key).committed():
                return ""
        except (PlaceUnavailable, CheckpointDamaged) as unknown:
            return unknown.message
        except OSError as error:  # an unavailable disk delays only this trial
            return f"its checkpoints cannot be reached just now: {error.strerror or error}"
        when, failed = self._failed.get(key, (0.0, None))
        if failed is None or time.monotonic() - when >= AGAIN_S:
            failed = self._copy(source, *key, or_newer)
        return f"checkpoint {source} could not be copied: {failed}; this is tried again" if failed is not None else ""

    def _copy(self, source: str, experiment: int, trial: int, or_newer: bool) -> DaylightError | OSError | None:
        key = experiment, trial
        try:
            copy_checkpoint(self._storage, source, self._storage.open(*key), *key, or_newer=or_newer)
        except (DaylightError, OSError) as error:
            failed = error
            _log.warning("trial %d.%d: %s", *key, error)
        except Exception as error:  # any error is reported with its trial
            failed = OSError(f"{type(error).__name__}: {error}")
            _log.exception("trial %d.%d", *key)
        else:
            self._failed.pop(key, None)
            return None
        self._failed[key] = time.monotonic(), failed
        return failed
