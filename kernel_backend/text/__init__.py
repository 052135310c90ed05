"""Format records as text, for the command line and for plain-text output of notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import AttemptState, TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import HANG, Attempt, Failure, Trial, checkpoint_step
from kernel_backend.model.versions import read
from kernel_backend.model.views.overview import Overview, Wait
from kernel_backend.model.views.result import metrics_text as metrics_text
from kernel_backend.model.views.result import newest_text as newest_text
from kernel_backend.model.views.result import number as number
from kernel_backend.model.views.result import result_text as result_text
from kernel_backend.model.views.starting import counted as counted
from kernel_backend.model.views.starting import duration as duration
from kernel_backend.model.views.throughput import Throughput
from kernel_backend.text.dates import started_text

FEW_NODES = 4  # whose names are shown
_WORDS = {str(TrialState.RELEASING): "saving a checkpoint"}  # of states that do not say what happens


def params_text(params: Mapping[str, Value]) -> str:
    """Format hyperparameters in their order in the training definition: `width=64 lr=0.01`."""
    return " ".join(
        f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in params.items()
    )


def value_text(value: Value) -> str:
    """Format a hyperparameter's value in few characters: `0.003142`, `64`, `adam`."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return number(value) if isinstance(value, float) else str(value)


def search_text(overview: Overview) -> str:
    """Format the progress of a search; "" for an experiment that is no search.

    Example: `12 of 64 trials: 3 running, 9 paused; error 0.034 best, trial 12.7, epoch 9: lr=0.003 width=64`. Only
    searched hyperparameters are shown, in short form.
    """
    search = overview.experiment.config.search
    if search is None:
        return ""
    counts = overview.counts
    states = ", ".join(
        f"{counts[state]} {trial_word(state, overview.ended)}" for state in TrialState if state in counts
    )
    said = f"{trials_text(overview)}{f': {states}' if states else ' yet'}"
    front = overview.front
    if front is None or front.best is None:
        return said
    params = _searched_text(front.params, overview.experiment.space)
    return f"{said}; {result_text(overview)}{f': {params}' if params else ''}"


def trials_text(overview: Overview) -> str:
    """Format the number of a search's trials: `12 of 64 trials`, `12 trials` without a limit; "" without a search."""
    text = _trial_count(overview)
    return f"{text} trials" if " of " in text else text


def _trial_count(overview: Overview) -> str:
    total, most = sum(overview.counts.values()), overview.trial_limit
    if overview.experiment.config.search is None:
        return ""
    return f"{total} of {most}" if most is not None and total <= most else counted(total, "trial")


def _searched_text(params: Mapping[str, Value], space: Space) -> str:
    """Format the searched hyperparameters, or all if the space is empty: `lr=0.003142 blocks=3`.

    If a value is a list, its length is shown.
    """
    names = space.names or tuple(params)
    shown = ((name, params[name]) for name in names if name in params)
    return " ".join(f"{name}={len(value) if isinstance(value, list) else value_text(value)}" for name, value in shown)


def epoch_text(epoch: float, epochs: int | None) -> str:
    """Format the epoch that is being trained, or between two epochs the last one.

    `epoch` is the fractional number of epochs trained: 2.4 of 10 gives `epoch 3/10`, or `epoch 3` if `epochs` is None.
    """
    # Rounding errors may make a complete epoch slightly more than an integer: 3 steps of 1/3.
    now = max(math.ceil(epoch - 1e-6), 0)
    return f"epoch {now}" if epochs is None else f"epoch {min(now, epochs)}/{epochs}"


def place_text(trial: Trial, config: Config) -> str:
    """Format how far a trial is: `epoch 3/10`, or of rows that a model predicts `row 4096 of 5000`."""
    if not config.uses_model:
        return epoch_text(trial.epoch, config.known_epochs)
    return f"row {trial.step}" + (f" of {trial.total_steps}" if trial.total_steps else "")


def kind_text(kind: str, config: Config) -> str:
    """Return how values of this kind are called: of what uses a model they are of the rows so far, or of all."""
    if not config.uses_model:
        return kind
    return "so far" if kind == "training" else "all rows"


def throughput_text(throughput: Throughput | None) -> str:
    """Format how fast rows are done, and the time that is left; "" if it is not known.

    Examples
    --------
    >>> throughput_text(Throughput(per_second=1234.5, left=9.2))
    '1230 rows/s  about 9.2 s left'
    """
    return (
        ""
        if throughput is None
        else f"{number(float(f'{throughput.per_second:.3g}'))} rows/s  about {duration(throughput.left)} left"
    )


