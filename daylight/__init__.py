"""Public interface of Daylight: `%load_ext daylight` in a notebook, and its operations as functions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_backend import __version__
from kernel_backend.artifacts.program import connect
from kernel_backend.artifacts.run import run
from kernel_backend.errors import DaylightError, ExperimentFailed
from kernel_backend.model.record import Value
from kernel_backend.snapshots.captured import captured

if TYPE_CHECKING:  # definitions import this module, and do not need the notebook side
    from jupyter_ext.job.job import Job
    from kernel_backend.artifacts.methods import Methods

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
    note: str = "",
    tags: Sequence[str] = (),
    params: dict[str, Value] | None = None,
    space: Mapping[str, str] | None = None,
    include: Sequence[str] = (),
    data: Sequence[str] = (),
    commits: Sequence[str] = (),
    again: bool = False,
    **config: Any,
) -> Job:
    """Submit a file of training functions as an experiment.

    Everything is checked before anything is sent.

    Parameters
    ----------
    file : str or Path
        Python file with the functions of the training definition: `model`, `train_data`, `loss`, ...
    name : str, optional
        Name of the experiment.
    note : str, optional
        Text that is shown with the experiment.
    tags : sequence of str
        Tags by which the experiment is found.
    params : dict of str to Any, optional
        Hyperparameters by name; the others keep the defaults of the functions.
    space : mapping of str to str, optional
        Ranges and lists to search, such as ``{"lr": "1e-4..1e-1:log", "width": "32,64"}``.
    include : sequence of str
        Files and folders that are part of the snapshot.
    data : sequence of str
        Files, folders and URLs of data to list with their digests.
    commits : sequence of str
        Versions of data that is stored elsewhere, such as ``"lakefs://photos@c0ffee"``.
    again : bool, default False
        Start another experiment even if an identical one is active; by default the active one is returned.
    **config : Any
        Options of `%%dlsubmit` by name, such as ``slots=2, epochs=10, batch_size=64, search="asha"``.

    Returns
    -------
    Job
        The experiment.

    Raises
    ------
    InvalidDefinition
        The file cannot be parsed, lacks a required function, or leaves a hyperparameter without a value.
    InvalidRequest
        An option or a hyperparameter has an invalid value.
    ImpossibleAsk
        More slots are requested than exist.

    Examples
    --------
    >>> import daylight as dl
    >>> job = dl.submit("train.py", params={"width": 8}, slots=1, epochs=2)
    >>> job.wait().status
    'completed'
    >>> job.params["width"]
    8
    """
    from jupyter_ext.capture import capture_file
    from jupyter_ext.job.job import Job
    from jupyter_ext.submit.submit import SubmitOptions, config_from
    from jupyter_ext.submit.submit import submit as send
    from kernel_backend.model.labels import Labels
    from kernel_backend.spec.assignments import parse_line

    line = parse_line(f"{label}={text}" for label, text in (space or {}).items())
    given = {**line.given, **(params or {})}
    path, labels = Path(file), Labels(name, note, tuple(tags))
    asked = SubmitOptions(include=tuple(include), data=tuple(data), commits=tuple(commits), labels=labels)
    overview = send(
        capture_file(path),
        config_from(config),
        given,
        space=line.space,
        file=path,
        asked=asked,
        again=again,
    )
    return Job(overview.experiment.number)


def job(number: int) -> Job:
    """Return the handle of an experiment.

    Parameters
    ----------
    number : int
        Number of the experiment.

    Returns
    -------
    Job
        The experiment.

    Raises
    ------
    NotFound
        The experiment does not exist, or the user may not see it.

    Examples
    --------
    >>> import daylight as dl
    >>> dl.job(1).status
    'completed'
    """
    from jupyter_ext.job.job import Job

    found = Job(number)
    found.overview  # noqa: B018  asks for it, so that a number that is none is told at once
    return found


def show(number: int, view: str | None = None) -> None:
    """Display an experiment below the cell; outside of IPython, print it.

    Parameters
    ----------
    number : int
        Number of the experiment.
    view : {"auto", "card", "widget"}, optional
        Kind of display; by default the one that the frontend needs.

    Raises
    ------
    NotFound
        The experiment does not exist, or the user may not see it.
    InvalidRequest
        `view` is another value.

    Examples
    --------
    >>> import daylight as dl
    >>> dl.show(1)
    #1 ...
    """
    job(number).show(view)


def _in_this_process() -> Methods:
    from kernel_backend.runner.external_loop.local import local_methods

    return local_methods()


run.outside(_in_this_process)
connect(run, os.environ)


def __getattr__(name: str) -> Any:
    if name == "Job":
        from jupyter_ext.job.job import Job

        return Job
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; called by `%load_ext daylight`.

    Parameters
    ----------
    shell : InteractiveShell
        Shell of the notebook.
    """
    from jupyter_ext.magics.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unregister the magics; called by `%unload_ext daylight`.

    Parameters
    ----------
    shell : InteractiveShell
        Shell of the notebook.
    """
    from jupyter_ext.magics.magics import unload

    unload(shell)
