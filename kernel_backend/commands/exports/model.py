"""Export a trained model as a folder from the command line, a notebook or a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend.client import Client
from kernel_backend.commands.checkpoints import listed
from kernel_backend.model.checkpoints import CheckpointSelector, candidates
from kernel_backend.model.ids import Reference
from kernel_backend.trained.own_code import check_owner

if TYPE_CHECKING:
    from kernel_backend.export.folder import Exported


def export_trained(
    client: Client,
    reference: Reference,
    to: Path,
    which: CheckpointSelector,
    *,
    module: str = "auto",
    formats: Sequence[str] = (),
    force: bool = False,
    trust: str = "",
) -> Exported:
    """Export the model of an experiment or trial into the folder `to`, and prove it there.

    Without a criterion in `which`, it is the best checkpoint by the experiment's metric; if nothing was validated, the
    newest one. Another user's code is refused unless `trust` is empty; it is what to write to allow it.
    """
    from kernel_backend.export.folder import export_model

    number, trial = reference.experiment, reference.trial or client.front(reference.experiment)
    if trust:
        check_owner(client, client.experiment(number), trust)
    found = listed(client, Reference(number, trial))
    if not which.given:
        judged = any(math.isfinite(found.metric.cost(each.metrics)) for each in found.infos)
        which = CheckpointSelector(latest=not judged, best=judged, step=None)
    choices = candidates(found.infos, found.metric, which)
    return export_model(client, number, choices, to, module=module, formats=formats, force=force)
