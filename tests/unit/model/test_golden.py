"""Write expected results for Jest, which tests that the front end computes the same as Python.

The files in tests/golden/ are made from the functions of this package: `python -m tests.unit.model.test_golden` writes
them anew after one of those has changed, and `npm test` then shows what the front end must change.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from jupyter_ext.views.card import html, plain
from kernel_backend import text
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.experiment import Config, Experiment, Metric
from kernel_backend.model.launch.nodes import GangNode
from kernel_backend.model.record import Record
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.methods import BUILT_IN
from kernel_backend.model.search.records import Create, LogEntry, Pause, Reported, Search, Vacancy
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.sizes import size
from kernel_backend.model.states import AttemptState, ExperimentState, Hold, Outcome, TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Attempt, Best, Failure, Frame, Trial, checkpoint_step
from kernel_backend.model.views.curves import gather, thin
from kernel_backend.model.views.overview import Overview, Wait
from kernel_backend.text.experiment_rows import experiment_row
from kernel_backend.text.next_steps import load_code, longer
from tests.support.builders import attempt, trial, user_error

FOLDER = Path(__file__).parents[2] / "golden"

UGLY = "<img src=x onerror=alert(1)> 'é' \U0001f33b & \"co\""
LOST = Failure(rank=1, type="SIGKILL", message="rank 1 was ended by SIGKILL", step=88)
NET = Artifact(
    trial=1, name="net", attempt=1, step=3, at=104.0, size=512, digest="00", media="image/png", file="net.png"
)
DEEP = Failure(
    rank=3,
    type="KeyError",
    message="'<b>'\nsecond line",
    frames=(
        Frame(file="train.py", line=7, function="<lambda>", text="", cell=None),
        Frame(file="helpers.py", line=12, function="batch", text="return rows['<b>']"),
        Frame(file="definition.py", line=2, function="train_data", text="x = batch(rows)", cell=11, cell_line=1),
    ),
)


def experiment(state: str = "active", **fields: Any) -> Experiment:
    defaults: dict[str, Any] = {
        "number": 1,
        "name": "digits",
        "owner": "ada",
        "group": "ada",
        "snapshot": "0" * 64,
        "config": Config(slots=2, epochs=10),
        "params": {"width": 64, "lr": 0.01},
        "python": "python",
        "cwd": "/",
        "notebook": None,
        "created_at": 100.0,
    }
    return Experiment(state=ExperimentState(state), **(defaults | fields))


def overview(*trials: Trial, state: str = "active", name: str = "digits", **fields: Any) -> Overview:
    return Overview(experiment=experiment(state, name=name), trials=trials or (trial(),), **({"seq": 5} | fields))


def report(step: int, seq: int = 0, kind: str = "training", **fields: Any) -> StoredReport:
    defaults = {"trial": 1, "attempt": 1, "at": 100.0 + step, "epoch": step / 8, "metrics": {"loss": 1 / (1 + step)}}
    return StoredReport.model_validate({"seq": seq, "kind": kind, "step": step, **defaults, **fields})


# Text: what each function says of each of its arguments


def text_cases() -> list[dict[str, Any]]:
    return [*_of_numbers(), *_of_records(), *_of_overviews()]


def _of_numbers() -> Iterator[dict[str, Any]]:
    chance = random.Random(7)
    seconds = [-1, 0, 0.04, 0.05, 0.25, 0.35, 9.949, 9.95, 9.99, 10, 10.5, 11.5, 59.4, 59.5, 60, 119.5, 185, 3599.5]
    yield from said(text.duration, *zip([*seconds, 3600, 7620, 86399.5, 86400, 97200, 999999.5]))
    yield from said(
        text.approximately, *zip([*seconds, 90, 150, 5369, 5399.5, 5400, 9000, 129_599, 129_600, 216_000, 1e6])
    )
    values = [0.0, -0.0, 1.0, -3, 12.125, 12.375, 0.41234, 0.00012345, 0.0001, 0.00001, 1.23e-5, -1e-5, 9999.5, 99995.5]
    values += [999999.0, 1e6, 1e9, 1.5e300, 5e-324, 0.99995, 9.9995, 123456.7, math.nan, math.inf, -math.inf]
    values += [chance.choice((1, -1)) * chance.random() * 10 ** chance.randint(-9, 9) for _ in range(40)]
    values += [chance.randint(1, 80000) / 2 ** chance.randint(1, 6) for _ in range(40)]  # many lie in the middle
    yield from said(text.number, *zip(values))
    yield from said(size, *zip([0, 512, 999, 1000, 1050, 1250, 1500, 999_949, 999_950, 58_900_000, 7 * 10**15]))
    epochs = [0, -1, 0.1, 1, 1.0000001, 2.9999999, 3, 3.0000000001, 3.00001, 10, 11]
    yield from said(text.epoch_text, *((epoch, 10) for epoch in epochs), (0.5, 1), (2.5, None))
    yield from said(checkpoint_step, (None,), ("150-1",), ("0-12",))


def _of_records() -> Iterator[dict[str, Any]]:
    names = {"width": 64, "act": "relu", "bias": True, "cut": None, "sizes": [1, 2.5, "x", [False, None]]}
    ugly = {"a": "it's", "b": 'say "it\'s"', "c": "tab\tline\n\\ \x00\x7f\xa0\xad", "d": UGLY, "e": "\u2028\U000e0001"}
    floats = {"a": 1e-05, "b": 0.0001, "c": 1.5e-7, "d": 123456.789, "e": 2.5e-05, "f": -0.1, "g": 1e300, "h": -7}
    blocks = {"blocks": [{"kind": "conv", "it's": None}, {}], "none": None}
    yield from said(text.params_text, ({},), (names,), (ugly,), (floats,), (blocks,))
    told = {"accuracy": 0.912, "loss": math.nan, UGLY: -math.inf}
    yield from said(text.metrics_text, ({},), ({"loss": 0.412},), (told,))
    failures = [user_error(), user_error(None, ""), user_error(message=UGLY, rank=2), LOST, DEEP]
    failures += [Failure(rank=0, type="SIGKILL", message=""), Failure(rank=0, type="X", message="\r\nlate")]
    yield from said([text.failure_text, text.cause_text], *zip(failures))
    yield from said(where_text, *zip(DEEP.frames))
    told = ((None, None, None), (60, 60, 60), (300, 720, 9000), (None, 5e5, None))
    waits = [Wait(reason="", place=1, earliest=low, estimate=likely, latest=high) for low, likely, high in told]
    yield from said(text.estimate_text, *zip(waits))
    yield from said(text.reference, (trial(),), (trial(experiment=12, index=3),))
    unvalidated = trial(training={"acc": 0.5, "loss": 0.25})
    config, evaluation = Config(epochs=10), Config(form="evaluation")
    validated = trial(metrics={"loss": 1}, training={"loss": 2})
    yield from said(text.newest_text, *((each, config) for each in (trial(), unvalidated, validated)))
    yield from said(text.newest_text, (unvalidated, evaluation), (validated, evaluation))
    later = trial(step=141, epoch=3.5, metrics={"error": 1e-9})
    validation = report(141, kind="validation", epoch=3, metrics={"accuracy": 0.912, "loss": 0.412})
    yield from said(
        text.progress_line,
        (trial(), config),
        (later, config),
        (trial(index=3), config, validation),
        (trial(step=4096, total_steps=5000), Config(form="prediction")),
        (trial(step=4096), Config(form="prediction")),
        (trial(step=4096, metrics={"loss": 1}), Config(form="evaluation")),
        (unvalidated, config),
    )


def _of_overviews() -> Iterator[dict[str, Any]]:
    standing = [state_of, text.state_word, text.standing_text, text.state_text]
    told = [*standing, text.result_text, front_of, ended, text.gang_text, text.guarantee_text, text.attempt_lines]
    taken = [load_code, longer]
    yield from said([*told, *taken], *zip(_pictures()), *zip(_with_results()))
    later = overview().model_copy(update={"experiment": experiment("completed", ended_at=4000.5)})
    moments = (overview(), 165.0), (overview(name=""), 99.0), (overview(name=UGLY), 1e6), (later, 9e9)
    yield from said([text.elapsed, text.head_text], *moments)
    yield from said([*standing, text.search_text, text.trials_text, text.result_text], (overview(),), *zip(_searches()))
    yield from said(text.trial_word, *((state, over) for state in TrialState for over in (False, True)))
    values = [0, 1, -7, 0.1, 1e-4, 3.14159, 1e6, 1234567, 2.5e20, True, None, "adam", "it's", [1, "x"]]
    yield from said(text.value_text, *zip(values))
    yield from said(text.elapsed, *((overview(attempts=each), 165.0) for each in _spans()))


def _with_results() -> Iterator[Overview]:
    forms = [{"form": form} for form in ("plain", "command", "prediction", "evaluation")]
    for state in ("completed", "stopped", "failed"):
        for fields in (*forms, {"epochs": 7}, {"steps": 40}, {"epochs_unknown": True}):
            ended_one = experiment(state, config=Config.model_validate(fields), ended_at=200.0)
            yield overview(trial(TrialState.COMPLETED, step=9)).model_copy(update={"experiment": ended_one})
    for fields in (*forms, {}, {"search": Search(method="asha", trials=64)}):
        deleted = experiment("completed", config=Config.model_validate(fields), ended_at=200.0, deleted_at=250.0)
        yield overview(trial(TrialState.COMPLETED, step=9)).model_copy(update={"experiment": deleted})
        for state in TrialState:
            known = {"experiment": experiment(config=Config.model_validate(fields))}
            yield overview(trial(state, step=9), attempts=(attempt(),)).model_copy(update=known)


def _searches() -> Iterator[Overview]:
    blocks = Parameter(name="blocks", domain=Range(low=1, high=3, whole=True))
    lr = Parameter(name="lr", domain=Range(low=1e-4, high=1e-1, scale="log"))
    space = Space(parameters=(lr, blocks, Parameter(name="kind", domain=Choices(values=("a", "b")), each="blocks")))
    params = {"width": 64, "lr": 0.00123456, "blocks": [{"kind": "a"}, {"kind": "b"}]}
    begun = [
        trial(TrialState.PAUSED, params=params, metrics={"error": 0.25, "loss": 1.0}, best=best(0.125)),
        trial(TrialState.RUNNING, index=2, params=params),
        trial(TrialState.COMPLETED, index=3, params=params, metrics={"error": 0.125}, best=best(0.125)),
    ]
    methods = [{"method": method.name} for method in BUILT_IN]
    for asked in ({"trials": 64}, {}, {"budget": 3600.0}, {"trials": 1}, *methods):
        search = Search.model_validate({"method": "asha", **asked})
        config = Config(epochs=27, search=search, metric=Metric(name="error"))
        searches = experiment(config=config, space=space if search.method == "asha" else Space())
        known = {"experiment": searches, "default_trials": search.default_trials}
        yield overview(*begun).model_copy(update=known)
        yield overview().model_copy(update={**known, "trials": ()})
    search = Config(search=Search(method="asha", trials=64))
    starting, pending = trial(TrialState.STARTING), attempt(state=AttemptState.PENDING)
    waits = [Wait(reason="2nd in queue", place=2), Wait(reason="1 slot free, starting", place=1, starts=True)]
    for state in ExperimentState:
        known = {"experiment": experiment(state, config=search)}
        for shown in (
            (begun[0],),
            begun,
            (trial(TrialState.RELEASING), trial(TrialState.QUEUED, index=2)),
            (starting,),
        ):
            for wait in (None, *waits):
                yield overview(*shown, wait=wait).model_copy(update=known)
        yield overview(starting, attempts=(pending,), wait=waits[0]).model_copy(update=known)


def _spans() -> Iterator[tuple[Attempt, ...]]:
    first = attempt(created_at=110.0, ended_at=120.5)
    other = first.model_copy(update={"trial": 2, "created_at": 115.0})
    yield (first,)
    yield first, attempt(2, created_at=150.25)
    yield first, other.model_copy(update={"ended_at": 118.0})
    yield first, other.model_copy(update={"ended_at": 130.0})
    yield (first.model_copy(update={"granted_at": 118.0}),)
    yield (attempt(created_at=110.0, state=AttemptState.PENDING),)
    yield attempt(2, created_at=150.0), attempt(3, created_at=160.0)  # the first is long past


EXACT = "reproducible: a kill changes no bit of the result, on 2 slots and this kind of CPU"


def _pictures() -> Iterator[Overview]:
    yield from (overview(trial(state)) for state in TrialState)
    yield from (overview(trial(TrialState.RUNNING), state=state) for state in ExperimentState)
    yield overview(trial(TrialState.COMPLETED), trial(TrialState.QUEUED, index=2), trial(TrialState.RELEASING, index=3))
    for earliest, estimate, latest in ((None, None, None), (0.25, 0.25, 0.25), (300, 720, 9000), (130_000, 5e5, 9e5)):
        times = {"earliest": earliest, "estimate": estimate, "latest": latest}
        wait = Wait(reason="2nd in queue; 2 of 2 slots in use", place=2, **times)
        yield from (overview(trial(state), wait=wait) for state in (TrialState.QUEUED, TrialState.RUNNING))
        yield overview(trial(TrialState.PAUSED, holds={Hold.ENGINE}), wait=wait)
        yield overview(trial(TrialState.PAUSED), state="paused", wait=wait)
    yield overview(trial(TrialState.FAILED), trial(TrialState.FAILED, index=2, failure=DEEP), state="failed")
    yield overview(trial(TrialState.FAILED, failure=user_error()), trial(index=2))
    lost = [attempt(number, outcome=Outcome.FAILED, failure=LOST) for number in (1, 2)]
    yield overview(trial(TrialState.FAILED, attempt=2, failure=LOST), attempts=tuple(lost), state="failed")
    ends = [attempt(number, outcome=outcome, failure=LOST) for number, outcome in enumerate(Outcome, 1)]
    yield overview(attempts=tuple(ends))
    yield overview(attempts=(attempt(outcome=Outcome.LOST), attempt(2, outcome=Outcome.LOST, failure=DEEP)))
    goes_on = attempt(2, resume_from="150-1", outcome=Outcome.FAILED, failure=DEEP, backend="torch")
    yield overview(attempts=(attempt(backend="horovod"), goes_on, attempt(3)))
    yield overview(
        attempts=(attempt(guarantee="not reproducible: --reproducible off"), attempt(2, guarantee=EXACT), attempt(3))
    )
    losses = (math.nan, 0.5, 0.25, 0.25)
    valued = [trial(index=index, metrics={"loss": 0.1}, best=best(loss)) for index, loss in enumerate(losses, 2)]
    yield overview(trial(), *valued)
    upwards = experiment(config=Config(metric=Metric(mode="max")))
    yield overview(trial(), *valued).model_copy(update={"experiment": upwards})
    yield overview(trial(TrialState.PAUSED), trial_counts={TrialState.PAUSED: 70, TrialState.QUEUED: 1})
    waiting = attempt(state=AttemptState.PENDING)
    program = experiment(config=Config(form="command", metric=Metric(name="acc", mode="max")))
    for at in ((0.5, 0), (0.5, 7)):
        reached = trial(step=9, metrics={"acc": 0.25}, best=Best(value=at[0], step=at[1], epoch=0.0))
        yield overview(reached).model_copy(update={"experiment": program})
    pending = Wait(reason="gpu: 1st of ours; Slurm: Resources", place=1)
    yield overview(trial(TrialState.STARTING), attempts=(waiting,), wait=pending)
    yield overview(trial(TrialState.STARTING), attempts=(attempt(outcome=Outcome.LOST), attempt(2)), wait=pending)
    for state in (TrialState.STARTING, TrialState.RUNNING, TrialState.RELEASING):
        known = {"starting": "preparing 2 slots: importing torch (12 s)"}
        yield overview(trial(state), attempts=(attempt(),)).model_copy(update=known)
    nodes = tuple(GangNode(name=f"n{n}", address="", kind="cpu", slots=1) for n in range(1, 6))
    for count in (1, 2, 3, 5):
        yield overview(attempts=(attempt(nodes=nodes[:count], granted_at=101.0, backend="horovod"),))
    elastic = experiment(config=Config(slots=4, least_slots=1))
    for attempts in ((), (attempt(backend="torch"),), (attempt(state=AttemptState.ENDED), attempt(2, nodes=nodes[:3]))):
        yield overview(attempts=attempts).model_copy(update={"experiment": elastic})
    one = overview(attempts=(attempt(),))
    yield one.model_copy(update={"experiment": experiment(config=Config(slots=1))})


def where_text(frame: Frame) -> str:
    return frame.where


def state_of(picture: Overview) -> str:
    return picture.state


def front_of(picture: Overview) -> Trial | None:
    return picture.front


def ended(picture: Overview) -> bool:
    return picture.experiment.state in ("stopped", "completed", "failed")


def said(ask: Callable[..., Any] | list[Callable[..., Any]], *calls: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of each function for each list of arguments, as JSON."""
    functions = ask if isinstance(ask, list) else [ask]
    for arguments in map(list, calls):
        answers = {function.__name__: function(*arguments) for function in functions}
        yield as_json({"arguments": arguments, "said": answers})


