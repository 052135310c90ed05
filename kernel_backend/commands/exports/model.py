"""Export a trained model as a folder from the command line, a notebook or a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend.client import Client
from kernel_backend.commands.checkpoints import listed
from kernel_backend.model.checkpoints import CheckpointSelector, best_or_newest, candidates
from kernel_backend.model.ids import Reference
from kernel_backend.model.register.records import ModelVersion
from kernel_backend.trained.own_code import check_owner

if TYPE_CHECKING:
    from kernel_backend.export.folder import Exported


def export_trained(
    client: Client,
    reference: Reference,
    to: Path,
    which: CheckpointSelector,
    *,
    version: ModelVersion | None = None,
    module: str = "auto",
    formats: Sequence[str] = (),
    force: bool = False,
    trust: str = "",
) -> Exported:
    """Export the model of an experiment or trial into the folder `to`, and prove it there.

    Without a criterion in `which`, it is the best checkpoint by the experiment's metric; if nothing was validated, the
    newest one; of a registered model, it is the `version`'s own. Another user's code is refused unless `trust` is
    empty; it is what to write to allow it.
    """
    from kernel_backend.export.folder import export_model

    if version is not None:
        reference = Reference(version.experiment, version.trial)
    number, trial = reference.experiment, reference.trial or client.front(reference.experiment)
    if trust:
        check_owner(client, client.experiment(number), trust)
    found = listed(client, Reference(number, trial))
    if not which.given and version is not None:
        found = found._replace(infos=[each for each in found.infos if each.id == version.checkpoint])
        which = CheckpointSelector(latest=True, best=False, step=None)
    elif not which.given:
        which = best_or_newest(found.infos, found.metric)
    choices = candidates(found.infos, found.metric, which)
    return export_model(client, number, choices, to, module=module, formats=formats, force=force)
