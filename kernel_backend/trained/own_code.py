"""Refuse to run another user's code in this process unless the user says that they trust it."""

from __future__ import annotations

from kernel_backend.client import Client
from kernel_backend.errors import Forbidden
from kernel_backend.model.views.overview import Overview


def check_owner(client: Client, overview: Overview, allowed_by: str) -> None:
    """Raise Forbidden if an experiment is another user's; `allowed_by` is what to write to run their code."""
    experiment = overview.experiment
    if experiment.owner != client.me().person.name:
        raise Forbidden(
            f"experiment #{experiment.number} is {experiment.owner}'s: its code would run in this process, as you. "
            f"Read it with %dl source {experiment.number}; if you trust {experiment.owner}, write {allowed_by}"
        )