def test_list_table_and_card_say_the_same_of_each_state() -> None:
    for picture in (*_pictures(), *_with_results(), *_searches()):
        same = picture.experiment.name, text.state_text(picture), text.result_text(picture)
        row = experiment_row(picture, 300.0)
        assert (row.name, row.standing, row.result, row.state) == (*same, picture.state)
        listed = text.table_row(picture, 300.0)
        card = plain(picture, 300.0)
        page = unescape(re.sub("<[^>]*>", "", html(picture, 300.0)))
        for said in same:
            assert said in listed or not said
            assert said in card, card
            assert said in page, page


# Folds: what an overview is after messages


def fold_cases() -> list[dict[str, Any]]:
    return [_folded(name, before, messages) for name, (before, *messages) in _folds().items()]


def _folds() -> dict[str, tuple[Any, ...]]:
    queued = overview(trial(TrialState.QUEUED, attempt=0), wait=Wait(reason="next in queue", place=1))
    two = overview(trial(), trial(TrialState.QUEUED, index=2, step=3), attempts=(attempt(), attempt(2)))
    starting, placed = trial(TrialState.STARTING), attempt(state=AttemptState.PLACED, placement=())
    validated = report(8, 9, "validation", metrics={"loss": math.inf, "error": math.nan, UGLY: 1})
    failed = attempt(state=AttemptState.ENDED, outcome=Outcome.FAILED, failure=DEEP, ended_at=200.0)
    again = attempt(2, resume_from="8-1", placement=())
    other_trials = attempt().model_copy(update={"trial": 2})
    return {
        "a queued trial starts": (queued, message(6, starting), message(7, placed)),
        "an attempt alone ends the wait": (queued, message(6, placed)),
        "reports move a trial on": (two, message(6, report(7, 6)), message(8, report(8, 8)), message(9, validated)),
        "an old step changes no number": (
            overview(trial(step=50, epoch=6.25, metrics={"loss": 1.0})),
            message(6, report(49, 6, "validation")),
            message(7, report(50, 7, "validation")),
        ),
        "the best stays, and may come late": (
            overview(trial(step=50, epoch=6.25)),
            *(
                message(seq, report(step, seq, "validation", metrics={"loss": loss}))
                for seq, (step, loss) in enumerate([(50, 0.5), (58, math.nan), (66, 0.75), (74, 0.5), (42, 0.25)], 6)
            ),
        ),
        "of equal ones the earlier step is the best": (
            overview(trial(best=best(0.5, step=8))),
            *(message(step, report(step, step, "validation", metrics={"loss": 0.5})) for step in (9, 7)),
        ),
        "a report of the second trial": (two, message(6, report(4, 6, trial=2))),
        "a report of a trial that is not known": (two, message(6, report(4, 6, trial=3))),
        "a trial that is new": (two, message(6, trial(TrialState.PAUSED, index=4)), message(7, trial(index=3))),
        "a gang fails and goes on": (two, message(6, failed), message(7, again), message(8, attempt(10))),
        "a trial of many attempts": (two, *(message(6 + each, attempt(3 + each)) for each in range(12))),
        "attempts of two trials": (two, message(6, other_trials), message(7, attempt(3)), message(8, other_trials)),
        "an experiment ends": (
            two,
            message(6, trial(TrialState.COMPLETED, ended_at=300.0)),
            message(7, experiment("completed", ended_at=300.5)),
        ),
        "notes are noted once": (
            overview(warnings=("careful",)),
            message(6, {"text": UGLY, "level": "warning", "attempt": 1}),
            message(7, {"text": "careful"}),
            message(8, {"text": UGLY}),
            message(9, {"text": "tuned: 4 workers", "level": "info", "attempt": 1}),
        ),
        "something is kept": (two, message(6, NET), message(7, starting), message(8, NET)),
        "a search grows": (overview(*_many(49)), *_said_of(_many(53)[49:])),
        "who was not looked at comes back": (
            overview(*_many(53)[33:], trial_counts={TrialState.PAUSED: 53}, attempts=(attempt(),)),
            *_said_of([trial(index=1), trial(TrialState.PRUNED, index=1), trial(TrialState.PAUSED, index=54)]),
        ),
        "what befalls some of very many": (
            overview(*_many(53)[33:], trial_counts={TrialState.PAUSED: 53}),
            *_said_of(
                [trial(TrialState.FAILED, index=index, failure=DEEP) for index in range(1, 7)]
                + [trial(TrialState.PAUSED, index=7, holds={Hold.ENGINE}), trial(TrialState.QUEUED, index=8)]
            ),
        ),
        "what a search decides": (
            two,
            message(
                6, LogEntry(number=1, at=1.0, event=Vacancy(), decision=Create(trial=3, params={"lr": 0.1}, until=2))
            ),
            message(7, LogEntry(number=2, at=2.0, event=Reported(trial=3, unit=2, value=math.nan), decision=Pause())),
        ),
        "what is known changes nothing": (two, message(5, starting), message(4, {"text": "old"})),
        "a message twice": (queued, message(6, {"text": "once"}), message(6, starting)),
        "another experiment's": (two, message(6, starting).model_copy(update={"experiment": 2})),
    }


