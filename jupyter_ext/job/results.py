"""Define the methods of a job that read results: reports, logs, checkpoints, artifacts and the model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_ext.job.base import JobBase
from kernel_backend.commands.exports.tensorboard import write_tensorboard
from kernel_backend.commands.times import record_trace, traces_of
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.checkpoints import CheckpointSelector, candidates
from kernel_backend.model.ids import Reference
from kernel_backend.model.launch.trace import RankTrace, TraceRequest
from kernel_backend.model.launch.utilisation import Utilisation
from kernel_backend.model.record import Value, checked
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.model.times import Times
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.text.terminal import tell

if TYPE_CHECKING:
    import pandas

    from jupyter_ext.job.values import JobValues
    from kernel_backend.trained.load import Models, Weights


class JobResults(JobBase):
    """Methods of a job that read an experiment's results."""

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

    def export_model(
        self,
        folder: str | PathLike[str],
        step: int | None = None,
        best: bool | None = None,
        module: str = "auto",
        formats: Sequence[str] = (),
        trial: int | None = None,
        force: bool = False,
        trust: bool = False,
    ) -> Path:
        """Write the trained model as a folder that needs no Daylight, and prove it in a fresh process.

        Parameters
        ----------
        folder : str or PathLike
            The new folder, which appears whole or not at all.
        step : int, optional
            Step of the checkpoint.
        best : bool, optional
            True for the best checkpoint by the experiment's metric, False for the newest; by default the best if one
            was validated.
        module : str, default "auto"
            Variable of a program that trains several modules.
        formats : sequence of str
            Programs for other runtimes beside it: ``"pt2"`` of `torch.export`, ``"onnx"``.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.
        force : bool, default False
            Replace an earlier export there.
        trust : bool, default False
            Allow another user's code to run in this process.

        Returns
        -------
        Path
            The folder; its README.md says what is in it, and how to load it.

        Raises
        ------
        InvalidRequest
            The folder exists, or the model cannot be written so that a fresh process computes the same.
        """
        from kernel_backend.commands.exports.model import export_trained

        found = export_trained(
            self._client,
            Reference(self.number, trial),
            Path(folder),
            CheckpointSelector(latest=best is False and step is None, best=bool(best), step=step),
            module=module,
            formats=formats,
            force=force,
            trust="" if trust else "trust=True",
        )
        for line in [f"{found.folder}: {found.proof}", *found.notes]:
            tell(line)
        return found.folder

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
            `whole` and `minute` (the last 60 seconds) have `steps`, `parts` in seconds by name, and `share("data")`,
            the fraction of a part; `ranks` has the same for each rank, and `sentence` the cause and a remedy, "" if
            nothing stands out.
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
            The job has not completed, or returned no such value.
        Forbidden
            The job is another user's and `trust` is False.
        """
        values = self.values(trust=trust, wait=wait)
        return values.last if name is None else values[name]

    def values(
        self,
        trial: int | None = None,
        *,
        trust: bool = False,
        wait: bool = True,
        arriving: Callable[[str], None] = tell,
    ) -> JobValues:
        """Return the values that the submitted cell has set in the job.

        Of a definition of functions it is the table of validations as `history`, and a model that is given as a value.
        What they share in the job they share here: `optimizer` belongs to `model`. A later call returns the same
        objects.

        Parameters
        ----------
        trial : int, optional
            Number of the trial; by default the only one.
        trust : bool, default False
            Allow another user's values, which may run code, in this process.
        wait : bool, default True
            Wait for the job's end.
        arriving : callable, optional
            Takes a line of progress every few seconds while large values are downloaded; by default it is printed.

        Returns
        -------
        dict of str to Any
            The values by name; a name that is missing raises NotFound with the reason.

        Raises
        ------
        NotFound
            The job has stored no values: it was no notebook's cell, has not ended, or `--no-values` was given.
        Forbidden
            The job is another user's and `trust` is False.
        """
        from jupyter_ext.job.values import values_of, values_of_functions

        if not trust:
            self._check_owner()
        if wait:
            self.wait()
        trial = self._meant(trial)
        if trial not in self._values:
            try:
                self._values[trial] = values_of(self._client, self.number, trial, arriving)
            except NotFound:
                self._values[trial] = values_of_functions(self, trial)
        return self._values[trial]

    def __getitem__(self, name: str) -> Any:
        """Return a value that the submitted cell has set in the job: `job["history"]`."""
        return self.values()[name]

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
            Training step whose weights to load; or, as ``weights``, the name of a variable of a program with a training
            loop of its own: ``load("model")``, ``load("members")``, ``load("members[0]")``.
        best : bool, default False
            Load the weights that are best by the experiment's metric, instead of the newest.
        weights : str, default "auto"
            ``"model"`` for the plain weights, ``"ema"`` for the averaged ones of a training with `--ema`. By default
            the averaged ones where they exist. For `train(run, ...)`, a name that it registers. For a program with a
            training loop of its own, the name of a variable; by default the only one that holds a module.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.
        trust : bool, default False
            Allow another user's code to run in this process.
        wait : bool, default True
            Wait for a running training to end.

        Returns
        -------
        torch.nn.Module, Tensor, dict or list
            The model, on the CPU; where `model()` returned several, a dict of them by name. Of `train(run, ...)` that
            takes no function `model`, the `state_dict` of what it registers as `model`. Of a program with a training
            loop of its own, what its variable held.

        Raises
        ------
        NotFound
            The trial has no checkpoint yet, or none of this step.
        InvalidRequest
            Both `step` and `best` are given, or a program has trained several models and none is named.
        Forbidden
            The code is another user's and `trust` is False.
        """
        from jupyter_ext.job.unfinished import until_trained
        from kernel_backend.trained.load import load

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
                return load(self._client, self.number, choices, weights).models
            except NotFound:
                # A training deletes old checkpoints, also while they are read: choose again.
                if step is not None or choices[0].id in {each.id for each in self._committed(trial)}:
                    raise

    def _committed(self, trial: int) -> list[CheckpointInfo]:
        found = [each for each in self.checkpoints() if each.trial == trial]
        if not found:
            raise NotFound(
                f"trial {self.number}.{trial} has no checkpoint yet: look with %dl checkpoints {self.number}"
            )
        return found


def _row(report: StoredReport) -> dict[str, Any]:
    return {"kind": report.kind, "step": report.step, "epoch": report.epoch, **report.metrics}
