"""Define the job object: an experiment as an object in the notebook."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_ext.frontend import this_shell, wants_widget
from jupyter_ext.trials_frame import frame
from jupyter_ext.views import LiveView, bundle
from jupyter_ext.views.saved_state import curves_of, picture_of, search_of
from kernel_backend.client import Client
from kernel_backend.commands.exports.tensorboard import write_tensorboard
from kernel_backend.commands.follow import follow
from kernel_backend.commands.rerun import plan
from kernel_backend.commands.search import extension
from kernel_backend.commands.times import record_trace, traces_of
from kernel_backend.definition.plain import RESULT
from kernel_backend.errors import DaylightError, ExperimentFailed, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.checkpoints import CheckpointSelector, candidates
from kernel_backend.model.diff import Diff, Results
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.launch.trace import RankTrace, TraceRequest
from kernel_backend.model.launch.utilisation import Utilisation
from kernel_backend.model.record import Value, checked
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.model.times import Times
from kernel_backend.model.views.overview import CheckpointInfo, Overview
from kernel_backend.spec.slots import parse_slots
from kernel_backend.text import already_text, failure_text, head_text, metrics_text, new_notes, search_text
from kernel_backend.text.terminal import tell

if TYPE_CHECKING:
    import optuna
    import pandas

    from jupyter_ext.job.weights import Models, Weights

MOST = 10_000  # curves in a study, and values of each


class Job:
    """Handle of an experiment, to read its state, output and results, to steer it, and to load the trained model.

    Everything is fetched from the service whenever it is read.

    Parameters
    ----------
    number : int
        Number of the experiment.
    client : Client, optional
        Client of the service; by default one of the service that the user's notebooks use.

    Examples
    --------
    >>> import daylight as dl
    >>> job = dl.job(1)
    >>> job.status, job.params["width"]
    ('completed', 8)
    >>> sorted(job.best())
    ['error', 'loss']
    >>> sorted(job.metrics()["kind"].unique())
    ['training', 'validation']
    >>> len(job.checkpoints()) > 0
    True
    >>> job.tag("baseline").overview.experiment.tags
    ('baseline',)
    >>> job.load().training
    False
    """

    def __init__(self, number: int, client: Client | None = None) -> None:
        self.number = number
        self._client = client or Client.connect()

    @property
    def overview(self) -> Overview:
        """Return the current state of the experiment; raises NotFound."""
        return self._client.experiment(self.number)

    @property
    def status(self) -> str:
        """Return the experiment's state: `queued`, `running`, `completed`, `failed`, ..."""
        return self.overview.state

    @property
    def params(self) -> dict[str, Value]:
        """Return all hyperparameters, including defaults; for a search, those that are not searched."""
        return self.overview.experiment.params

    def metrics(self, kind: Kind | None = None, trial: int | None = None) -> pandas.DataFrame | list[dict[str, Any]]:
        """Return a row for each report: kind, step, epoch and the metrics.

        Parameters
        ----------
        kind : {"training", "validation"}, optional
            Kind of the reports; by default both.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.

        Returns
        -------
        DataFrame or list of dict
            A DataFrame where pandas is installed.
        """
        rows = [_row(report) for report in self._client.reports(self.number, self._meant(trial), kind)]
        if importlib.util.find_spec("pandas") is None:
            return rows
        import pandas

        return pandas.DataFrame(rows, columns=None if rows else ["kind", "step", "epoch"])

    def logs(self, rank: int | None = None, attempt: int | None = None, trial: int | None = None) -> str:
        """Return the output of a rank.

        Parameters
        ----------
        rank : int, optional
            Rank; by default the first that failed, else rank 0.
        attempt : int, optional
            Attempt of the trial; by default the newest.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.

        Returns
        -------
        str
            The whole log.
        """
        text, offset, trial = "", 0, self._meant(trial)
        while True:
            chunk = self._client.logs(self.number, trial, attempt, rank, offset)
            text += chunk.text
            if chunk.offset >= chunk.size or chunk.offset == offset:
                return text
            # Continue with the same file, even if another attempt begins meanwhile.
            offset, attempt, rank = chunk.offset, chunk.attempt, chunk.rank

    def export(self, trial: int | None = None) -> str:
        """Return the reports as CSV; for a search, its trials.

        Parameters
        ----------
        trial : int, optional
            Trial whose reports to return; by default the only one, or all trials of a search as rows.

        Returns
        -------
        str
            CSV with a header row, for `pandas.read_csv` or a spreadsheet.
        """
        return self._client.export(self.number, trial)

    def to_tensorboard(self, folder: str | PathLike[str], trial: int | None = None) -> Path:
        """Write event files of TensorBoard: a run for each trial with its metrics, hyperparameters and PNG artifacts.

        Parameters
        ----------
        folder : str or PathLike
            Folder of the runs, for `tensorboard --logdir`. Runs of an earlier export are replaced.
        trial : int, optional
            The only trial to write; by default all.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        InvalidRequest
            tensorboardX is not installed, or the folder cannot be written.
        """
        return write_tensorboard(self._client, self.number, trial, Path(folder)).folder

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the committed checkpoints.

        Returns
        -------
        list of CheckpointInfo
            Trial, step, epoch, metrics and size (bytes) of each.
        """
        return self._client.checkpoints(self.number)

    def times(self, trial: int | None = None) -> Times:
        """Return the seconds that each part of the training takes, by rank, and the main cause of lost time.

        Parameters
        ----------
        trial : int, optional
            Number of the trial; for a search, by default all trials together, without ranks.

        Returns
        -------
        Times
            `whole` and `minute` (the last 60 seconds) have `steps`, `parts` in seconds by name, and `share("data")`;
            `ranks` has the same of each rank, and `sentence` the cause and the way out, "" if nothing stands out.
        """
        return self._client.times(self.number, trial)

    def utilisation(self, trial: int | None = None, points: int = 200) -> Utilisation:
        """Return the use of the slots: GPU, CPU, memory, temperature and power, now, on average and as curves.

        Parameters
        ----------
        trial : int, optional
            Number of the trial; for a search, by default all trials together, without ranks.
        points : int, optional
            Most periods of each curve, 0 to 2000.

        Returns
        -------
        Utilisation
            `latest` and `whole` have `gpu` (0 to 1), `cpu` (cores), `memory` and `gpu_memory` (bytes), `temperature`
            (degrees Celsius), `watts` and `kwh`; what cannot be measured is None. `ranks` has the same of each rank,
            and its `curve`.
        """
        return self._client.utilisation(self.number, trial, points)

    def trace(self, steps: int = 10, ranks: Sequence[int] = (0,), trial: int | None = None) -> list[RankTrace]:
        """Record some steps of the running training by torch.profiler, and wait for the trace.

        The traces are artifacts, `trace-rank-0.json` and so on, which open in Perfetto or chrome://tracing.

        Parameters
        ----------
        steps : int, optional
            Number of steps to record.
        ranks : sequence of int, optional
            Ranks that record.
        trial : int, optional
            Number of the trial; by default the only one, or the best of a search.

        Returns
        -------
        list of RankTrace
            Steps and longest operations of each rank: `operations` have `name`, `calls`, `cpu_ms` and `device_ms`.

        Raises
        ------
        Conflict
            The training does not run, or ended before the trace was recorded.
        """
        record_trace(self._client, self.number, checked(TraceRequest, trial=trial, steps=steps, ranks=tuple(ranks)))
        return traces_of(self._client, self.number, trial)

    def artifacts(self) -> list[Artifact]:
        """Return the artifacts that the trials saved with `run.artifact`.

        Returns
        -------
        list of Artifact
            The artifacts, ordered by trial and name.
        """
        return self._client.artifacts(self.number)

    def artifact(self, name: str, trial: int | None = None) -> bytes:
        """Return the bytes of a trial's artifact.

        Parameters
        ----------
        name : str
            Name of the artifact.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.

        Returns
        -------
        bytes
            Content of the file; a zip archive for a folder.

        Raises
        ------
        NotFound
            The trial has no artifact of this name.
        """
        return self._client.artifact(self.number, self._meant(trial), name)

    def source(self) -> str:
        """Return the training definition that was submitted.

        Returns
        -------
        str
            Python source.
        """
        return self._client.source(self.number)[0]

    def diff(self, other: Job | int, *, strict: bool = False) -> Diff:
        """Compare this experiment with another.

        Parameters
        ----------
        other : Job or int
            The other experiment, or its number.
        strict : bool, default False
            Raise an error unless both have completed with the same bits.

        Returns
        -------
        Diff
            The `differences`, the likeliest cause first, and the comparison of the `results`.

        Raises
        ------
        DaylightError
            With `strict`, the results are not bit-identical; the message says which name differs first.
        """
        found = self._client.diff(self.number, other.number if isinstance(other, Job) else other)
        if strict and not found.results.identical:
            raise DaylightError(f"#{found.a} and #{found.b} are not shown to be bit-identical: {found.results.text}")
        return found

    def rerun(self, *, trust: bool = False, **params: Value) -> Job:
        """Submit the experiment's snapshot again, and print the differences from the original.

        Parameters
        ----------
        trust : bool, default False
            Allow another user's code to run with your rights.
        **params : Any
            Hyperparameters to replace.

        Returns
        -------
        Job
            The new experiment.

        Raises
        ------
        Forbidden
            The code is another user's and `trust` is False.
        """
        planned = plan(self._client, self.number, params, {}, trust=self.overview.experiment.owner if trust else None)
        for note in planned.notes:
            tell(f"note: {note}")
        return Job(self._client.rerun(self.number, planned.asked).experiment.number, self._client)

    def continue_training(
        self, epochs: int | None = None, *, steps: int | None = None, checkpoint: str = "newest", **params: Value
    ) -> Job:
        """Continue the training of the experiment, longer or with other hyperparameters, as a new experiment.

        Parameters
        ----------
        epochs, steps : int, optional
            Length of the whole training, including the part before the checkpoint; set one of them.
        checkpoint : str, default "newest"
            Checkpoint to start from: ``"newest"``, ``"best"``, or a step.
        **params : Any
            Hyperparameters to replace from there on.

        Returns
        -------
        Job
            The new experiment.

        Raises
        ------
        InvalidRequest
            The checkpoint is at that length already.
        """
        lengths = {"epochs": epochs, "steps": steps}
        settings = {name: value for name, value in lengths.items() if value is not None}
        planned = plan(self._client, self.number, params, settings, checkpoint=checkpoint)
        for note in planned.notes:
            tell(f"note: {note}")
        return Job(self._client.rerun(self.number, planned.asked).experiment.number, self._client)

    def verify(self, *, trust: bool = False) -> Results:
        """Rerun the steps between the experiment's first two checkpoints, wait, and compare the results bit for bit.

        Parameters
        ----------
        trust : bool, default False
            Allow another user's code to run with your rights.

        Returns
        -------
        Results
            `identical` is True if the results are bit-identical; otherwise the first step that differs is named.

        Raises
        ------
        Forbidden
            The code is another user's and `trust` is False.
        """
        planned = plan(self._client, self.number, {}, {}, trust=self.overview.experiment.owner if trust else None)
        again = Job(self._client.retrain(self.number, planned.asked).experiment.number, self._client).wait()
        return self.diff(again).results

    def best(self) -> dict[str, float]:
        """Return the best validation metrics so far; for a search, those of the best trial.

        The best validation has the best value of the experiment's metric; if none has a value, it is the newest.

        Returns
        -------
        dict of str to float
            Metrics by name; empty before the first validation.
        """
        front = self.overview.front
        if front is None or front.best is None:
            return dict(front.metrics) if front else {}
        reports = self._client.reports(self.number, front.index, "validation")
        return next(dict(report.metrics) for report in reports if report.step == front.best.step)

    @property
    def best_params(self) -> dict[str, Value]:
        """Return the hyperparameters of the best trial so far, including those that are not searched."""
        front = self.overview.front
        return dict(front.params) if front else {}

    def trials(self) -> pandas.DataFrame:
        """Return the trials of a search, one row each.

        Returns
        -------
        DataFrame
            State, units, values, usage and hyperparameters, indexed by trial.

        Raises
        ------
        InvalidRequest
            pandas is not installed.
        Conflict
            The experiment is not a search.
        """
        return frame(self._client, self.number)

    def to_optuna(self) -> optuna.Study:
        """Return a search as an Optuna study, for Optuna's plots, dashboard and importances.

        Paused and pruned trials become pruned trials of the study. A trial's value is its best, and its values at the
        ends of units are intermediate values.

        Returns
        -------
        optuna.Study
            The study, in memory.

        Raises
        ------
        InvalidRequest
            Optuna is not installed.
        Conflict
            The experiment is not a search.
        """
        from kernel_backend.search.report.study import study

        experiment = self.overview.experiment
        curves = self._client.search_curves(self.number, limit=MOST, points=MOST)
        rows = self._client.trial_rows(self.number, sort="trial")
        name = f"#{self.number} {experiment.name}".strip()
        return study(name, experiment.config.metric.mode, experiment.space, rows, curves.lines)

    def promote(self, trial: int) -> Job:
        """Promote a trial of a search with the next free slots, whatever its rank.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The trial has ended.
        """
        self._client.promote(self.number, trial)
        return self

    def prune(self, trial: int) -> Job:
        """Prune a trial of a search for good.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The trial has ended.
        """
        self._client.prune(self.number, trial)
        return self

    def extend(
        self, trials: int | None = None, budget: str | float | None = None, max_time: str | float | None = None
    ) -> Job:
        """Set the limits of a search, in total since the submission; a completed search continues.

        Parameters
        ----------
        trials : int, optional
            Total number of trials.
        budget : str or float, optional
            Total slot time, such as ``"20gpuh"``; a number is in seconds.
        max_time : str or float, optional
            Time since the submission, such as ``"8h"``; a number is in seconds.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            A limit is less than the search has used.
        """
        self._client.extend(self.number, extension(trials, budget, max_time))
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the experiment has ended or needs the user.

        Parameters
        ----------
        timeout : float, optional
            Time after which to return in any case, in seconds.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        ExperimentFailed
            The experiment failed, or is paused until the user fixes the cause that the message names.
        """
        for look in follow(self._client, self.overview, timeout):
            overview = look.overview
        raise_if_failed(overview)
        return self

    def rename(self, name: str) -> Job:
        """Rename the experiment.

        Parameters
        ----------
        name : str
            The new name.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.label(self.number, checked(LabelEdit, name=name))
        return self

    def note(self, text: str) -> Job:
        """Replace the note of the experiment.

        Parameters
        ----------
        text : str
            The new note; an empty text removes it.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.label(self.number, checked(LabelEdit, note=text))
        return self

    def tag(self, *add: str, remove: Iterable[str] = ()) -> Job:
        """Add tags to the experiment and remove others.

        Parameters
        ----------
        *add : str
            Tags to add.
        remove : iterable of str
            Tags to remove.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        InvalidRequest
            A tag is invalid.
        """
        self._client.label(self.number, LabelEdit(add_tags=add, remove_tags=tuple(remove)))
        return self

    def delete(self) -> Job:
        """Delete the experiment; `undelete` restores it within a day.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The experiment has not ended, or has a pinned checkpoint.
        """
        self._client.delete_experiment(self.number)
        return self

    def undelete(self) -> Job:
        """Restore the deleted experiment.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The experiment was deleted more than a day ago.
        """
        self._client.undelete(self.number)
        return self

    def stop(self) -> Job:
        """Stop the experiment for good; its checkpoints stay.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.stop(self.number)
        return self

    def pause(self) -> Job:
        """Pause the experiment: commit a checkpoint and release the slots.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.pause(self.number)
        return self

    def resume(self, slots: int | str | None = None) -> Job:
        """Resume a paused experiment, and print how another number of slots affects reproducibility.

        Parameters
        ----------
        slots : int or str, optional
            New number of slots, or a range such as ``"1..4"``; by default as before.

        Returns
        -------
        Job
            This experiment.
        """
        before = self.overview
        after = self._client.resume(self.number, *(() if slots is None else parse_slots(str(slots))))
        for note in [*already_text(before), *new_notes(before, after)]:
            tell(f"note: {note}")
        return self

    def move(self, pool: str) -> Job:
        """Move the experiment to another pool, where what runs goes on from a checkpoint.

        Parameters
        ----------
        pool : str
            Name of the pool; or several, as ``"gpu,cloud"``: the first of them that can start it has it.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The experiment has ended, or the pool cannot be used now.
        ImpossibleAsk
            No node of the pool could hold it.
        """
        before = self.overview
        for note in new_notes(before, self._client.move(self.number, pool)):
            tell(f"note: {note}")
        return self

    def show(self, view: str | None = None) -> None:
        """Display the experiment below the cell; outside of IPython, print it.

        Parameters
        ----------
        view : {"auto", "card", "widget"}, optional
            Kind of display; by default the one that the frontend needs.

        Raises
        ------
        InvalidRequest
            `view` is none of these.
        """
        widget = wants_widget(view, this_shell())
        LiveView(self._client, widget=widget).show(self.overview, final=True)

    def result(self, name: str | None = None, *, trust: bool = False, wait: bool = True) -> Any:
        """Return the value of the last expression of a cell that ran below `%%dlrun`, or a variable of `--back`.

        Parameters
        ----------
        name : str, optional
            Name of the variable; by default the value of the last expression.
        trust : bool, default False
            Allow another user's values, which may run code, in this process.
        wait : bool, default True
            Wait for the job's end.

        Returns
        -------
        Any
            The value.

        Raises
        ------
        NotFound
            The job has not completed, or brought back no such value.
        Forbidden
            The job is another user's and `trust` is False.
        """
        from jupyter_ext.job.result import result

        if not trust:
            self._check_owner()
        if wait:
            self.wait()
        return result(self.artifact(RESULT), name)

    def load(
        self,
        step: int | str | None = None,
        best: bool = False,
        weights: Weights = "auto",
        trial: int | None = None,
        trust: bool = False,
        wait: bool = True,
    ) -> Models:
        """Return a trial's model in evaluation mode, with the newest weights, the best, or those of a step.

        The submitted definition runs in this process. A running training is waited for, unless `step` is given or
        `wait` is False; after an interrupt, the newest existing weights are used. If the newest (or best) checkpoint is
        damaged, the next one is used, and a message is printed.

        Parameters
        ----------
        step : int or str, optional
            Training step whose weights to load; or, as ``weights``, the name of a module of a program with a training
            loop of its own: ``load("model")``.
        best : bool, default False
            Load the weights that are best by the experiment's metric, instead of the newest.
        weights : str, default "auto"
            ``"model"`` for the plain weights, ``"ema"`` for the averaged ones of a training with `--ema`. By default
            the averaged ones where they exist. Of `train(run, ...)` any name that it registers; of a program with a
            training loop of its own a variable, by default the only module, or the one that is named as a model is.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.
        trust : bool, default False
            Allow another user's code to run in this process.
        wait : bool, default True
            Wait for a running training to end.

        Returns
        -------
        torch.nn.Module or dict
            The model, on the CPU; where `model()` returned several, a dict of them by name. Of `train(run, ...)` that
            takes no function `model`, the `state_dict` of what it registers as `model`.

        Raises
        ------
        NotFound
            The trial has no checkpoint yet, or none of this step.
        InvalidRequest
            Both `step` and `best` are given.
        Forbidden
            The code is another user's and `trust` is False.
        """
        from jupyter_ext.job.unfinished import until_trained
        from jupyter_ext.job.weights import load

        if isinstance(step, str):
            weights, step = step, None
        if not trust:
            self._check_owner()
        if step is not None and best:
            raise InvalidRequest(f"load(step={step}, best=True): give one of them")
        if wait and step is None:
            until_trained(self._client, self.overview, trial)
        trial, metric = self._meant(trial), self.overview.experiment.config.metric
        which = CheckpointSelector(latest=step is None and not best, best=best, step=step)
        while True:
            choices = candidates(self._committed(trial), metric, which)
            try:
                return load(self._client, self.number, choices, weights)
            except NotFound:
                # A training deletes old checkpoints, also while they are read: choose again.
                if step is not None or choices[0].id in {each.id for each in self._committed(trial)}:
                    raise

    def _check_owner(self) -> None:
        owner = self.overview.experiment.owner
        if owner != self._client.me().person.name:
            raise Forbidden(
                f"experiment #{self.number} is {owner}'s: its code would run in this process, as you. Read it with "
                f"%dl source {self.number}; if you trust {owner}, write job.load(trust=True)"
            )

    def _committed(self, trial: int) -> list[CheckpointInfo]:
        found = [each for each in self.checkpoints() if each.trial == trial]
        if not found:
            raise NotFound(
                f"trial {self.number}.{trial} has no checkpoint yet: look with %dl checkpoints {self.number}"
            )
        return found

    def _meant(self, trial: int | None) -> int:
        return trial or self._client.front(self.number)

    def __repr__(self) -> str:
        return head_text(self.overview, time.time())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        overview = self.overview
        picture, curves = picture_of(self._client, overview), curves_of(self._client, overview)
        search = search_of(self._client, overview)
        return bundle(overview, time.time(), picture=picture, curves=curves, search=search)