def _many(count: int) -> list[Trial]:
    """Return paused trials, with lower losses for higher numbers; some have no loss."""
    losses = [math.inf if index % 5 == 0 else -float(index) for index in range(1, count + 1)]
    return [trial(TrialState.PAUSED, index=index, best=best(loss)) for index, loss in enumerate(losses, 1)]


def best(value: float, step: int = 8) -> Best | None:
    return Best(value=value, step=step, epoch=step / 8) if math.isfinite(value) else None


def _said_of(trials: Iterable[Trial]) -> list[Message]:
    return [message(seq, each) for seq, each in enumerate(trials, 6)]


def message(seq: int, about: Record | dict[str, Any]) -> Message:
    types = {Experiment: "experiment", Trial: "trial", Attempt: "attempt", StoredReport: "report", dict: "note"}
    types |= {Artifact: "artifact", LogEntry: "search"}
    owners = dict.fromkeys((Attempt, StoredReport, Artifact, LogEntry), "trial")
    trial = {Trial: "index", **owners}.get(type(about))
    return Message.model_validate(
        {
            "seq": seq,
            "at": 100.0 + seq,
            "experiment": 1,
            "trial": getattr(about, trial) if trial else None,
            "type": types[type(about)],
            "data": as_json(about),
        }
    )


