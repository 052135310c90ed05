"""From a capture to an experiment: checked here, so that what is wrong is said before anything is sent."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_ext.capture import Capture
from kernel_backend import NUMERICS, __version__
from kernel_backend.client import Client
from kernel_backend.errors import CaptureError, InvalidDefinition, InvalidRequest
from kernel_backend.model.definition import Definition, parse
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.options import to_config
from kernel_backend.model.overview import Overview
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.values import nearest
from kernel_backend.snapshots.archive import pack_snapshot
from kernel_backend.snapshots.environment import record


@dataclass(frozen=True)
class Checked:
    """A capture that can be trained, and all its hyperparameters."""

    capture: Capture
    definition: Definition
    params: dict[str, Value]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the person should know before slots are spent."""
        return (*self.capture.warnings, *map(self.capture.relocate, self.definition.hints))


def check(capture: Capture, given: Mapping[str, Value]) -> Checked:
    """The definition of a capture, with a value for each hyperparameter.

    Raises CaptureError with all `problems` of the capture, and InvalidDefinition; both name cells and lines.
    """
    try:
        definition = parse(capture.source, capture.roles_from)
        if capture.problems:
            raise _capture_error(capture)
        return Checked(capture, definition, definition.bind(given))
    except InvalidDefinition as error:
        raise InvalidDefinition(capture.relocate(error.message), **error.details) from None


def submit(
    capture: Capture,
    config: Config,
    given: Mapping[str, Value],
    *,
    name: str | None = None,
    notebook: str | None = None,
    client: Client | None = None,
) -> Overview:
    """The new experiment, with the service started where none runs.

    Raises CaptureError or InvalidDefinition before anything is sent, and what the service answers.
    """
    return send(check(capture, given), config, given, name=name, notebook=notebook, client=client)


def send(
    checked: Checked,
    config: Config,
    given: Mapping[str, Value],
    *,
    name: str | None = None,
    notebook: str | None = None,
    client: Client | None = None,
) -> Overview:
    """Upload a checked capture and make an experiment of it; raises what the service answers."""
    id, data = pack_snapshot(checked.capture.source, describe(checked))
    client = client or Client.connect()
    client.upload_snapshot(id, data)
    submission = Submission(
        snapshot=id,
        config=config,
        params=dict(given),
        name=name,
        python=sys.executable,
        cwd=os.getcwd(),
        notebook=notebook,
    )
    return client.submit(submission)


def config_from(options: Mapping[str, Any]) -> Config:
    """The configuration with these options by name (`slots=2, checkpoint_every="60s"`).

    Raises InvalidRequest with the offending one, and the nearest where there is none of that name.
    """
    for name in options:
        if name not in Config.model_fields:
            raise InvalidRequest(f"there is no option {name}{nearest(name, Config.model_fields)}")
    return to_config(Namespace(**options))


def describe(checked: Checked) -> Snapshot:
    """What is recorded beside the definition: our version, where each line came from, and the environment."""
    return Snapshot(
        version=__version__,
        numerics=NUMERICS,
        pieces=checked.capture.pieces,
        roles_from=checked.capture.roles_from,
        environment=record(),
        warnings=checked.warnings,
    )


def _capture_error(capture: Capture) -> CaptureError:
    found = [vars(problem) for problem in capture.problems]
    return CaptureError("\n".join(problem.message for problem in capture.problems), problems=found)
