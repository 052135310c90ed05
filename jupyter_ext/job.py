"""An experiment as an object of the notebook."""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING, Any

from jupyter_ext.again import plan
from jupyter_ext.follow import follow
from jupyter_ext.host import this_shell, wants_widget
from jupyter_ext.views import LiveView, bundle
from jupyter_ext.views.saved import curves_of, picture_of
from kernel_backend.client import Client
from kernel_backend.errors import ExperimentFailed, InvalidRequest, NotFound
from kernel_backend.model.checkpoints import Which, candidates
from kernel_backend.model.diff import Diff, Results
from kernel_backend.model.overview import CheckpointInfo, Overview
from kernel_backend.model.record import Value
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.text import already_text, failure_text, head_text, metrics_text, new_notes

if TYPE_CHECKING:
    import pandas
    import torch

    from jupyter_ext.weights import Weights


class Job:
    """Experiment `number`: how it is, what it said, and what came of it. All of it is asked for when it is read."""

    def __init__(self, number: int, client: Client | None = None) -> None:
        self.number = number
        self._client = client or Client.connect()

    @property
    def overview(self) -> Overview:
        """The experiment as it is now; raises NotFound."""
        return self._client.experiment(self.number)

    @property
    def status(self) -> str:
        """`queued`, `running`, `completed`, `failed`, ..."""
        return self.overview.state

    @property
    def params(self) -> dict[str, Value]:
        """All hyperparameters, defaults included."""
        return self.overview.experiment.params

    def metrics(self, kind: Kind | None = None) -> pandas.DataFrame | list[dict[str, Any]]:
        """A row for each report: kind, step, epoch and the metrics; a DataFrame where pandas is installed."""
        rows = [_row(report) for report in self._client.reports(self.number, kind=kind)]
        if importlib.util.find_spec("pandas") is None:
            return rows
        import pandas

        return pandas.DataFrame(rows, columns=None if rows else ["kind", "step", "epoch"])

    def logs(self, rank: int | None = None, attempt: int | None = None) -> str:
        """What a rank printed: of the one that failed first, else rank 0, in the newest attempt."""
        text, offset = "", 0
        while True:
            chunk = self._client.logs(self.number, attempt=attempt, rank=rank, offset=offset)
            text += chunk.text
            if chunk.offset >= chunk.size or chunk.offset == offset:
                return text
            # On with the same file, should another attempt begin meanwhile.
            offset, attempt, rank = chunk.offset, chunk.attempt, chunk.rank

    def checkpoints(self) -> list[CheckpointInfo]:
        """Its committed checkpoints."""
        return self._client.checkpoints(self.number)

    def source(self) -> str:
        """The definition that was submitted."""
        return self._client.source(self.number)[0]

    def diff(self, other: Job | int) -> Diff:
        """What differs between this experiment and another, the likeliest cause first, and what came of it."""
        return self._client.diff(self.number, other.number if isinstance(other, Job) else other)

    def rerun(self, **params: Value) -> Job:
        """Its snapshot again, with other hyperparameters where they are given; what is not as it was is printed."""
        planned = plan(self._client, self.number, params, {})
        for note in planned.notes:
            print(f"note: {note}")
        return Job(self._client.rerun(self.number, planned.asked).experiment.number, self._client)

    def verify(self) -> Results:
        """Its first steps again, from its first checkpoint to its next: whether the bits agree. Waits for it."""
        planned = plan(self._client, self.number, {}, {})
        again = Job(self._client.retrain(self.number, planned.asked).experiment.number, self._client).wait()
        return self.diff(again).results

    def best(self) -> dict[str, float]:
        """The newest validation metrics of its trial."""
        return dict(self.overview.trials[0].metrics)

    def wait(self, timeout: float | None = None) -> Job:
        """Return when it has ended, or after `timeout` seconds; raises ExperimentFailed where it failed or is stuck."""
        for look in follow(self._client, self.overview, timeout):
            overview = look.overview
        raise_if_failed(overview)
        return self

    def stop(self) -> Job:
        """End it for good."""
        self._client.stop(self.number)
        return self

    def pause(self) -> Job:
        """Commit a checkpoint and give the slots back."""
        self._client.pause(self.number)
        return self

    def resume(self, slots: int | None = None) -> Job:
        """Queue it again, on another number of slots where one is given: what that means for its bits is printed."""
        before = self.overview
        after = self._client.resume(self.number, slots)
        for note in [*already_text(before), *new_notes(before, after)]:
            print(f"note: {note}")
        return self

    def show(self, view: str | None = None) -> None:
        """Show it here, as a `card` or a `widget`; by default as the front end needs."""
        widget = wants_widget(view, this_shell())
        LiveView(self._client, widget=widget).show(self.overview, final=True)

    def load(
        self, step: int | None = None, best: bool = False, weights: Weights = "auto", trial: int = 1
    ) -> torch.nn.Module:
        """A trial's model in evaluation mode: with the newest weights, those of a step, or the best by its metric.

        Of a training with `--ema` they are the averaged ones; `weights="model"` takes the plain ones instead.
        Runs the submitted definition in this process. Where the newest (or the best) checkpoint is damaged, the
        next one is taken, and that is said; raises NotFound where there is none.
        """
        from jupyter_ext.weights import load

        metric = self.overview.experiment.config.metric
        found = [each for each in self.checkpoints() if each.trial == trial]
        if not found:
            raise NotFound(
                f"trial {self.number}.{trial} has no checkpoint yet: look with %dl checkpoints {self.number}"
            )
        if step is not None and best:
            raise InvalidRequest(f"load(step={step}, best=True): give one of them")
        which = Which(latest=step is None and not best, best=best, step=step)
        return load(self._client, self.number, candidates(found, metric, which), weights)

    def __repr__(self) -> str:
        return head_text(self.overview, time.time())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        overview = self.overview
        picture, curves = picture_of(self._client, overview), curves_of(self._client, overview)
        return bundle(overview, time.time(), picture=picture, curves=curves)


def raise_if_failed(overview: Overview) -> None:
    """Raise ExperimentFailed with the first failure's own frames, if the experiment has failed or is stuck."""
    number = overview.experiment.number
    if overview.stuck is not None:
        text = f"experiment #{number} is paused: {overview.stuck.message}; then: %dl resume {number}"
        raise ExperimentFailed(text, number=number)
    if overview.state != "failed":
        return
    failures = [failure_text(trial.failure) for trial in overview.trials if trial.failure]
    raise ExperimentFailed(
        f"experiment #{number} failed: {failures[0] if failures else 'no rank said why'}\n"
        f"what its ranks printed: %dl logs {number}",
        number=number,
    )


def final_lines(overview: Overview) -> list[str]:
    """How it ended, and each validation metric on a line of its own: `accuracy 0.953`."""
    lines = [head_text(overview, time.time())]
    for trial in overview.trials:
        lines += [metrics_text({name: value}) for name, value in trial.metrics.items()]
    return lines


def _row(report: StoredReport) -> dict[str, Any]:
    return {"kind": report.kind, "step": report.step, "epoch": report.epoch, **report.metrics}