def _folded(name: str, before: Overview, messages: Iterable[Message]) -> dict[str, Any]:
    after = before
    for each in messages:
        after = after.after(each)
    return as_json({"name": name, "before": before, "messages": list(messages), "after": after})


# Curves: what reports have told, before there is anything to thin


def curve_cases() -> list[dict[str, Any]]:
    told = [
        ("nothing", []),
        ("one curve", [report(step, step) for step in range(1, 5)]),
        ("metrics and kinds", [report(1, 1), report(2, 2, metrics={"loss": 2.5, UGLY: 3}), report(2, 3, "validation")]),
        ("what no axis can hold", [report(step, step, metrics={"loss": loss}) for step, loss in enumerate(BROKEN, 1)]),
        ("an older attempt's word comes late", [report(step, seq) for seq, step in enumerate((3, 9, 5, 1, 12, 11), 4)]),
    ]
    return [_drawn(name, reports) for name, reports in told]


BROKEN = (1.0, math.nan, math.inf, -1e200, 1e150, 0.5, 9.9e149, -math.inf)


def _drawn(name: str, reports: list[StoredReport]) -> dict[str, Any]:
    heard = [(each.kind, each.step, each.epoch, each.at, each.metrics) for each in reports]
    curves = thin(1, gather(heard, seq=max((each.seq for each in reports), default=0)), points=400)
    return as_json({"name": name, "reports": reports, "curves": curves})