def reference(trial: Trial) -> str:
    """Format a reference to a trial: `#12.3`, but `#12` for the first trial."""
    return f"#{trial.experiment}" if trial.index == 1 else f"#{trial.id}"


def progress_line(trial: Trial, config: Config, report: StoredReport | None = None) -> str:
    """Format the progress of a trial, with the values of `report`, by default the trial's newest.

    Example: `#12 epoch 3/10 step 141 loss 0.412 accuracy 0.912`. For code that is run unchanged, epochs are left out,
    since they are not known; so are steps, except for a command that reports them. Predictions count rows.
    """
    epoch, step = (report.epoch, report.step) if report else (trial.epoch, trial.step)
    values = metrics_text(report.metrics) if report else newest_text(trial, config)
    taken = [f"step {step}"] if config.form == "command" and step else []
    if config.uses_model:
        taken = [place_text(trial, config)]
    elif not config.as_it_is:
        taken = [epoch_text(epoch, config.known_epochs), f"step {step}"]
    parts = [reference(trial), *taken, values]
    return "  ".join(part for part in parts if part)


def without_values(trial: Trial) -> Trial:
    """Return a trial of which `progress_line` says no values, since its result stands beside it."""
    return trial.model_copy(update={"metrics": {}, "training": {}})


def failure_text(failure: Failure) -> str:
    """Format a failure: the error, its rank and step, and the user's frames by cell and line, outermost first."""
    place = f"rank {failure.rank}" + (f", step {failure.step}" if failure.step is not None else "")
    message = f": {failure.message}" if failure.message else ""
    lines = [f"{failure.type}{message}  ({place})"]
    for frame in failure.frames:
        lines.append(f"  {frame.where}, in {frame.function}")
        if frame.text:
            lines.append(f"    {frame.text}")
    return "\n".join(lines)


def approximately(seconds: float) -> str:
    """Format an estimated duration, rounded: `a minute`, `12 min`, `3 h` or `2 d`."""
    minutes = round(seconds / 60)
    if minutes <= 1:
        return "a minute"
    if minutes < 90:
        return f"{minutes} min"
    return f"{round(seconds / 3600)} h" if seconds < 36 * 3600 else f"{round(seconds / 86400)} d"


def estimate_text(wait: Wait) -> str:
    """Format the estimated waiting time of a request: `in about 20 min (10 min to 40 min)`; "" without an estimate."""
    if wait.estimate is None:
        return ""
    bounds = [approximately(each) for each in (wait.earliest, wait.latest) if each is not None]
    within = f" ({' to '.join(bounds)})" if set(bounds) - {approximately(wait.estimate)} else ""
    return f"in about {approximately(wait.estimate)}{within}"


def state_word(overview: Overview) -> str:
    """Return the word for an experiment's state: `running`, `waiting for slots`, `saving a checkpoint`."""
    waits = overview.state == TrialState.QUEUED and overview.experiment.config.search is not None
    return "waiting for slots" if waits else _WORDS.get(overview.state, overview.state)


def trial_word(state: TrialState, over: bool) -> str:
    """Return the word for a trial's state; `over` is True once its search has ended, which pauses no trial any more."""
    return "stopped early" if over and state is TrialState.PAUSED else _WORDS.get(state, state)


def standing_text(overview: Overview) -> str:
    """Format the state of an experiment; of a search that has not ended, with the number of its trials: `16 of 24`."""
    trials = "" if overview.ended else _trial_count(overview)
    return f"{state_word(overview)} \N{MIDDLE DOT} {trials}" if trials else state_word(overview)


def state_text(overview: Overview) -> str:
    """Format the state of an experiment, with the reason for it.

    Examples: `queued: 2nd in queue; 2 of 2 slots in use; in about 12 min`, `failed: ValueError`, `preparing 2 slots:
    importing torch (12 s)`.
    """
    if overview.starting and overview.state == TrialState.STARTING:
        return overview.starting
    reasons = [overview.starting] if overview.starting and overview.state == TrialState.RUNNING else []
    if overview.wait and overview.state == TrialState.QUEUED:
        reasons = [text for text in (overview.wait.reason, estimate_text(overview.wait)) if text]
    elif overview.state == "failed":
        reasons = [trial.failure.type for trial in overview.trials if trial.failure][:1]
    return f"{standing_text(overview)}: {'; '.join(reasons)}" if reasons else standing_text(overview)


