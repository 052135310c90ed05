"""Read the measurements of a training: the time that each part takes, and the use of its slots."""

from __future__ import annotations

from kernel_backend.client.calls import Calls, given
from kernel_backend.model.launch.utilisation import Utilisation
from kernel_backend.model.times import Times


class MeasuredCalls(Calls):
    """Calls about measurements; each raises NotFound for an experiment that the user may not see."""

    def times(self, number: int, trial: int | None = None) -> Times:
        """Return the seconds that each part of a trial's work takes.

        For a search without `trial`, they are those of all trials together.
        """
        body = self._service.json("GET", f"/api/experiments/{number}/times", params=given(trial=trial))
        return self._read(Times, body)

    def utilisation(self, number: int, trial: int | None = None, points: int = 200) -> Utilisation:
        """Return how a trial used its slots (GPU, CPU, memory), as curves over at most `points` periods.

        For a search without `trial`, it is the use by all trials together, without ranks.
        """
        query = given(trial=trial, points=points)
        return self._read(
            Utilisation, self._service.json("GET", f"/api/experiments/{number}/utilisation", params=query)
        )