# Files


FILES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "text.json": text_cases,
    "fold.json": fold_cases,
    "curves.json": curve_cases,
}


def as_json(value: Any) -> Any:
    """Return a record as in the API's JSON; an overview without the fields that are only added for readers."""
    if isinstance(value, Record):
        return json.loads(value.model_dump_json())
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def written(cases: list[dict[str, Any]]) -> str:
    """Return JSON with one case per line, so that diffs are readable."""
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    return f"[\n{lines}\n]\n"


@pytest.mark.parametrize("name", FILES)
def test_the_file_holds_what_python_says(name):
    assert json.loads((FOLDER / name).read_text()) == json.loads(written(FILES[name]())), (
        f"tests/golden/{name} is older than the code: python -m tests.unit.model.test_golden"
    )


def test_every_function_of_a_view_has_its_cases():
    asked = {name for case in text_cases() for name in case["said"]}
    # Lists, plain logs, answers to commands and cards: only Python prints these (the page labels curves by its axis).
    untold = {"table_row", "message_line", "new_notes", "hang_text", "already_text", "same_text"}
    untold |= {"without_values", "place_text", "kind_text", "throughput_text"}
    assert {name for name in vars(text) if _is_public(name)} - untold <= asked


def _is_public(name: str) -> bool:
    found = getattr(text, name)
    return callable(found) and not name.startswith("_") and getattr(found, "__module__", None) == text.__name__


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, cases in FILES.items():
        (FOLDER / name).write_text(written(cases()))
