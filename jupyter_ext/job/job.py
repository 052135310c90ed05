"""Define the job object: an experiment as an object in the notebook."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from jupyter_ext.frontend import this_shell, wants_widget
from jupyter_ext.job.actions import JobActions
from jupyter_ext.job.predict import JobPredictions
from jupyter_ext.job.results import JobResults
from jupyter_ext.job.search import JobSearch
from jupyter_ext.views import LiveView, bundle
from jupyter_ext.views.saved_state import curves_of, picture_of, search_of
from kernel_backend.commands.rerun import Planned, plan
from kernel_backend.errors import DaylightError
from kernel_backend.model.diff import Diff, Results
from kernel_backend.model.labels import Labels
from kernel_backend.model.record import Value
from kernel_backend.text import head_text
from kernel_backend.text.terminal import tell


class Job(JobResults, JobSearch, JobActions, JobPredictions):
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
    >>> job.predict("validation_data").shape
    (16, 1)
    """

    def diff(self, other: Job | int, *, strict: bool = False) -> Diff:
        """Compare this experiment with another.

        Parameters
        ----------
        other : Job or int
            The other experiment, or its number.
        strict : bool, default False
            Raise an error unless the results of both are bit-identical.

        Returns
        -------
        Diff
            The `differences`, the likeliest cause first, and the comparison of the `results`.

        Raises
        ------
        DaylightError
            With `strict`, the results are not bit-identical; the message says where they differ.
        """
        found = self._client.diff(self.number, other.number if isinstance(other, Job) else other)
        if strict and not found.results.identical:
            raise DaylightError(f"#{found.a} and #{found.b} are not shown to be bit-identical: {found.results.text}")
        return found

    def rerun(self, *, trust: bool = False, tags: Sequence[str] = (), note: str = "", **params: Value) -> Job:
        """Submit the experiment's snapshot again, and print the differences from the original.

        Parameters
        ----------
        trust : bool, default False
            Allow another user's code to run with your rights.
        tags : sequence of str, default ()
            Tags of the new experiment.
        note : str, default ""
            Note of the new experiment.
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
        owner = self.overview.experiment.owner if trust else None
        return self._again(
            plan(self._client, self.number, params, {}, Labels(note=note, tags=tuple(tags)), trust=owner)
        )

    def continue_training(
        self,
        epochs: int | None = None,
        *,
        steps: int | None = None,
        checkpoint: str = "newest",
        tags: Sequence[str] = (),
        note: str = "",
        **params: Value,
    ) -> Job:
        """Continue the training of the experiment, longer or with other hyperparameters, as a new experiment.

        Parameters
        ----------
        epochs, steps : int, optional
            Length of the whole training, including the part before the checkpoint; set one of them.
        checkpoint : str, default "newest"
            Checkpoint to start from: ``"newest"``, ``"best"``, or a step.
        tags : sequence of str, default ()
            Tags of the new experiment.
        note : str, default ""
            Note of the new experiment.
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
        return self._again(
            plan(
                self._client, self.number, params, settings, Labels(note=note, tags=tuple(tags)), checkpoint=checkpoint
            )
        )

    def _again(self, planned: Planned) -> Job:
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

    def show(self, view: str | None = None) -> None:
        """Display the experiment below the cell; outside of IPython, print it.

        Parameters
        ----------
        view : {"auto", "card", "widget"}, optional
            Kind of display; by default the one that the frontend needs.

        Raises
        ------
        InvalidRequest
            `view` is another value.
        """
        widget = wants_widget(view, this_shell())
        LiveView(self._client, widget=widget).show(self.overview, final=True)

    def __repr__(self) -> str:
        return head_text(self.overview, time.time())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        overview = self.overview
        picture, curves = picture_of(self._client, overview), curves_of(self._client, overview)
        search = search_of(self._client, overview)
        return bundle(overview, time.time(), picture=picture, curves=curves, search=search)