def raise_if_failed(overview: Overview) -> None:
    """Raise ExperimentFailed, with the first failure, if the experiment failed or the user must fix something."""
    number = overview.experiment.number
    if overview.stuck is not None:
        text = f"experiment #{number} is paused: {overview.stuck.message}; then: %dl resume {number}"
        raise ExperimentFailed(text, number=number)
    if overview.state != "failed":
        return
    failures = [failure_text(trial.failure) for trial in overview.trials if trial.failure]
    failures += [*overview.warnings[-1:], "no rank said why"]  # the last warning is that of a search that failed itself
    raise ExperimentFailed(
        f"experiment #{number} failed: {failures[0]}\nwhat its ranks printed: %dl logs {number}",
        number=number,
    )


def final_lines(overview: Overview) -> list[str]:
    """Return lines for users: the final state, then each validation metric as `accuracy 0.953`.

    For a search they are the metrics of the best trial.
    """
    lines = [line for line in (head_text(overview, time.time()), search_text(overview)) if line]
    for trial in [overview.front] if overview.front else []:
        lines += [metrics_text({name: value}) for name, value in trial.metrics.items()]
    return lines


def _row(report: StoredReport) -> dict[str, Any]:
    return {"kind": report.kind, "step": report.step, "epoch": report.epoch, **report.metrics}
