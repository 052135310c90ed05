"""Define the common base of a job's methods: the number of the experiment, and the client."""

from __future__ import annotations

from kernel_backend.client import Client
from kernel_backend.errors import Forbidden
from kernel_backend.model.record import Value
from kernel_backend.model.views.overview import Overview


class JobBase:
    """Experiment of a job; its state is fetched from the service whenever it is read."""

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

    def _check_owner(self) -> None:
        owner = self.overview.experiment.owner
        if owner != self._client.me().person.name:
            raise Forbidden(
                f"experiment #{self.number} is {owner}'s: its code would run in this process, as you. Read it with "
                f"%dl source {self.number}; if you trust {owner}, write job.load(trust=True)"
            )

    def _meant(self, trial: int | None) -> int:
        return trial or self._client.front(self.number)
