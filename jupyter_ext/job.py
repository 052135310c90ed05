"""An experiment as an object of the notebook."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_ext.follow import ended, follow
from jupyter_ext.host import this_shell, wants_widget
from jupyter_ext.views import LiveView, bundle
from jupyter_ext.views.saved import curves_of, picture_of
from kernel_backend.client import Client
from kernel_backend.errors import ExperimentFailed, InvalidDefinition, NotFound
from kernel_backend.home import checkpoint_folder, home
from kernel_backend.model.definition import parse
from kernel_backend.model.overview import CheckpointInfo, Overview
from kernel_backend.model.record import Value
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.text import failure_text, head_text, metrics_text

if TYPE_CHECKING:
    import pandas
    import torch


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

    def best(self) -> dict[str, float]:
        """The newest validation metrics of its trial."""
        return dict(self.overview.trials[0].metrics)

    def wait(self, timeout: float | None = None) -> Job:
        """Return when it has ended, or after `timeout` seconds; raises ExperimentFailed where it failed."""
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

    def resume(self) -> Job:
        """Queue it again."""
        self._client.resume(self.number)
        return self

    def show(self, view: str | None = None) -> None:
        """Show it here, as a `card` or a `widget`; by default as the front end needs."""
        widget = wants_widget(view, this_shell())
        LiveView(self._client, widget=widget).show(self.overview, final=True)

    def load(self) -> torch.nn.Module:
        """Its model with the weights of the newest whole checkpoint, in evaluation mode.

        Runs the submitted definition in this process. A damaged checkpoint is set aside and the one before is
        taken; raises NotFound where there is none.
        """
        from kernel_backend.checkpoints.directory import Directory
        from kernel_backend.checkpoints.writer import load_model

        manifest, damage = Directory(checkpoint_folder(home(), self.number, 1)).newest_verified()
        if manifest is None:
            why = f" ({damage[0]})" if damage else ""
            raise NotFound(
                f"experiment {self.number} has no checkpoint yet{why}: look with %dl checkpoints {self.number}"
            )
        model = self._model()
        model.load_state_dict(load_model(manifest))
        return model.eval()

    def _model(self) -> torch.nn.Module:
        source, snapshot = self._client.source(self.number)
        definition = parse(source, snapshot.roles_from)
        function = definition.functions["model"]
        others = [each.name for each in function.parameters if each.kind != "hyperparameter"]
        if others:
            raise InvalidDefinition(
                f"model asks for {', '.join(others)}, which only a job has: make it with "
                f"%dl source {self.number}, and load the weights into it"
            )
        made = _module(source, self.number).model(**function.hyperparameters(self.params))
        return cast("torch.nn.Module", made)

    def __repr__(self) -> str:
        return head_text(self.overview, time.time())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        overview = self.overview
        picture, curves = picture_of(self._client, overview), curves_of(self._client, overview)
        return bundle(overview, time.time(), picture=picture, curves=curves)


def raise_if_failed(overview: Overview) -> None:
    """Raise ExperimentFailed with the first failure's own frames, if the experiment has failed."""
    if not ended(overview) or overview.state != "failed":
        return
    number = overview.experiment.number
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


def _module(source: str, number: int) -> Any:
    """The definition as a module of its own name, so that two experiments' classes stay apart."""
    name = f"daylight_experiment_{number}"
    path = Path(tempfile.mkdtemp(prefix="daylight-")) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
