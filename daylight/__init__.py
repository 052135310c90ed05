"""Daylight's public face: `%load_ext daylight` in a notebook, and the same verbs as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_backend import __version__
from kernel_backend.artifacts.run import run
from kernel_backend.errors import DaylightError, ExperimentFailed
from kernel_backend.model.record import Value
from kernel_backend.snapshots.captured import captured

if TYPE_CHECKING:  # definitions import this module, and need none of the notebook's side
    from jupyter_ext.job.job import Job

__all__ = [
    "DaylightError",
    "ExperimentFailed",
    "Job",
    "__version__",
    "captured",
    "job",
    "load_ipython_extension",
    "run",
    "show",
    "submit",
    "unload_ipython_extension",
]


def submit(
    file: str | Path,
    *,
    name: str | None = None,
    params: dict[str, Value] | None = None,
    space: Mapping[str, str] | None = None,
    include: Sequence[str] = (),
    data: Sequence[str] = (),
    commits: Sequence[str] = (),
    again: bool = False,
    **config: Any,
) -> Job:
    """Submit a file of roles; `config` are the options by name (`slots=2, epochs=10, batch_size=64`).

    Files and folders that `include` names travel with it; what `data` names is listed with its digests, and `commits`
    are versions of data that are kept elsewhere. A search has a `space`, written as on a line: `search="asha",
    epochs=16, space={"lr": "1e-4..1e-1:log", "width": "32,64"}`. Where the same goes on already, that is the answer,
    unless another is wanted (`again`). Raises InvalidDefinition and InvalidRequest before anything is sent.
    """
    from jupyter_ext.capture import capture_file
    from jupyter_ext.job.job import Job
    from jupyter_ext.submit.submit import SubmitOptions, config_from
    from jupyter_ext.submit.submit import submit as send
    from kernel_backend.spec.assignments import parse_line

    line = parse_line(f"{label}={text}" for label, text in (space or {}).items())
    given = {**line.given, **(params or {})}
    path, asked = Path(file), SubmitOptions(include=tuple(include), data=tuple(data), commits=tuple(commits))
    overview = send(
        capture_file(path),
        config_from(config),
        given,
        space=line.space,
        file=path,
        name=name,
        asked=asked,
        again=again,
    )
    return Job(overview.experiment.number)


def job(number: int) -> Job:
    """Experiment `number`; raises NotFound."""
    from jupyter_ext.job.job import Job

    found = Job(number)
    found.overview  # noqa: B018  asks for it, so that a number that is none is told at once
    return found


def show(number: int, view: str | None = None) -> None:
    """Show an experiment here, as a `card` or a `widget`; by default as the front end needs."""
    job(number).show(view)


def __getattr__(name: str) -> Any:
    if name == "Job":
        from jupyter_ext.job.job import Job

        return Job
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Register `%%dlsubmit` and `%dl`: called by `%load_ext daylight`."""
    from jupyter_ext.magics.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics: called by `%unload_ext daylight`."""
    from jupyter_ext.magics.magics import unload

    unload(shell)
