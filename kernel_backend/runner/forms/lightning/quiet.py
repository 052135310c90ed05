"""Silence Lightning's remarks that do not fit a job."""

from __future__ import annotations

import logging
import warnings


def be_quiet() -> None:
    """Silence Lightning's remarks about a Trainer that runs alone."""
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for text in (".*does not have many workers.*", ".*smaller than the logging interval.*", ".*sync_dist=True.*"):
        warnings.filterwarnings("ignore", text)