def gang_text(overview: Overview) -> str:
    """Format the slots held or requested, their nodes and the backend: `2 slots on n1 and n2, horovod`."""
    own = overview.experiment.config.as_it_is
    backends = [attempt.backend for attempt in overview.attempts if attempt.backend and not own]
    slots = _slots_text(overview)
    gang = f"{slots} slot{'' if slots == '1' else 's'}{_nodes_text(overview)}"
    return ", ".join([gang, *backends[-1:]])


def _slots_text(overview: Overview) -> str:
    """Return the requested number of slots: `2`, or a range `1..4`; with a range, `2 of 1..4` while two are held."""
    config = overview.experiment.config
    held = [each.slots for each in overview.attempts if each.state is not AttemptState.ENDED]
    return f"{held[-1]} of {config.slot_range}" if held and config.least_slots is not None else config.slot_range


def _nodes_text(overview: Overview) -> str:
    """Return ` on n1 and n2`, or if there are many nodes, their number; "" for a search, or before nodes are known."""
    nodes = overview.attempts[-1].nodes if overview.attempts and overview.experiment.config.search is None else ()
    if not nodes:
        return ""
    *most, last = [node.name for node in nodes]
    names = f"{', '.join(most)} and {last}" if most else last
    return f" on {names}" if len(nodes) <= FEW_NODES else f" on {len(nodes)} nodes"


def guarantee_text(overview: Overview) -> str:
    """Return under which changes the training's result stays the same, as the newest attempt has reported.

    "" if no attempt has reported it, as for a cell that is run unchanged.
    """
    if overview.experiment.config.form == "plain":
        return ""
    said = [attempt.guarantee for attempt in overview.attempts if attempt.guarantee]
    return said[-1] if said else ""


def new_notes(before: Overview, after: Overview) -> list[str]:
    """Return the warnings of `after` that are not in `before`."""
    return [warning for warning in after.warnings if warning not in before.warnings]


def already_text(before: Overview) -> list[str]:
    """Return a line such as `it is running already` if the experiment that a user resumes is active, else no line."""
    return [f"it is {state_word(before)} already"] if before.experiment.state == "active" else []


def elapsed(overview: Overview, now: float) -> float:
    """Return for how many seconds an experiment has held slots; if trials overlap, the time counts once.

    Without attempts, or if `overview` has only the newest of many attempts, return the seconds since the submission, up
    to the end or to `now`.
    """
    experiment, attempts = overview.experiment, overview.attempts
    whole = {attempt.trial for attempt in attempts if attempt.number == 1}  # an overview has only the newest attempts
    if not attempts or any(attempt.trial not in whole for attempt in attempts):
        return (experiment.ended_at or now) - experiment.created_at
    seconds, until = 0.0, float("-inf")
    had = [attempt for attempt in attempts if attempt.state is not AttemptState.PENDING]
    # Views saved before there were pools have no time at which slots were granted.
    spans = [(attempt.granted_at or attempt.created_at, attempt.ended_at or now) for attempt in had]
    for begin, end in sorted(spans):
        seconds += max(0.0, end - max(begin, until))  # overlapping trials are counted once
        until = max(until, end)
    return seconds


def head_text(overview: Overview, now: float) -> str:
    """Format the main line of an experiment: `#12 digits  running  2 slots, horovod  1 min 05 s`."""
    experiment = overview.experiment
    name = f"#{experiment.number} {experiment.name}".strip()
    return "  ".join([name, state_text(overview), gang_text(overview), duration(elapsed(overview, now))])


def table_row(overview: Overview, now: float, owner: bool = False) -> tuple[str, ...]:
    """Return an experiment's row in the list of experiments; TABLE_HEAD names the columns.

    With `owner`, it includes owner and group: OWNED_HEAD names these columns.
    """
    experiment, trial = overview.experiment, overview.front
    epoch = place_text(trial, experiment.config).removeprefix("epoch ") if trial else ""
    whose = (experiment.owner, experiment.group) if owner else ()
    return (
        str(experiment.number),
        *whose,
        experiment.name,
        state_text(overview),
        (trials_text(overview) if overview.ended else "") if experiment.config.search else epoch,
        result_text(overview),
        started_text(overview, now),
        _slots_text(overview),
        duration(elapsed(overview, now)),
    )


