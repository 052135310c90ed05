"""Define the common base of a job's methods: its experiment, the client, and waiting for the experiment's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from jupyter_ext.job.outcome import raise_if_failed
from kernel_backend.client import Client
from kernel_backend.commands.follow import follow
from kernel_backend.model.record import Value
from kernel_backend.model.views.overview import Overview
from kernel_backend.trained.own_code import check_owner

if TYPE_CHECKING:
    from jupyter_ext.job.values import JobValues


class JobBase:
    """Base class of a job: the handle of an experiment, whose state is fetched from the service whenever it is read."""

    def __init__(self, number: int, client: Client | None = None) -> None:
        self.number = number
        self._client = client or Client.connect()
        self._values: dict[int, JobValues] = {}  # by trial

    @property
    def client(self) -> Client:
        """Return the client of the service that has the experiment."""
        return self._client

    @property
    def overview(self) -> Overview:
        """Return the current state of the experiment; raises NotFound if the experiment no longer exists."""
        return self._client.experiment(self.number)

    @property
    def status(self) -> str:
        """Return the experiment's state: `queued`, `running`, `completed`, `failed`, ..."""
        return self.overview.state

    @property
    def params(self) -> dict[str, Value]:
        """Return all hyperparameters, including defaults; for a search, those that are not searched."""
        return self.overview.experiment.params

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until the experiment has ended, or is paused until the user fixes something.

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

    def _check_owner(self) -> None:
        check_owner(self._client, self.overview, "job.load(trust=True)")

    def _meant(self, trial: int | None) -> int:
        return trial or self._client.front(self.number)
