"""Silence log messages and warnings of Lightning that do not apply in a job."""

from __future__ import annotations

import logging
import warnings


def be_quiet() -> None:
    """Silence Lightning's messages and warnings about a Trainer on a single device."""
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for text in (".*does not have many workers.*", ".*smaller than the logging interval.*", ".*sync_dist=True.*"):
        warnings.filterwarnings("ignore", text)
