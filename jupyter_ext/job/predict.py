"""Define the methods of a job that predict with the trained model, measure it, and read predictions."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from jupyter_ext.job.base import JobBase
from kernel_backend.commands.predictions.read import as_values, measured_checkpoints
from kernel_backend.commands.predictions.write import write_predictions
from kernel_backend.definition.prediction_form import EVALUATING, ON_BAD, PREDICTING, TARGET, UseOfModel
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import Reference, Source
from kernel_backend.model.labels import Labels
from kernel_backend.model.record import Value


class JobPredictions(JobBase):
    """Methods of a job that predict rows on slots, each once whatever is killed meanwhile, or measure the model."""

    def predict(
        self,
        data: Any,
        to: str | PathLike[str] | None = None,
        *,
        slots: int | str = 1,
        pool: str | None = None,
        batch_size: int = 256,
        trial: int | None = None,
        step: int | None = None,
        on_bad: str = "fail",
        name: str | None = None,
        wait: bool = True,
        trust: bool = False,
    ) -> Any:
        """Predict the rows of a dataset with the best model of this experiment, as a job of its own.

        Parameters
        ----------
        data : str, PathLike, Tensor, array, dict, DataFrame or dataset
            Path of a CSV, parquet or .npy file or of a folder; ``"test_data"`` or another role of the training; or
            rows of the notebook, which travel with the job up to 256 MB.
        to : str or PathLike, optional
            A .parquet or .npy file, or a folder, to which the predictions are written.
        slots : int or str, default 1
            Number of slots; ``"1..4"`` for as many as nobody waits for.
        pool : str, optional
            Pool of nodes; by default that of all jobs.
        batch_size : int, default 256
            Rows that the model predicts at once.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.
        step : int, optional
            Step of the checkpoint; by default the best one.
        on_bad : {"fail", "skip"}, default "fail"
            Whether a row that raises an error ends the job, or is left out and listed.
        name : str, optional
            What to call it.
        wait : bool, default True
            Wait for the end, and return the predictions.
        trust : bool, default False
            Allow another user's code to run with your permissions.

        Returns
        -------
        ndarray, dict, list of Path or Job
            An array of the outputs, row by row; a dict of columns if the outputs have names or rows were left out; the
            files if `to` is given; the prediction's job without `wait`.

        Raises
        ------
        InvalidRequest
            There is no such data, or too much to travel.
        ExperimentFailed
            The model, or a row, raised an error.
        """
        from jupyter_ext.submit.predict import options_of

        given = {} if on_bad == "fail" else {ON_BAD: on_bad}
        config = options_of(slots=str(slots), pool=pool, batch_size=str(batch_size))
        made = self._use(PREDICTING, data, Source(Reference(self.number, trial), step), given, config, name, trust)
        return made.wait().predictions(to) if wait else made

    def evaluate(
        self,
        data: Any,
        *,
        target: str = "",
        slots: int = 1,
        pool: str | None = None,
        batch_size: int = 256,
        trial: int | None = None,
        step: int | None = None,
        each_checkpoint: bool = False,
        follow: bool = False,
        name: str | None = None,
        wait: bool = True,
        trust: bool = False,
    ) -> Any:
        """Measure the best model of this experiment on a dataset, as a job of its own.

        The values are those of the training's ``loss`` and ``metrics``, or what Lightning, Keras or transformers
        measure.

        Parameters
        ----------
        data : str, PathLike, tuple, DataFrame or dataset
            Path of a CSV or parquet file; ``"test_data"`` or another role of the training; or rows of the notebook with
            their targets, such as ``(x, y)``, which travel with the job up to 256 MB.
        target : str, optional
            Column of a table that has the targets.
        slots : int, default 1
            Number of slots; one for a model of Lightning or Keras.
        pool : str, optional
            Pool of nodes; by default that of all jobs.
        batch_size : int, default 256
            Rows that are measured at once.
        trial : int, optional
            Number of the trial; for a search, by default the best one so far.
        step : int, optional
            Step of the checkpoint; by default the best one.
        each_checkpoint : bool, default False
            Measure all checkpoints that the training has kept, in place of the best one.
        follow : bool, default False
            Measure each checkpoint while the training goes on, which gets the values as validations, and do not wait.
        name : str, optional
            What to call it.
        wait : bool, default True
            Wait for the end, and return the values.
        trust : bool, default False
            Allow another user's code to run with your permissions.

        Returns
        -------
        dict or Job
            The values by name, such as ``{"loss": 0.31, "accuracy": 0.92}``, or with `each_checkpoint` these of each
            checkpoint; without `wait`, and with `follow`, the evaluation's job.

        Raises
        ------
        InvalidRequest
            There is no such data, or too much to travel.
        ExperimentFailed
            The model, a loss or a metric raised an error.
        """
        from jupyter_ext.submit.predict import of_checkpoints, options_of

        given = {TARGET: target} if target else {}
        config = options_of(slots=str(slots), pool=pool, batch_size=str(batch_size))
        if each_checkpoint or follow:
            config = of_checkpoints(config, follow=follow)
        made = self._use(EVALUATING, data, Source(Reference(self.number, trial), step), given, config, name, trust)
        if follow or not wait:
            return made
        ended = made.wait()
        return (
            measured_checkpoints(self._client, made.number)
            if each_checkpoint
            else dict(ended.overview.trials[0].metrics)
        )

    def predictions(self, to: str | PathLike[str] | None = None) -> Any:
        """Return what this job has predicted, or write it to files.

        Parameters
        ----------
        to : str or PathLike, optional
            A .parquet or .npy file, or a folder.

        Returns
        -------
        ndarray, dict or list of Path
            As `predict` returns it.

        Raises
        ------
        InvalidRequest
            This experiment is no prediction, or it is not complete yet.
        """
        if to is None:
            return as_values(self._client, self.number)
        return write_predictions(self._client, self.number, Path(to).expanduser())

    def _use(
        self,
        use: UseOfModel,
        data: Any,
        model: Source,
        given: Mapping[str, Value],
        config: Config,
        name: str | None,
        trust: bool,
    ) -> Self:
        """Submit a job that uses a model on rows, and return it."""
        from jupyter_ext.submit.predict import Rows, read_data, submit_use, with_rows

        by_path = isinstance(data, str | PathLike)
        rows = read_data(use, fspath(data)) if by_path else Rows(with_rows(use, data, str(given.get(TARGET, ""))))
        overview = submit_use(
            self._client,
            use,
            model,
            rows.capture,
            given,
            config,
            labels=Labels(name=name),
            data=rows.data,
            role=rows.role,
            trust=self._client.experiment(self.number).experiment.owner if trust else None,
            called=fspath(data) if by_path else "rows of a notebook",
        )
        return type(self)(overview.experiment.number, self._client)
