"""Attribute a difference between two experiments to its causes (`diff --attribute`).

The second experiment is rerun several times. Each rerun sets one more group of causes, such as code or seeds, as in the
first experiment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from kernel_backend.client import Client
from kernel_backend.commands.follow import follow
from kernel_backend.commands.restored_data import RestoredData, Submitted, restore_data
from kernel_backend.definition.code import is_code
from kernel_backend.differences.attribution import Step, beyond, config, params, steps
from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.model.diff import Attribution, AttributionRow, DifferenceKind
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.snapshot import DEFINITION, DESCRIPTION, Snapshot
from kernel_backend.model.versions import read
from kernel_backend.model.views.overview import Overview
from kernel_backend.snapshots.archive import contents, pack_snapshot
from kernel_backend.snapshots.environment import record
from kernel_backend.text import state_word

Back = frozenset[DifferenceKind]


def attribute(client: Client, a: int, b: int, tell: Callable[[str], None]) -> Attribution:
    """Find which differences between experiments `a` and `b` cause the difference of their results.

    Experiment `b` is rerun several times. The first rerun sets one group of differences, such as code, as in `a`; each
    further one sets one more group in addition. All reruns are started and then waited for. `tell` is called with a
    line for each started rerun. An interrupt ends only the waiting, not the reruns. Raises NotFound, InvalidRequest if
    `a` or `b` has not ended or after an interrupt, and errors of the service.
    """
    diff, before, after = client.diff(a, b), client.experiment(a), client.experiment(b)
    for overview in (before, after):
        if not overview.ended:
            number = overview.experiment.number
            raise InvalidRequest(f"#{number} is {state_word(overview)}: its causes are told apart once it has ended")
    metric = _metric(before)
    baseline = _value(before, metric)
    rows = [_row(f"#{a} as it was", before, metric, baseline), _row(f"#{b} as found", after, metric, baseline)]
    one, other = _submitted(client, before), _submitted(client, after)
    missing = dict.fromkeys(beyond(diff.differences))
    begun: list[tuple[Step, Overview | DaylightError]] = []
    for step in steps(diff.differences):
        try:
            overview = _train(client, one, other, step, missing)
        except DaylightError as error:
            begun.append((step, error))
        else:
            begun.append((step, overview))
            tell(f"#{overview.experiment.number}: {step.label}")
    last: int | None = None
    try:
        for step, found in begun:
            if isinstance(found, DaylightError):
                fields = {"label": step.label, "experiment": None, "state": "refused", "value": None, "off": None}
                rows.append(AttributionRow.model_validate({**fields, "note": found.message}))
                continue
            *_, look = follow(client, found)
            last = found.experiment.number
            rows.append(_row(step.label, look.overview, metric, baseline))
    except KeyboardInterrupt:
        going = ", ".join(f"#{each.experiment.number}" for _, each in begun if isinstance(each, Overview))
        raise InvalidRequest(f"{going} continue in the background: %dl diff shows each once it has ended") from None
    return Attribution(
        a=a,
        b=b,
        metric=metric,
        rows=tuple(rows),
        beyond=tuple(missing),
        results=client.diff(a, last).results if last else None,
    )


def _submitted(client: Client, overview: Overview) -> Submitted:
    files = contents(client.archive(overview.experiment.number))
    return Submitted(overview.experiment, read(Snapshot, files[DESCRIPTION]), files)


def _train(client: Client, a: Submitted, b: Submitted, step: Step, missing: dict[str, None]) -> Overview:
    """Start a rerun of `b` in which the kinds of differences in `step.back` are set as in `a`; return its overview.

    A sentence on declared data that cannot be restored is added to the keys of `missing`.
    """
    seen = RestoredData(params(a.experiment, b.experiment, step.back), b.experiment.config.data_at)
    if "data" in step.back:
        seen = restore_data(a, b, seen.params)
        missing |= dict.fromkeys(f"data: {each}" for each in seen.beyond)
    snapshot, files = mixed(a, b, step.back)
    id, data = pack_snapshot(files.pop(DEFINITION).decode(), snapshot, files)
    client.upload_snapshot(id, data)
    settings = config(a.experiment, b.experiment, step.back)
    settings["data_at"] = seen.data_at
    settings["env"] = "current" if snapshot.environment.id == record().id else "locked"
    return client.submit(
        Submission(
            snapshot=id,
            config=Config.model_validate(settings),
            params=seen.params,
            name=f"#{b.experiment.number} {step.label}",
            python=sys.executable,
            cwd=b.experiment.cwd,
            notebook=b.experiment.notebook,
            rerun_of=b.experiment.number,
            again=True,
        )
    )


def mixed(a: Submitted, b: Submitted, back: Back) -> tuple[Snapshot, dict[str, bytes]]:
    """Combine the snapshots of two experiments; return the new snapshot and its files.

    Of the kinds code, environment and data, those in `back` come from `a`, and the others from `b`.
    """
    code = a if "code" in back else b
    libraries = a if "environment" in back else b
    data = a if "data" in back else b
    parts: Sequence[tuple[Submitted, Callable[[str], bool]]] = (
        (code, is_code),
        (data, lambda name: name.startswith("data/")),
        (libraries, lambda name: not is_code(name) and not name.startswith("data/") and name != DESCRIPTION),
    )
    files = {name: content for side, wanted in parts for name, content in side.files.items() if wanted(name)}
    snapshot = code.snapshot.model_copy(
        update={
            "environment": libraries.snapshot.environment,
            "version": libraries.snapshot.version,
            "numerics": libraries.snapshot.numerics,
            "requirements": libraries.snapshot.requirements,
            "data": data.snapshot.data,
            "commits": data.snapshot.commits,
            "state": {},  # values of the original notebook do not fit the mixed code and data
        }
    )
    return snapshot, files


def _metric(overview: Overview) -> str:
    """Return the name of the metric to compare: the experiment's, or the training loss if it was never validated."""
    name, front = overview.experiment.config.metric.name, overview.front
    return name if front is None or name in front.metrics else next(iter(front.newest[1]), name)


def _value(overview: Overview, metric: str) -> float | None:
    return overview.front.newest[1].get(metric) if overview.front and overview.state == "completed" else None


def _row(label: str, overview: Overview, metric: str, baseline: float | None) -> AttributionRow:
    value, number = _value(overview, metric), overview.experiment.number
    off = None if value is None or baseline is None else abs(value - baseline)
    failure = overview.front.failure if overview.front else None
    note = failure.message.splitlines()[0] if failure and failure.message and overview.state == "failed" else ""
    return AttributionRow(label=label, experiment=number, state=overview.state, value=value, off=off, note=note)