TABLE_HEAD = ("id", "name", "state", "epoch", "result", "started", "slots", "elapsed")
OWNED_HEAD = ("id", "owner", "group", *TABLE_HEAD[1:])


def message_line(message: Message, before: Overview, after: Overview) -> str | None:
    """Return the log line for a stream message about an experiment; None for most messages, which have no line.

    There is a line for each validation, change of state, restart or failure of an attempt, and note. The message
    changed the experiment's overview from `before` to `after`.
    """
    mark = f"#{message.experiment}"
    match message.type:
        case "report" if message.data["kind"] == "validation":
            return _report_line(message, after)
        case "attempt":
            said = _attempt_news(read(Attempt, message.data), before)
            return f"{mark}  {said}" if said else None
        case "note":
            return f"{mark}  {message.data['text']}"
        case "trial" | "experiment" if after.state not in (before.state, "active"):
            return f"{mark}  {state_text(after)}"
    return None


def _report_line(message: Message, overview: Overview) -> str | None:
    report = read(StoredReport, message.data)
    trial = next((trial for trial in overview.trials if trial.index == report.trial), None)
    return progress_line(trial, overview.experiment.config, report) if trial else None


def attempt_lines(overview: Overview) -> list[str]:
    """Return a line for each attempt that resumed, and for each that failed or was lost, with the reason.

    The failure that ended the trial is left out, since it is shown in full elsewhere.
    """
    final = {(trial.index, trial.attempt) for trial in overview.trials if trial.state == "failed"}
    said = (
        part
        for attempt in overview.attempts
        for part in (_begins(attempt), None if (attempt.trial, attempt.number) in final else _ends(attempt))
    )
    return [line for line in said if line]


def _attempt_news(attempt: Attempt, before: Overview) -> str | None:
    """Return a line that says that an attempt has resumed or restarted its trial, or that it has failed or was lost.

    None for anything else, and for what the overview `before` has shown already.
    """
    known = next((each for each in before.attempts if each.id == attempt.id), None)
    parts = [_begins(attempt)] if known is None else []
    if known is None or known.outcome is None:
        parts.append(_ends(attempt))
    return "; ".join(part for part in parts if part) or None


def _begins(attempt: Attempt) -> str | None:
    if step := checkpoint_step(attempt.resume_from):
        return f"attempt {attempt.number} goes on from step {step}"
    return f"attempt {attempt.number} begins anew, from the start" if attempt.number > 1 else None


def _ends(attempt: Attempt) -> str | None:
    if attempt.outcome == "failed" and attempt.failure:
        return f"attempt {attempt.number} failed: {cause_text(attempt.failure)}"
    if attempt.outcome == "lost":
        why = _first_line(attempt.failure.message) if attempt.failure else "its launcher was killed"
        return f"attempt {attempt.number} was lost: {why}"
    if attempt.outcome in ("timeout", "infeasible"):
        return f"attempt {attempt.number} ended: {attempt.outcome}"
    return None


def hang_text(overview: Overview, trial: int, number: int) -> str:
    """Return the stack traces of the ranks from the time when attempt `number` of a trial hung; "" if it did not hang.

    The logs do not contain them.
    """
    failures = [each.failure for each in overview.attempts if (each.trial, each.number) == (trial, number)]
    final = [
        each for each in overview.trials if each.state == "failed" and (each.index, each.attempt) == (trial, number)
    ]
    failures += [each.failure for each in final]  # the trial fails shortly before its attempt is closed
    hung = [failure for failure in failures if failure and failure.type == HANG]
    return f"{hung[0].message}\n{hung[0].traceback}".rstrip() if hung else ""


def cause_text(failure: Failure) -> str:
    """Format a failure in one line: `rank 1 was ended by SIGKILL`, `ValueError: no such file (cell [4] line 3)`."""
    if not failure.frames and failure.message.startswith(f"rank {failure.rank} "):
        return failure.message
    where = f" ({failure.frames[-1].where})" if failure.frames else ""
    return f"{failure.type}: {_first_line(failure.message)}{where}"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def same_text(what: str, overview: Overview) -> str:
    """Return the message for a submission that duplicates an unfinished experiment.

    `what` is the submitted thing: `this cell` or `train.py`.
    """
    number = overview.experiment.number
    return f"{what} is experiment #{number}, which is {state_word(overview)}: shown here; --again makes another"
