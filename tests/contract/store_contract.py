"""Contract of a store: the test class of each database inherits these tests and provides a `store`."""

from __future__ import annotations

import math
import random
import shutil
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ValidationError
from sqlalchemy import text

from kernel_backend.errors import Conflict, InvalidRequest, NotFound
from kernel_backend.model import events
from kernel_backend.model.cluster.usage import ReservationRecord, UsageInterval
from kernel_backend.model.experiment import Config, Experiment, Metric, ScheduledExperiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.trace import Trace
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse
from kernel_backend.model.record import Record
from kernel_backend.model.reports import (
    ArtifactSaved,
    Committed,
    Fact,
    Guarantee,
    Kind,
    Measurements,
    Note,
    Report,
    SpoolRecord,
    Started,
    Traced,
)
from kernel_backend.model.resources import Share
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.effects import Added, Moved
from kernel_backend.model.search.records import (
    Continue,
    Create,
    Decision,
    LogEntry,
    Pause,
    Reported,
    Resume,
    Search,
    Vacancy,
)
from kernel_backend.model.search.space import Parameter, Space, When
from kernel_backend.model.states import AttemptState, ExperimentState, Hold, IllegalTransition, Outcome, TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.times import Part, RankTimes, Split
from kernel_backend.model.trial import Attempt, Best, Failure, ScheduledTrial
from kernel_backend.model.views.curves import ReportedValues, join
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.shown_trials import TrialActivity, shown_trials
from kernel_backend.model.views.thinning import Thinned
from kernel_backend.store import connect as connecting
from kernel_backend.store import revisions
from kernel_backend.store.base import NewExperiment, Store
from kernel_backend.store.connect import connect
from kernel_backend.store.sql import SqlStore
from kernel_backend.store.url import database_url
from tests.support.builders import update_trial

GANG = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0, 1)),)


def rank_times(rank: int, steps: int, now: Part | None = "data", **parts: float) -> RankTimes:
    named: dict[Part, float] = dict(parts)  # type: ignore[arg-type]
    return RankTimes(rank=rank, node="n1", now=now, whole=Split(steps=steps, parts=named), workers=2)


def slot_use(rank: int, number: int = 0, **values: Any) -> DeliveredUse:
    return DeliveredUse(
        rank=rank, node="n1", device="A100", number=number, use=SlotUse(**{"at": 5.0, "seconds": 10.0} | values)
    )


def draft(name: str = "", owner: str = "ada", **fields: Any) -> NewExperiment:
    defaults: dict[str, Any] = {"params": {"lr": 0.1}, "python": "/usr/bin/python3", "cwd": "/home/ada"}
    defaults |= {"group": "lab", "snapshot": "0" * 64, "config": Config(slots=2)}
    return NewExperiment(name=name, owner=owner, **(defaults | fields))


def placed(store: Store, resume_from: str | None = None, number: int | None = None) -> Attempt:
    """Return a new attempt: of a new experiment, or the next one of a queued trial."""
    if number is None:
        number = store.add_experiment(draft(), at=1.0)[0].number
    return store.add_attempt(number, 1, GANG, resume_from, "digest", at=2.0)


def started(number: int = 1) -> Started:
    return Started(
        number=number,
        at=3.0,
        backend="torch",
        reason="asked for",
        world=2,
        steps_per_epoch=10,
        total_steps=50,
        parameters=7,
    )


def search(store: Store, **fields: Any) -> int:
    """Add a search experiment, and return its number."""
    config = Config(epochs=27, search=Search(method="asha"))
    return store.add_experiment(draft(**fields).model_copy(update={"config": config}), at=1.0)[0].number


LATER = """\
import sqlalchemy as sa
from alembic import op

revision, down_revision = "0031", "0030"

def upgrade() -> None:
    op.add_column("trials", sa.Column("colour", sa.Text, nullable=False, server_default="red"))
"""


def check_a_later_migration(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a database of the first release is upgraded by a migration of a later one, and keeps its rows."""
    store = SqlStore(url)
    store.accept(placed(store).id, training(1, 3), at=4.0)
    before = store.overview(1), store.messages(0), store.reports(1, 1)
    store.close()
    migrations = shutil.copytree(revisions.MIGRATIONS, folder / "migrations")
    (migrations / "versions" / "0031_colours.py").write_text(LATER)
    for module in (revisions, connecting):
        monkeypatch.setattr(module, "MIGRATIONS", migrations)
    engine = connect(database_url(url))
    with engine.connect() as db, pytest.raises(InvalidRequest, match=r"schema 0030, .* writes 0031: start a service"):
        connecting.check_schema(db)
    again = SqlStore(url)
    assert (again.overview(1), again.messages(0), again.reports(1, 1)) == before
    again.close()
    with engine.connect() as db:
        assert db.execute(text("SELECT colour FROM trials")).scalars().all() == ["red"]
        connecting.check_schema(db)
    engine.dispose()


def parts(record: Record, kind: type[Record]) -> dict[str, Any]:
    """Return the fields of a record that another kind of record has, too."""
    return {name: getattr(record, name) for name in kind.model_fields}


def created(number: int) -> LogEntry:
    """Return the log entry by which a granted slot goes to a new trial with the entry's number."""
    return LogEntry(number=number, at=1.5, event=Vacancy(), decision=Create(trial=number, params={"lr": 0.5}, until=3))


def reported(number: int, trial: int, unit: int, value: float, decision: Decision) -> LogEntry:
    return LogEntry(number=number, at=2.5, event=Reported(trial=trial, unit=unit, value=value), decision=decision)


def pruned_at(store: Store, number: int, index: int) -> dict[str, Any]:
    """Prune a paused trial, and return the stored trial as JSON."""
    return store.advance_trial(number, index, events.Prune(), at=4.0).to_json()


def report(number: int, step: int, kind: Kind = "training", **metrics: float) -> Report:
    values = metrics or {"loss": 1.0 / (step + 1)}
    return Report(number=number, at=4.0, kind=kind, step=step, epoch=step / 10, metrics=values)


def training(first: int, last: int, **metrics: float) -> list[SpoolRecord]:
    """Return records `first` to `last`, each a report of the step with the same number."""
    return [report(number, number, **metrics) for number in range(first, last + 1)]


def committed(number: int, step: int, attempt: int = 1) -> Committed:
    return Committed(number=number, at=5.0, id=f"{step}-{attempt}", step=step, epoch=step / 10, bytes=9, seconds=0.1)


def kept(number: int, name: str = "net", step: int = 3, size: int = 512) -> ArtifactSaved:
    fields = {"digest": "00", "media": "image/png", "file": f"{name}.png"}
    return ArtifactSaved(number=number, at=5.0 + number, name=name, step=step, size=size, **fields)


def requeue(store: Store, attempt: Attempt) -> None:
    store.advance_attempt(attempt.id, events.Ended(), at=6.0, outcome=Outcome.LOST)
    store.advance_trial(attempt.experiment, attempt.trial, events.Lost(), at=6.0)


def all_messages(store: Store, page: int) -> list[Message]:
    found: list[Message] = []
    while batch := store.messages(found[-1].seq if found else 0, limit=page):
        found += batch
    return found


def notes(store: Store, number: int) -> list[Message]:
    return [each for each in store.messages(0, experiment=number) if each.type == "note"]


class StoreContract:
    """Tests that each database's test class inherits."""

    def test_experiments_are_numbered_and_begin_with_one_queued_trial(self, store: Store) -> None:
        first, trial = store.add_experiment(draft(), at=5.0)
        second, _ = store.add_experiment(draft("  my net "), at=6.0)
        assert trial is not None
        assert (first.number, first.name, first.state) == (1, "", ExperimentState.ACTIVE)
        assert (second.number, second.name, second.created_at) == (2, "my net", 6.0)
        assert (trial.id, trial.state, trial.queued_at) == ("1.1", TrialState.QUEUED, 5.0)
        assert trial.params == {"lr": 0.1}
        assert store.experiment(1) == first
        assert store.trials(1) == [trial] == [store.trial(1, 1)]

    def test_an_experiment_keeps_what_is_searched(self, store: Store) -> None:
        numbers = Range(low=1e-4, high=0.1, scale="log")
        when = When(name="opt", values=("sgd",))
        opt = Parameter(name="opt", domain=Choices(values=("sgd", "adam")))
        space = Space(parameters=(opt, Parameter(name="lr", domain=numbers, when=when)))
        number = search(store, space=space)
        assert store.experiment(number).space == space
        assert store.messages(0)[0].data == store.experiment(number).to_json()

    def test_a_search_begins_without_a_trial_and_has_those_that_it_decides_on(self, store: Store) -> None:
        number = search(store)
        assert store.trials(number) == []
        (trial,) = store.record(number, [created(1)], [Added(1, {"lr": 0.5}, 3, "9.1/8-2")], at=7.0)
        assert (trial.id, trial.state, trial.queued_at) == (f"{number}.1", TrialState.QUEUED, 7.0)
        assert (trial.params, trial.until, trial.begins_from) == ({"lr": 0.5}, 3, "9.1/8-2")
        assert store.trials(number) == [trial]
        assert store.search_log(number) == [created(1)]
        search_, said = store.messages(1)
        assert (search_.type, search_.trial, search_.at) == ("search", 1, created(1).at)
        assert search_.data == created(1).to_json()
        assert said.data == trial.to_json()

    def test_the_guarantee_is_the_newest_one_that_was_reported(self, store: Store) -> None:
        attempt = placed(store)
        store.accept(attempt.id, [started()], at=3.0)
        said = [Guarantee(number=2, at=4.0, text="exact to the epoch"), Guarantee(number=3, at=5.0, text="exact")]
        store.accept(attempt.id, said, at=5.0)
        store.accept(attempt.id, said, at=6.0)  # once more, after an answer that was lost
        now = store.attempts(attempt.experiment, attempt.trial)[-1]
        assert (now.guarantee, now.accepted) == ("exact", 3)
        told = [message.data["guarantee"] for message in store.messages(0) if message.type == "attempt"]
        assert told[-1] == "exact"

    def test_nodes_are_known_on_which_a_snapshot_has_begun_to_train(self, store: Store) -> None:
        first, other = placed(store), placed(store)
        store.accept(first.id, [started()], at=3.0)
        snapshot = store.experiment(first.experiment).snapshot
        (found,) = store.trained_on(0.0, 10)  # the other has not begun
        assert found == (snapshot, first.pool, tuple(share.node for share in first.placement))
        store.accept(other.id, [started()], at=4.0)
        store.advance_attempt(first.id, events.Ended(), 5.0, outcome=Outcome.OK)
        assert len(store.trained_on(4.9, 10)) == 2
        assert len(store.trained_on(5.0, 10)) == len(store.trained_on(0.0, 1)) == 1

    def test_a_trace_is_kept_until_its_ranks_have_answered(self, store: Store) -> None:
        attempt = placed(store)
        trace = Trace(id="5f3a", steps=10, ranks=(0, 3))
        store.set_trace(attempt.id, trace, at=3.0)
        assert store.attempt(attempt.id).trace == trace
        assert store.messages(0)[-1].data["trace"] == trace.to_json()
        store.accept(attempt.id, [started(), Traced(number=2, at=4.0, id="another", text="late")], at=4.0)
        assert store.attempt(attempt.id).trace == trace
        store.accept(attempt.id, [Traced(number=3, at=5.0, id="5f3a", text="traced")], at=5.0)
        assert store.attempt(attempt.id).trace is None
        assert [each.data["text"] for each in store.messages(0) if each.type == "note"] == ["late", "traced"]

    def test_a_decision_and_what_it_does_are_one(self, store: Store) -> None:
        number = search(store)
        store.record(number, [created(1)], [Added(1, {"lr": 0.5}, 3)], at=1.0)
        attempt = store.add_attempt(number, 1, GANG, None, "digest", at=2.0)
        store.accept(attempt.id, [started()], at=3.0)
        seq = store.last_seq()
        paused = reported(2, 1, 3, math.nan, Pause())
        with pytest.raises(IllegalTransition):
            store.record(number, [paused], [Moved(1, events.Lifted())], at=4.0)
        assert (store.search_log(number), store.last_seq()) == ([created(1)], seq)
        release = Moved(1, events.Release(), {"holds": {Hold.SEARCH}})
        (trial,) = store.record(number, [paused], [release], at=4.0)
        assert (trial.state, trial.holds, trial.until) == (TrialState.RELEASING, {Hold.SEARCH}, 3)
        store.advance_attempt(attempt.id, events.Ended(), at=5.0, outcome=Outcome.RELEASED)
        store.advance_trial(number, 1, events.Released(held=True), at=5.0)
        resumed = LogEntry(number=3, at=6.0, event=Vacancy(), decision=Resume(trial=1, until=9))
        (trial,) = store.record(number, [resumed], [Moved(1, events.Lifted(), {"holds": set(), "until": 9})], at=6.0)
        assert (trial.state, trial.holds, trial.until) == (TrialState.QUEUED, frozenset(), 9)
        further = reported(4, 1, 9, 0.1, Continue(until=27))
        (trial,) = store.record(number, [further], [Moved(1, changes={"until": 27})], at=7.0)
        assert (trial.state, trial.until) == (TrialState.QUEUED, 27)
        assert [str(entry) for entry in store.search_log(number)] == list(
            map(str, [created(1), paused, resumed, further])
        )  # as text, NaN equals itself
        assert store.search_log(number, after=2) == [resumed, further]

    def test_what_was_read_of_a_search_is_replaced_and_goes_with_it(self, store: Store) -> None:
        number, other = search(store), search(store)
        assert store.search_history(number) is None
        for packed in (b"one", bytes(range(256))):
            store.keep_search_history(number, packed)
        store.keep_search_history(other, b"other")
        assert store.search_history(number) == bytes(range(256))
        store.purge(number, at=10.0)
        assert (store.search_history(number), store.search_history(other)) == (None, b"other")

    def test_of_two_that_decide_at_once_one_is_refused(self, store: Store) -> None:
        number, other = search(store), search(store)
        store.record(number, [created(1), created(2)], [Added(1, {}), Added(2, {})], at=1.0)
        for entries in ([created(2)], [created(4)], [created(3), created(5)]):
            with pytest.raises(Conflict, match=f"#{number} has gone on to entry 2"):
                store.record(number, entries, [Added(3, {})], at=2.0)
        assert len(store.trials(number)) == len(store.search_log(number)) == 2
        assert store.record(number, [created(3)], at=3.0) == []
        assert store.search_log(other) == store.search_log(99) == []

    def test_trials_are_counted_and_read_by_state(self, store: Store) -> None:
        number = search(store)
        entries = [created(index) for index in range(1, 6)]
        store.record(number, entries, [Added(entry.number, {}) for entry in entries], at=1.0)
        store.advance_trial(number, 1, events.Prune(), at=2.0)
        for index in (2, 3):
            store.advance_trial(number, index, events.Held(), at=2.0, holds={Hold.SEARCH})
        store.add_attempt(number, 5, GANG, None, "digest", at=2.0)
        assert store.trial_counts(number) == {"pruned": 1, "paused": 2, "queued": 1, "starting": 1}
        assert [trial.index for trial in store.trials(number, {TrialState.PAUSED, TrialState.PRUNED})] == [1, 2, 3]
        assert store.trials(number, []) == []
        assert [trial.index for trial in store.live_trials()] == [4, 5]
        assert store.trial_counts(99) == {}
        assert [trial.index for trial in store.restless_trials(number)] == [4, 5]
        update_trial(store, number, 3, at=3.0, holds={Hold.SEARCH, Hold.USER})
        assert [trial.index for trial in store.restless_trials(number)] == [3, 4, 5]

    def test_a_little_of_each_trial_is_read_with_what_it_has_held(self, store: Store) -> None:
        number = search(store)
        entries = [created(index) for index in range(1, 4)]
        store.record(number, entries, [Added(entry.number, {}) for entry in entries], at=1.0)
        attempt = store.add_attempt(number, 2, GANG, None, "digest", at=2.0)
        failure = Failure(rank=0, type="KeyError", message="lr")
        store.advance_trial(number, 2, events.Errored(retries_left=False), at=5.0, failure=failure)
        store.advance_attempt(attempt.id, events.Ended(), at=5.0, outcome=Outcome.FAILED)
        store.add_attempt(number, 3, GANG, None, "digest", at=4.0)
        slots = sum(len(share.slots) for share in GANG)
        assert store.trial_seconds(number, at=9.0) == {2: 3.0 * slots, 3: 5.0 * slots}
        assert store.slot_seconds(number, at=9.0) == 8.0 * slots
        assert [(each.index, str(each.state), each.attempt, each.failure) for each in store.outlines(number)] == [
            (1, "queued", 0, None),
            (2, "failed", 1, "KeyError"),
            (3, "starting", 1, None),
        ]
        assert store.outlines(99) == []
        assert store.trial_seconds(99, at=9.0) == {}
        assert [each.index for each in store.outlines(number, {3, 2, 7})] == [2, 3]
        assert store.trial_seconds(number, at=9.0, trials={3, 1}) == {3: 5.0 * slots}

    def test_changed_trials_are_those_with_messages_since(self, store: Store) -> None:
        number = search(store)
        entries = [created(index) for index in range(1, 5)]
        store.record(number, entries, [Added(entry.number, {}) for entry in entries], at=1.0)
        assert store.touched_trials(number, 0) == {1, 2, 3, 4}
        before = store.last_seq()
        attempt = store.add_attempt(number, 2, GANG, None, "digest", at=2.0)
        store.advance_trial(number, 4, events.Prune(), at=2.0)
        assert store.touched_trials(number, before) == {2, 4}
        before = store.last_seq()
        store.accept(attempt.id, training(1, 3), at=3.0)
        assert store.touched_trials(number, before) == set()  # no summary says anything of training reports
        store.accept(attempt.id, [report(4, 4, "validation", error=0.5)], at=3.0)
        assert store.touched_trials(number, before) == {2}
        assert store.touched_trials(search(store), 0) == set()

    def test_a_log_is_read_in_pages(self, store: Store) -> None:
        number = search(store)
        entries = [created(index) for index in range(1, 8)]
        store.record(number, entries, at=1.0)
        found: list[LogEntry] = []
        while page := store.search_log(number, after=len(found), limit=3):
            assert len(page) <= 3
            found += page
        assert found == entries

    def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        missing = AttemptId(9, 1, 1)
        for ask in (
            lambda: store.experiment(9),
            lambda: store.trial(9, 1),
            lambda: store.attempt(missing),
            lambda: store.token_digest(missing),
            lambda: store.trial_uid(9, 1),
            lambda: store.accept(missing, [], at=0.0),
            lambda: store.accept(missing, [started()], at=0.0),
            lambda: store.advance_experiment(9, events.Paused(), at=0.0),
            lambda: update_trial(store, 9, 1, at=0.0, failures=1),
        ):
            with pytest.raises(NotFound, match="there is no"):
                ask()
        assert store.trials(9) == store.attempts(9, 1) == store.reports(9, 1) == []

    def test_the_one_before_is_of_the_same_owner_and_notebook_or_else_name_and_no_rerun(self, store: Store) -> None:
        def add(name: str, **fields: Any) -> Experiment:
            return store.add_experiment(draft(name, **fields), at=1.0)[0]

        first = add("net", notebook="a.ipynb")
        add("net", notebook="b.ipynb")
        add("net", owner="bob", notebook="a.ipynb")
        add("net", notebook="a.ipynb", rerun_of=first.number)
        second = add("other", notebook="a.ipynb")
        assert store.experiments_before(second) == [first]
        assert store.experiments_before(first) == []
        new = draft("", notebook="a.ipynb")
        assert store.experiments_before(new, 5) == [second, first]
        script = add("net")
        assert store.experiments_before(script) == [store.experiment(2)]  # whose name it has
        other = add("net: lr 0.1")
        assert store.experiments_before(other) == [script]
        assert store.experiments_before(draft("net: lr 0.2")) == [other]
        add("nets")
        add("")
        assert store.experiments_before(add("")) == []  # no name is not the same name

    def test_experiments_are_listed_newest_first_by_owner_name_or_number(self, store: Store) -> None:
        for name, owner in (("Digits", "ada"), ("50% off", "ada"), ("digits again", "bob")):
            store.add_experiment(draft(name, owner), at=1.0)

        def numbers(**where: Any) -> list[int]:
            return [experiment.number for experiment in store.experiments(**where)]

        assert numbers() == [3, 2, 1]
        assert numbers(limit=2) == [3, 2]
        assert numbers(owner="ada") == [2, 1]
        assert numbers(search="DIGITS") == [3, 1]
        assert numbers(search="%") == [2]
        assert numbers(search="_") == []
        assert numbers(search="#3") == numbers(search="3") == [3]
        assert numbers(owner="ada", search="digits") == [1]

    def test_experiments_are_listed_by_notebook_and_page_by_page(self, store: Store) -> None:
        for notebook in ("/home/ada/a/b.ipynb", "/home/ada/b.ipynb", None, "C:\\work\\a\\b.ipynb"):
            store.add_experiment(draft(notebook=notebook), at=1.0)

        def numbers(**where: Any) -> list[int]:
            return [each.experiment.number for each in store.overviews(**where)]

        assert numbers(notebook="b.ipynb") == [4, 2, 1]
        assert numbers(notebook="a/b.ipynb") == [4, 1]
        assert numbers(notebook="_.ipynb") == numbers(notebook="home") == []
        assert numbers(before=4, limit=2) == [3, 2]
        assert numbers(before=2) == [1]
        assert numbers(before=1) == []

    def test_experiments_are_listed_that_may_have_changed_since_a_message(self, store: Store) -> None:
        for _ in range(3):
            store.add_experiment(draft(), at=1.0)
        search(store)

        def numbers(after: int) -> list[int]:
            return [each.experiment.number for each in store.overviews(after=after)]

        assert numbers(0) == [4, 3, 2, 1]
        seq = store.overviews()[0].seq
        assert numbers(seq) == [4]  # a search, which may begin to wait without a message
        store.update_experiment(1, 2.0, lambda before: ({"deleted_at": 2.0}, None))
        assert numbers(seq) == [4, 1]

    def test_experiments_are_found_by_note_and_tags(self, store: Store) -> None:
        for labels in (
            {"note": "diverged at 50%", "tags": ("baseline", "größer")},
            {"note": "", "tags": ("base",)},
            {"name": "plain"},
        ):
            number = store.add_experiment(draft(), at=1.0)[0].number
            store.update_experiment(number, 2.0, lambda before, labels=labels: (labels, None))

        def numbers(**where: Any) -> list[int]:
            return [each.experiment.number for each in store.overviews(**where)]

        assert numbers(search="DIVERGED") == numbers(search="50%") == [1]
        assert numbers(search="base") == [2, 1]
        assert numbers(search="größ") == [1]
        for syntax in ("[", '"', ",", "[]", '", "'):  # of the list of tags as it is stored
            assert numbers(search=syntax) == []
        assert numbers(tags=["base"]) == numbers(tags=["BASE"]) == [2]
        assert numbers(tags=["größer", "baseline"]) == [1]
        assert numbers(tags=["base", "baseline"]) == numbers(tags=["_ase"]) == []
        assert store.experiment(1).tags == ("baseline", "größer")
        assert store.experiment(3).note == ""

    def test_experiments_are_listed_by_the_word_that_an_overview_shows(self, store: Store) -> None:
        placed(store)
        store.accept(placed(store).id, [started()], at=3.0)
        for event in (events.Paused(), events.Completed()):
            number = store.add_experiment(draft(), at=1.0)[0].number
            store.advance_experiment(number, event, at=2.0)
        held = store.add_experiment(draft(), at=1.0)[0].number
        store.advance_trial(held, 1, events.Held(), at=2.0, holds={Hold.ENGINE})
        words = {
            x.number: Overview(experiment=x, trials=tuple(store.trials(x.number))).state for x in store.experiments()
        }
        assert words == {5: "queued", 4: "completed", 3: "paused", 2: "running", 1: "starting"}
        for word in ("starting", "running", "paused", "completed", "queued", "stopping", "stopped"):
            expected = [number for number, shown in words.items() if shown == word]
            assert [x.number for x in store.experiments(state=word)] == expected
        assert [x.number for x in store.experiments(state="active")] == [5, 2, 1]
        with pytest.raises(InvalidRequest, match="'sleepy' is no state"):
            store.experiments(state="sleepy")

    def test_a_search_is_listed_by_both_words_that_it_may_show(self, store: Store) -> None:
        """List a search as running and as queued: the service, which knows of waits, keeps the right one."""
        number = search(store)
        store.record(number, [created(1)], [Added(1, {})], at=1.0)
        store.advance_trial(number, 1, events.Held(), at=2.0, holds={Hold.SEARCH})
        shown = {word for word in ("running", "queued", "paused", "starting") if store.experiments(state=word)}
        assert shown == {"running", "queued"}
        store.advance_experiment(number, events.Paused(), at=3.0)
        assert [each.number for each in store.experiments(state="paused")] == [number]
        assert store.experiments(state="running") == store.experiments(state="queued") == []

    def test_every_change_of_state_is_stored_and_said(self, store: Store) -> None:
        number = store.add_experiment(draft(), at=1.0)[0].number
        paused = store.advance_trial(number, 1, events.Held(), at=2.0, holds={Hold.USER})
        assert paused.holds == {Hold.USER}
        assert paused.ended_at is None
        failure = Failure(rank=1, type="ValueError", message="no", step=3)
        stopped = store.advance_trial(number, 1, events.Stop(), at=3.0, failure=failure, failures=2)
        assert (stopped.state, stopped.ended_at, stopped.failure) == (TrialState.STOPPED, 3.0, failure)
        assert store.trial(number, 1) == stopped
        assert store.advance_experiment(number, events.Failed(), at=4.0).ended_at == 4.0
        said = store.messages(0)
        assert [message.type for message in said] == ["experiment", "trial", "trial", "trial", "experiment"]
        assert [message.seq for message in said] == [1, 2, 3, 4, 5]
        assert said[2].data == paused.to_json()
        assert said[3].data == stopped.to_json()
        assert store.last_seq() == 5

    def test_what_cannot_happen_is_refused_and_nothing_is_written(self, store: Store) -> None:
        attempt = placed(store)
        before, seq = store.trial(1, 1), store.last_seq()
        with pytest.raises(IllegalTransition, match="lifted is not possible while starting"):
            store.advance_trial(1, 1, events.Lifted(), at=9.0, failures=4)
        with pytest.raises(IllegalTransition):
            store.advance_attempt(attempt.id, events.Ending(), at=9.0)
        with pytest.raises(IllegalTransition):
            store.advance_experiment(1, events.Ended(), at=9.0)
        with pytest.raises(IllegalTransition):
            placed(store, number=1)
        with pytest.raises(ValidationError):
            update_trial(store, 1, 1, at=9.0, colour="red")
        assert store.trial(1, 1) == before
        assert store.attempts(1, 1) == [attempt]
        assert store.last_seq() == seq

    def test_a_completed_experiment_that_is_extended_has_not_ended(self, store: Store) -> None:
        attempt = placed(store)
        done = store.advance_trial(1, 1, events.Finished(), at=7.0)
        store.advance_attempt(attempt.id, events.Ended(), at=7.0, outcome=Outcome.OK)
        assert store.advance_experiment(1, events.Completed(), at=7.0).ended_at == done.ended_at == 7.0
        assert store.live_trials() == []
        assert store.advance_trial(1, 1, events.Extended(), at=8.0).ended_at is None
        assert store.advance_experiment(1, events.Extended(), at=8.0).ended_at is None
        assert [trial.id for trial in store.live_trials()] == ["1.1"]

    def test_an_experiment_goes_on_with_other_fields_or_not_at_all(self, store: Store) -> None:
        config = store.add_experiment(draft(), at=1.0)[0].config
        wider = config.model_copy(update={"slots": config.slots + 2})
        with pytest.raises(IllegalTransition):
            store.advance_experiment(1, events.Resumed(), at=2.0, config=wider)
        assert store.experiment(1).config == config
        store.advance_experiment(1, events.Paused(), at=3.0)
        resumed = store.advance_experiment(1, events.Resumed(), at=4.0, config=wider)
        assert (resumed.config.slots, resumed.state) == (config.slots + 2, ExperimentState.ACTIVE)
        assert store.experiment(1) == resumed
        assert store.messages(0)[-1].data == resumed.to_json()

    def test_a_trial_is_updated_without_a_change_of_state(self, store: Store) -> None:
        store.add_experiment(draft(), at=1.0)
        trial = update_trial(store, 1, 1, at=2.0, failures=3, checkpoint="150-1")
        assert (trial.failures, trial.checkpoint, trial.state) == (3, "150-1", TrialState.QUEUED)
        assert store.messages(2)[0].data == trial.to_json()

    def test_an_attempt_is_the_next_of_its_trial_and_starts_it(self, store: Store) -> None:
        first = placed(store)
        assert (str(first.id), first.state, first.placement) == ("1.1-1", AttemptState.PLACED, GANG)
        assert store.token_digest(first.id) == "digest"
        assert (store.trial(1, 1).state, store.trial(1, 1).attempt) == (TrialState.STARTING, 1)
        assert store.open_attempts() == [first]
        requeue(store, first)
        second = placed(store, "20-1", number=1)
        assert (str(second.id), second.resume_from) == ("1.1-2", "20-1")
        ended = store.attempt(first.id)
        assert (ended.outcome, ended.ended_at) == (Outcome.LOST, 6.0)
        assert store.attempts(1, 1) == [ended, second]
        assert store.open_attempts() == [second]
        assert [message.type for message in store.messages(2)] == ["attempt", "trial"] * 3

    def test_no_two_trials_have_the_same_identity_and_it_stays(self, store: Store) -> None:
        store.add_experiment(draft(), at=1.0)
        number = search(store)
        store.record(number, [created(1)], [Added(1, {}), Added(2, {})], at=1.0)
        found = [store.trial_uid(1, 1), store.trial_uid(number, 1), store.trial_uid(number, 2)]
        assert len(set(found)) == len([uid for uid in found if len(uid) == 32]) == 3
        attempt = placed(store, number=1)
        requeue(store, attempt)
        assert store.trial_uid(1, 1) == found[0]

    def test_numbers_go_on_beyond_what_is_named_elsewhere(self, store: Store) -> None:
        assert [store.add_experiment(draft(), 1.0, beyond)[0].number for beyond in (0, 0, 40, 7)] == [1, 2, 41, 42]
        first = store.add_attempt(1, 1, GANG, None, "d", 2.0, beyond=3)
        requeue(store, first)
        second = store.add_attempt(1, 1, GANG, None, "d", 2.0, beyond=2)
        assert (first.number, second.number, store.trial(1, 1).attempt) == (4, 5, 5)
        assert store.newest_attempts() == {(1, 1): 5, (2, 1): 0, (41, 1): 0, (42, 1): 0}

    def test_a_fenced_attempt_is_heard_up_to_where_the_next_one_began_whatever_its_number(self, store: Store) -> None:
        first = placed(store)
        requeue(store, first)
        store.add_attempt(1, 1, GANG, "20-1", "d", 6.0, beyond=7)
        store.accept(first.id, training(1, 30), at=7.0)
        assert [one.step for one in store.reports(1, 1)] == list(range(1, 21))

    def test_a_trial_keeps_its_place_in_the_queue(self, store: Store) -> None:
        store.add_experiment(draft(), at=9.0)
        attempt = store.add_attempt(store.add_experiment(draft(), at=1.0)[0].number, 1, GANG, None, "d", at=10.0)
        requeue(store, attempt)
        assert [trial.id for trial in store.live_trials()] == ["2.1", "1.1"]

    def test_the_ranks_first_word_makes_attempt_and_trial_running(self, store: Store) -> None:
        attempt = placed(store)
        assert store.accept(attempt.id, [started()], at=3.0) == 1
        running, trial = store.attempt(attempt.id), store.trial(1, 1)
        assert (running.state, running.backend, running.backend_reason) == ("running", "torch", "asked for")
        assert (trial.state, trial.total_steps) == (TrialState.RUNNING, 50)
        assert [message.type for message in store.messages(4)] == ["attempt", "trial"]

    def test_a_first_word_that_comes_after_a_stop_changes_no_state(self, store: Store) -> None:
        attempt = placed(store)
        store.advance_trial(1, 1, events.Stop(), at=2.5)
        store.advance_attempt(attempt.id, events.Ended(), at=2.6, outcome=Outcome.KILLED)
        assert store.accept(attempt.id, [started(), report(2, 1)], at=3.0) == 2
        assert store.trial(1, 1).state is TrialState.STOPPING
        assert store.attempt(attempt.id).state is AttemptState.ENDED
        assert store.trial(1, 1).step == 1

    def test_a_record_is_taken_once_however_often_it_is_sent(self, store: Store) -> None:
        attempt = placed(store)
        batch = training(1, 10)
        assert store.accept(attempt.id, batch[:6], at=4.0) == 6
        assert store.accept(attempt.id, batch[:6], at=4.0) == 6
        assert store.accept(attempt.id, batch[3:], at=4.0) == 10
        assert store.accept(attempt.id, [], at=4.0) == 10
        assert [one.step for one in store.reports(1, 1)] == list(range(1, 11))
        assert store.attempt(attempt.id).accepted == 10

    @pytest.mark.parametrize("numbers", [[1, 2, 2], [0, 1], [2, 1], [1, 3, 2]])
    def test_a_delivery_out_of_order_is_refused_whole(self, store: Store, numbers: Sequence[int]) -> None:
        attempt = placed(store)
        seq = store.last_seq()
        with pytest.raises(InvalidRequest, match="out of order"):
            store.accept(attempt.id, [report(number, number) for number in numbers], at=4.0)
        assert (store.reports(1, 1), store.last_seq(), store.attempt(attempt.id).accepted) == ([], seq, 0)

    def test_a_record_that_was_torn_keeps_none_of_those_after_it_out(self, store: Store) -> None:
        attempt = placed(store)
        assert store.accept(attempt.id, [report(1, 1), report(3, 3)], at=4.0) == 3
        assert store.accept(attempt.id, [report(5, 5)], at=4.0) == 5
        assert [one.step for one in store.reports(1, 1)] == [1, 3, 5]

    def test_the_first_word_about_a_step_wins(self, store: Store) -> None:
        first = placed(store)
        store.accept(first.id, [*training(1, 4, loss=1.0), report(5, 4, "validation", loss=2.0)], at=4.0)
        requeue(store, first)
        second = placed(store, "2-1", number=1)
        again = [report(1, 3, loss=9.0), report(2, 4, loss=9.0), report(3, 4, "validation", loss=9.0)]
        assert store.accept(second.id, [*again, report(4, 5, loss=9.0)], at=5.0) == 4
        losses = {(one.kind, one.step): one.metrics["loss"] for one in store.reports(1, 1)}
        expected: dict[tuple[str, int], float] = {("training", step): 1.0 for step in range(1, 5)}
        assert losses == expected | {("validation", 4): 2.0, ("training", 5): 9.0}
        trial = store.trial(1, 1)
        assert (trial.metrics, trial.training) == ({"loss": 2.0}, {"loss": 9.0})

    def test_another_report_of_a_step_adds_the_metrics_that_the_first_did_not_have(self, store: Store) -> None:
        attempt = placed(store)
        store.accept(attempt.id, [report(1, 4, loss=1.0), report(2, 4, "validation", loss=2.0)], at=4.0)
        seq = store.last_seq()
        more = [report(3, 4, "validation", loss=9.0, test=0.8), report(4, 4, accuracy=0.7), report(5, 5, loss=0.5)]
        assert store.accept(attempt.id, more, at=5.0) == 5
        expected = [("training", 4, {"loss": 1.0, "accuracy": 0.7}), ("training", 5, {"loss": 0.5})]
        expected += [("validation", 4, {"loss": 2.0, "test": 0.8})]
        found = store.reports(1, 1)
        assert sorted((each.kind, each.step, each.metrics) for each in found) == expected
        assert all(each.seq > seq for each in found), "clients that have read the first ones read the completed ones"
        assert store.trial(1, 1).metrics == {"loss": 2.0, "test": 0.8}
        seq = store.last_seq()
        requeue(store, attempt)
        again = [report(1, 4, "validation", loss=2.0), report(2, 4, "validation", test=0.8), report(3, 4, loss=1.0)]
        store.accept(placed(store, "2-1", number=1).id, again, at=6.0)
        assert store.reports(1, 1) == found, "a repetition changes nothing"

    def test_reports_of_a_step_that_come_together_are_all_in_the_trial(self, store: Store) -> None:
        attempt = placed(store)
        records = [report(1, 4, loss=1.0), report(2, 4, loss=9.0, lr=0.1), report(3, 4, "validation", loss=2.0)]
        store.accept(attempt.id, [*records, report(4, 4, "validation", loss=9.0, test=0.8)], at=4.0)
        trial = store.trial(1, 1)
        assert trial.metrics == {"loss": 2.0, "test": 0.8}
        assert trial.training == {"loss": 1.0, "lr": 0.1}

    def test_a_report_of_a_search_stays_as_its_searcher_has_read_it(self, store: Store) -> None:
        number = search(store)
        store.record(number, [created(1)], [Added(1, {"lr": 0.5}, 3)], at=2.0)
        attempt = store.add_attempt(number, 1, GANG, None, "d", 2.0)
        store.accept(attempt.id, [report(1, 4, "validation", loss=2.0)], at=4.0)
        (known,) = store.reports(number, 1)
        store.accept(attempt.id, [report(2, 4, "validation", loss=2.0, test=0.8)], at=5.0)
        assert store.reports(number, 1) == [known]

    def test_progress_only_goes_forward(self, store: Store) -> None:
        attempt = placed(store)
        first = [report(1, 20, loss=1.0), report(2, 20, "validation", accuracy=0.7), committed(3, 20)]
        store.accept(attempt.id, first, at=4.0)
        store.accept(
            attempt.id, [report(4, 7, loss=5.0), report(5, 7, "validation", accuracy=0.1), committed(6, 7)], at=5.0
        )
        trial = store.trial(1, 1)
        assert (trial.step, trial.epoch, trial.checkpoint) == (20, 2.0, "20-1")
        assert (trial.metrics, trial.training) == ({"accuracy": 0.7}, {"loss": 1.0})
        store.accept(attempt.id, [report(7, 30), report(8, 30, "validation", accuracy=0.8)], at=6.0)
        trial = store.trial(1, 1)
        assert (trial.step, trial.metrics, trial.checkpoint) == (30, {"accuracy": 0.8}, "20-1")

    def test_the_best_value_of_the_metric_is_kept_with_where_it_was(self, store: Store) -> None:
        attempt = placed(store)
        assert store.trial(1, 1).best is None
        worse = [report(1, 5, loss=0.0), report(2, 10, "validation", accuracy=1.0)]  # no validation, no value
        worse += [report(3, 20, "validation", loss=math.nan), report(4, 30, "validation", loss=-math.inf)]
        store.accept(attempt.id, worse, at=4.0)
        assert store.trial(1, 1).best is None
        store.accept(attempt.id, [report(5, 40, "validation", loss=0.5), report(6, 50, "validation", loss=0.7)], at=5.0)
        found = store.trial(1, 1)
        assert (found.best, found.metrics) == (Best(value=0.5, step=40, epoch=4.0), {"loss": 0.7})
        assert [each.best for each in store.outlines(1)] == [found.best]
        store.accept(attempt.id, [report(7, 60, "validation", loss=0.5), committed(8, 60)], at=6.0)
        assert store.messages(0)[-1].data["best"] == {"value": 0.5, "step": 40, "epoch": 4.0}

    def test_only_first_words_can_be_best_and_late_ones_are(self, store: Store) -> None:
        first = placed(store)
        store.accept(first.id, [report(1, 40, "validation", loss=0.5)], at=4.0)
        requeue(store, first)
        second = placed(store, "40-1", number=1)
        again = [report(1, 40, "validation", loss=0.1), report(2, 50, "validation", loss=0.3)]
        store.accept(second.id, [*again, report(3, 50, "validation", loss=0.2)], at=5.0)
        assert store.trial(1, 1).best == Best(value=0.3, step=50, epoch=5.0)
        late = [report(2, 20, "validation", loss=0.3), report(3, 30, "validation", loss=0.4)]
        store.accept(first.id, [*late, report(4, 45, "validation", loss=0.0)], at=6.0)  # 45 is beyond its successor
        assert store.trial(1, 1).best == Best(value=0.3, step=20, epoch=2.0)

    def test_a_metric_to_be_maximized_has_its_greatest_value_as_best(self, store: Store) -> None:
        config = Config(metric=Metric(name="accuracy", mode="max"))
        number = store.add_experiment(draft().model_copy(update={"config": config}), at=1.0)[0].number
        values = (0.25, 0.75, 0.5)
        batch = [report(n, n, "validation", accuracy=value, loss=value) for n, value in enumerate(values, 1)]
        store.accept(placed(store, number=number).id, batch, at=4.0)
        assert store.trial(number, 1).best == Best(value=0.75, step=2, epoch=0.2)

    def test_the_metric_of_a_validation_has_the_name_that_the_user_gave_it(self, store: Store) -> None:
        config = Config(metric=Metric(name="val_acc", mode="max"))
        number = store.add_experiment(draft().model_copy(update={"config": config}), at=1.0)[0].number
        seq, printed = store.last_seq(), {"Val Acc": 0.75, "Loss": 0.5}
        store.accept(placed(store, number=number).id, [report(1, 10, "validation", **printed)], at=4.0)
        trial = store.trial(number, 1)
        assert (trial.best, trial.metrics) == (Best(value=0.75, step=10, epoch=1.0), {"val_acc": 0.75, "Loss": 0.5})
        (said,) = (message.data for message in store.messages(seq) if message.type == "report")
        assert said["metrics"] == trial.metrics

    def test_a_checkpoint_is_said_with_the_whole_trial(self, store: Store) -> None:
        attempt = placed(store)
        seq = store.last_seq()
        store.accept(attempt.id, [report(1, 5), committed(2, 5)], at=4.0)
        said = store.messages(seq)
        assert [message.type for message in said] == ["report", "trial"]
        assert said[1].data == store.trial(1, 1).to_json()
        assert said[1].data["checkpoint"] == "5-1"

    def test_a_fenced_attempt_is_heard_only_up_to_where_its_successor_began(self, store: Store) -> None:
        first = placed(store)
        store.accept(first.id, training(1, 5), at=4.0)
        requeue(store, first)
        second = placed(store, "8-1", number=1)
        seq = store.last_seq()
        late = [*training(6, 10), started(11), committed(12, 10), Note(number=13, at=4.0, text="late")]
        assert store.accept(first.id, late, at=5.0) == 13
        assert [one.step for one in store.reports(1, 1)] == list(range(1, 9))
        assert {message.type for message in store.messages(seq)} == {"report"}
        trial = store.trial(1, 1)
        assert (trial.state, trial.step, trial.checkpoint) == (TrialState.STARTING, 8, None)
        assert store.attempt(first.id).state is AttemptState.ENDED
        assert store.accept(second.id, [started()], at=6.0) == 1

    def test_a_fenced_attempt_whose_successor_began_anew_is_not_heard_at_all(self, store: Store) -> None:
        first = placed(store)
        requeue(store, first)
        placed(store, None, number=1)
        assert store.accept(first.id, training(1, 5), at=5.0) == 5
        assert store.reports(1, 1) == []

    def test_numbers_that_are_none_survive(self, store: Store) -> None:
        odd = {"nan": math.nan, "up": math.inf, "down": -math.inf, "tiny": 5e-324}
        number = store.add_experiment(draft(params=odd | {"flag": True, "one": 1, "none": None}), at=1.0)[0].number
        attempt = placed(store, number=number)
        store.accept(attempt.id, [report(1, 1, "validation", **odd)], at=4.0)
        trial = store.trial(number, 1)
        for found in (store.reports(number, 1)[0].metrics, trial.metrics, trial.params):
            assert math.isnan(found.pop("nan"))
            assert [found["up"], found["down"], found["tiny"]] == [math.inf, -math.inf, 5e-324]
        assert trial.params["flag"] is True
        assert (trial.params["one"], trial.params["none"]) == (1, None)
        said = store.messages(0)[-1].to_json()["data"]
        assert said["metrics"] == {"nan": "NaN", "up": "Infinity", "down": "-Infinity", "tiny": 5e-324}

    def test_a_step_beyond_what_a_database_can_hold_is_refused(self, store: Store) -> None:
        attempt = placed(store)
        with pytest.raises(InvalidRequest, match="cannot be stored"):
            store.accept(attempt.id, [report(1, 1).model_copy(update={"step": 2**70})], at=4.0)
        assert store.accept(attempt.id, training(1, 1), at=4.0) == 1

    def test_reports_are_read_by_kind_and_from_a_number_on(self, store: Store) -> None:
        attempt = placed(store)
        batch = [report(n, n, "validation" if n % 5 == 0 else "training") for n in range(1, 21)]
        store.accept(attempt.id, batch, at=4.0)
        everything = store.reports(1, 1)
        assert [one.step for one in store.reports(1, 1, kind="validation")] == [5, 10, 15, 20]
        assert store.reports(1, 1, after=everything[7].seq, limit=3) == everything[8:11]
        assert store.reports(1, 2) == []
        assert everything[0].attempt == 1
        assert everything[0].at == 4.0

    def test_what_was_told_is_read_in_columns(self, store: Store) -> None:
        attempt = placed(store)
        odd = {"loss": math.nan, "up": math.inf, "down": -math.inf, "tiny": 5e-324, 'é, "]': 0.1}
        batch = [report(1, 1), report(2, 2, **odd), report(3, 2, "validation", loss=0.1 + 0.2), report(4, 3)]
        store.accept(attempt.id, batch, at=4.0)
        told = store.reported_values(1, 1)
        stored = store.reports(1, 1)
        assert told.seq == stored[-1].seq
        expected: dict[tuple[str, str], list[tuple[int, float, float, float]]] = {}
        for one in stored:
            for name, value in one.metrics.items():
                expected.setdefault((one.kind, name), []).append((one.step, one.epoch, one.at, value))
        found = {key: list(zip(*column, strict=True)) for key, column in told.columns.items()}
        assert str(found) == str(expected)  # as text, NaN equals itself
        assert (
            store.reported_values(1, 1, after=told.seq)
            == store.reported_values(1, 2)
            == store.reported_values(9, 1)
            == ReportedValues()
        )

    def test_what_is_told_later_is_joined_to_what_came_before(self, store: Store) -> None:
        first = placed(store)
        store.accept(first.id, training(1, 5), at=4.0)
        early = store.reported_values(1, 1)
        requeue(store, first)
        second = placed(store, "8-1", number=1)
        store.accept(second.id, training(9, 12), at=5.0)
        middle = store.reported_values(1, 1, after=early.seq)
        store.accept(first.id, training(6, 8), at=6.0)  # what the older attempt still had to say comes last
        late = store.reported_values(1, 1, after=middle.seq)
        column = join([early, middle, late]).columns["training", "loss"]
        assert [len(part.columns["training", "loss"].step) for part in (early, middle, late)] == [5, 4, 3]
        assert list(column.step) == list(range(1, 13))
        assert list(column.value) == [1.0 / (step + 1) for step in range(1, 13)]
        assert join([early, middle, late]) == store.reported_values(1, 1)

    def test_thousands_of_reports_are_told_whole_and_in_order(self, store: Store) -> None:
        attempt = placed(store)
        for first in range(1, 5001, 1000):
            store.accept(attempt.id, training(first, first + 999), at=4.0)
        column = store.reported_values(1, 1).columns["training", "loss"]
        assert list(column.step) == list(range(1, 5001))
        assert list(column.value) == [1.0 / (step + 1) for step in range(1, 5001)]

    def test_training_reports_are_thinned_once_and_all_validations_stay(self, store: Store) -> None:
        attempt = placed(store)
        store.accept(attempt.id, [*training(1, 100), report(101, 100, "validation", loss=0.5)], at=4.0)
        assert store.thin_reports(1, 10, dry_run=True) == Thinned(90, of=100)
        assert len(store.reports(1, 1)) == 101
        assert store.thin_reports(1, 10) == Thinned(90, of=100)
        steps = [each.step for each in store.reports(1, 1, "training")]
        assert (len(steps), steps[0], steps[-1]) == (10, 1, 100)
        assert max(after - before for before, after in pairwise(steps)) == 11
        assert [each.step for each in store.reports(1, 1, "validation")] == [100]
        assert store.thin_reports(1, 10) == Thinned(0, of=10)

    def test_other_experiments_and_rare_metrics_keep_their_reports(self, store: Store) -> None:
        rare = [report(step, step, loss=0.1, **({"norm": 2.0} if step % 50 == 0 else {})) for step in range(1, 201)]
        for _ in range(2):
            store.accept(placed(store).id, rare, at=4.0)
        store.thin_reports(2, 10)
        assert len(store.reports(1, 1)) == 200
        thinned = store.reports(2, 1)
        assert [each.step for each in thinned if "norm" in each.metrics] == [50, 100, 150, 200]
        assert len(thinned) < 15

    def test_experiments_outcomes_and_running_trials_are_counted(self, store: Store) -> None:
        attempt = placed(store)
        running = placed(store)
        store.add_experiment(draft("queued"), at=1.0)
        requeue(store, attempt)
        counts = store.counts(10)
        assert counts.experiments == {"active": 3}
        assert counts.outcomes == {"lost": 1}
        assert [each.id for each in counts.training] == [store.trial(running.experiment, 1).id]
        assert store.counts(0).training == []

    def test_an_overview_holds_what_the_store_knows_of_an_experiment(self, store: Store) -> None:
        for _ in range(2):
            attempt = placed(store)
            note = Note(number=2, at=4.5, level="warning", text=f"the disk is full, #{attempt.experiment}")
            store.accept(attempt.id, [started(), note], at=4.0)
        store.add_experiment(draft("another", owner="bob"), at=1.0)
        for _ in range(11):
            requeue(store, attempt)
            attempt = placed(store, number=2)
        everything = store.overviews()
        assert [each.experiment for each in everything] == store.experiments()
        for each in everything:
            number = each.experiment.number
            assert each == store.overview(number)
            assert list(each.trials) == store.trials(number)
            assert list(each.attempts) == store.attempts(number, 1)[-10:]
            assert list(each.warnings) == [note.data["text"] for note in notes(store, number)]
            assert (each.wait, each.seq) == (None, store.last_seq())
        assert [len(each.attempts) for each in everything] == [0, 10, 1]
        assert [each.warnings for each in everything] == [(), ("the disk is full, #2",), ("the disk is full, #1",)]

    def test_of_very_many_trials_an_overview_holds_those_that_are_looked_at(self, store: Store) -> None:
        number, few = search(store), search(store)
        entries = [created(index) for index in range(1, 101)]
        store.record(number, entries, [Added(entry.number, {}) for entry in entries], at=1.0)
        store.record(few, entries[:50], [Added(entry.number, {}) for entry in entries[:50]], at=1.0)
        for index in range(1, 101):
            best = None if index == 50 else Best(value=-index, step=1, epoch=1.0)
            update_trial(store, number, index, at=2.0, best=best, attempt=1)
            if index not in (3, 4):  # these wait
                store.advance_trial(number, index, events.Held(), at=2.0, holds={Hold.SEARCH})
        update_trial(store, number, 7, at=3.0, failure=Failure(rank=0, type="OSError", message="no"))
        seen, whole = store.overview(number), store.overview(few)
        assert [trial.index for trial in seen.trials] == [3, 4, 7, *range(81, 101)]
        assert seen.trial_counts == seen.counts == {"queued": 2, "paused": 98}
        assert (seen.state, seen.front) == ("running", store.trial(number, 100))
        assert list(whole.trials) == store.trials(few)
        assert (whole.trial_counts, whole.counts) == ({}, {"queued": 50})
        assert store.overviews(search="#1") == [seen]
        pruned = Message(seq=9999, at=4.0, experiment=number, type="trial", data=pruned_at(store, number, 20))
        assert seen.after(pruned).trial_counts == store.overview(number).trial_counts

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_the_database_picks_the_trials_that_the_rule_picks(self, store: Store, mode: Literal["min", "max"]) -> None:
        metric = Metric(name="error", mode=mode)
        config = Config(epochs=27, metric=metric, search=Search(method="asha"))
        number = store.add_experiment(draft(config=config), at=1.0)[0].number
        entries = [created(index) for index in range(1, 121)]
        store.record(number, entries, [Added(entry.number, {}) for entry in entries], at=1.0)
        draws = random.Random(0)
        for index in range(1, 121):
            value = draws.choice([-2.5e-8, 0.0, 1.0, 10.0, 9.5, 1e300, draws.random()])
            best = None if draws.random() < 0.2 else Best(value=value, step=1, epoch=1.0)
            failure = Failure(rank=0, type="OSError", message="no") if draws.random() < 0.1 else None
            update_trial(store, number, index, at=2.0, best=best, failure=failure, attempt=1)
            if index % 40:  # the others wait
                hold = Hold.ENGINE if draws.random() < 0.05 else Hold.SEARCH
                store.advance_trial(number, index, events.Held(), at=2.0, holds={hold})
            if index % 7 == 0 and index % 40:
                store.advance_trial(number, index, events.Prune(), at=3.0)
        picked = shown_trials([TrialActivity.at(trial) for trial in store.trials(number)], metric)
        assert {trial.index for trial in store.overview(number).trials} == picked

    def test_the_newest_notes_are_warnings_each_text_once(self, store: Store) -> None:
        many, few = placed(store).id, placed(store).id
        for index in range(150):
            store.note(many, f"note {index // 2}", at=3.0)
        store.note(few, "alone", at=4.0)
        warnings = {each.experiment.number: each.warnings for each in store.overviews()}
        assert warnings == {1: tuple(f"note {index}" for index in range(25, 75)), 2: ("alone",)}
        assert store.overview(1).warnings == warnings[1]

    def test_notes_that_only_inform_are_told_from_warnings(self, store: Store) -> None:
        attempt = placed(store)
        said = [Note(number=2, text="tuned: 4 workers"), Note(number=3, level="warning", text="the disk is full")]
        store.accept(attempt.id, [started(), *said], at=3.0)
        overview = store.overview(1)
        assert overview.warnings == ("tuned: 4 workers", "the disk is full")
        assert overview.informational == ("tuned: 4 workers",)

    def test_overviews_are_found_like_experiments(self, store: Store) -> None:
        for name, owner in (("Digits", "ada"), ("other", "ada"), ("digits again", "bob")):
            store.add_experiment(draft(name, owner), at=1.0)
        placed(store, number=2)
        wheres: list[dict[str, Any]] = [{"owner": "ada"}, {"search": "digits"}, {"state": "queued"}, {"limit": 2}]
        for where in wheres:
            assert [each.experiment for each in store.overviews(**where)] == store.experiments(**where)
        assert store.overviews(owner="nobody") == []
        with pytest.raises(InvalidRequest):
            store.overviews(state="sleepy")
        with pytest.raises(NotFound, match="there is no experiment #9"):
            store.overview(9)

    def test_the_stream_holds_everything_in_order_whatever_the_page(self, store: Store) -> None:
        for _ in range(2):
            attempt = placed(store)
            note = Note(number=5, at=4.5, level="warning", text="the disk is full")
            store.accept(attempt.id, [started(), *training(2, 4), note, *training(6, 8), committed(9, 8)], at=4.0)
        whole = store.messages(0)
        own = ["experiment", "trial", "attempt", "trial", "attempt", "trial"]
        own += ["report"] * 3 + ["note"] + ["report"] * 3 + ["trial"]
        assert [message.type for message in whole] == own * 2
        assert [message.seq for message in whole] == sorted({message.seq for message in whole})
        assert whole[-1].seq == store.last_seq()
        for page in (1, 4, 7, 1000):
            assert all_messages(store, page) == whole
        assert store.messages(0, experiment=2) == whole[len(own) :]
        assert store.messages(whole[-1].seq) == []

    def test_notes_are_kept_for_the_person(self, store: Store) -> None:
        attempt = placed(store)
        store.accept(attempt.id, [Note(number=1, at=4.5, level="warning", text="the disk is full")], at=4.0)
        (note,) = notes(store, 1)
        assert note.data == {"text": "the disk is full", "level": "warning", "attempt": 1}
        assert (note.at, note.trial, note.type) == (4.5, 1, "note")

    def test_a_fact_is_kept_once_for_each_attempt(self, store: Store) -> None:
        attempt = placed(store)
        weights = Fact(number=2, at=5.0, name="weights", value={"digest": "aa", "tensors": {"w": "bb"}})
        store.accept(attempt.id, [started(), weights], at=6.0)
        again = Fact(number=3, at=7.0, name="weights", value={"digest": "cc", "tensors": {}})
        store.accept(attempt.id, [again], at=8.0)
        found = {fact.name: fact for fact in store.facts(attempt.experiment, 1)}
        assert set(found) == {"runtime", "weights"}
        assert (found["weights"].attempt, found["weights"].at) == (1, 5.0)
        assert found["weights"].value == weights.value
        assert store.facts(attempt.experiment, 2) == []

    def test_the_times_of_a_rank_are_replaced_by_newer_ones_of_its_attempt(self, store: Store) -> None:
        first = placed(store)
        times = (rank_times(0, steps=1, data=1.0), rank_times(1, steps=1, data=3.0))
        store.keep_measured(first.id, Measurements(times=times), at=5.0)
        newer = (rank_times(0, steps=9, data=2.0, forward=4.5),)
        store.keep_measured(first.id, Measurements(times=newer), at=6.0)
        requeue(store, first)
        second = placed(store, "8-1", number=1)
        store.keep_measured(second.id, Measurements(times=(rank_times(0, steps=2, data=0.5),)), at=9.0)
        found = store.times(1, 1)
        assert [(each.attempt, each.times.rank) for each in found] == [(1, 0), (1, 1), (2, 0)]
        assert found[0].times == newer[0]
        total, latest = store.total_times(1, since=8.0)
        assert total == Split(steps=12, parts={"data": 5.5, "forward": 4.5})
        assert [each.whole.steps for each in latest] == [2]
        assert store.times(1, 2) == []
        assert store.total_times(7, since=0.0) == (Split(), [])
        store.purge(1, at=10.0)
        assert store.times(1, 1) == []

    def test_the_final_times_of_a_rank_are_not_replaced_by_earlier_ones(self, store: Store) -> None:
        attempt = placed(store)
        running, final = rank_times(0, steps=4, data=9.0), rank_times(0, steps=9, now=None, data=5.0)
        for times in ((running,), (final,), (running, rank_times(1, steps=3, data=1.0))):
            store.keep_measured(attempt.id, Measurements(times=times), at=5.0)
        assert [each.times.whole.steps for each in store.times(1, 1)] == [9, 3]
        later = rank_times(0, steps=10, now=None, data=6.0)
        store.keep_measured(attempt.id, Measurements(times=(later,)), at=6.0)
        assert store.times(1, 1)[0].times == later

    def test_the_use_of_a_slot_is_stored_by_period_and_its_newest_sample_is_replaced(self, store: Store) -> None:
        attempt = placed(store)
        use = (slot_use(0, gpu=0.2), slot_use(1, gpu=0.4), slot_use(2), slot_use(0, 1, gpu=0.2))
        store.keep_measured(attempt.id, Measurements(use=use), at=5.0)
        newer = (slot_use(0, at=6.0, gpu=0.8, memory=3.0), slot_use(0, 2, seconds=30.0, gpu=0.6, power=90.0))
        store.keep_measured(attempt.id, Measurements(use=newer), at=6.0)
        store.keep_measured(attempt.id, Measurements(use=newer), at=6.0)  # the answer to the first was lost
        found = store.use(1, 1)
        assert [(each.attempt, each.slot.rank, each.slot.number) for each in found] == [
            (1, 0, 0),
            (1, 0, 1),
            (1, 0, 2),
            (1, 1, 0),  # there is no rank 2
        ]
        assert (found[0].slot, found[2].slot) == newer
        total = store.total_use(1)
        assert (total.seconds, total.gpu, total.power, total.memory) == (40.0, 0.5, 90.0, None)
        assert store.total_use(7) == SlotUse()
        assert [each.slot for each in store.latest_use(5.5)] == [newer[0]]
        assert len(store.latest_use(0.0, number=1)) == 2
        assert store.latest_use(0.0, number=7) == []
        store.purge(1, at=10.0)  # the energy stays
        (left,) = store.use(1, 1)
        assert (left.slot.number, left.slot.node, left.slot.use) == (1, "", SlotUse(at=5.0, seconds=40.0, power=90.0))

    def test_what_attempts_have_used_is_read_with_repeated_steps_and_energy(self, store: Store) -> None:
        first = placed(store)
        times = (rank_times(0, steps=10, forward=20.0), rank_times(1, steps=10, data=5.0))
        use = (slot_use(0, 1, power=90.0), slot_use(0, 0, power=1.0), slot_use(1, 1))
        store.keep_measured(first.id, Measurements(times=times, use=use), at=20.0)
        requeue(store, first)
        placed(store, "8-1", number=1)
        earlier, later = sorted(store.spending(None, 0.0, 100.0), key=lambda each: each.ended)
        assert (earlier.begun, earlier.ended, later.ended) == (2.0, 6.0, 100.0)
        assert (earlier.owner, earlier.group, earlier.pool, earlier.slots) == ("ada", "lab", "local", 2)
        assert (later.repeated, later.trained, later.joules, later.measured) == (0.0, None, None, 0.0)
        assert (earlier.repeated, earlier.trained, earlier.joules, earlier.measured) == (0.2, 25.0, 900.0, 10.0)
        assert not earlier.pruned
        assert store.spending("dave", 0.0, 100.0) == []
        assert store.spending("ada", 0.0, 2.0) == []

    def test_the_newest_artifact_of_a_name_is_known_and_each_is_said(self, store: Store) -> None:
        attempt = placed(store)
        assert store.overview(1).artifacts_seq == 0
        records = [started(), kept(2), kept(3, "a table"), kept(4, size=700)]
        assert store.accept(attempt.id, records, at=9.0) == store.accept(attempt.id, records, at=9.5) == 4
        assert [(each.name, each.size, each.at, each.file) for each in store.artifacts(1)] == [
            ("a table", 512, 8.0, "a table.png"),
            ("net", 700, 9.0, "net.png"),
        ]
        found = store.artifact(1, 1, "net")
        assert (found.trial, found.attempt, found.step, found.media) == (1, 1, 3, "image/png")
        messages = [each for each in store.messages(0) if each.type == "artifact"]
        assert [each.data["name"] for each in messages] == ["net", "a table", "net"]
        assert messages[-1].data == found.to_json()
        assert store.overview(1).artifacts_seq == messages[-1].seq
        for missing in ((1, 1, "other"), (1, 2, "net"), (2, 1, "net")):
            with pytest.raises(NotFound):
                store.artifact(*missing)
        assert store.artifacts(2) == []

    def test_an_artifact_that_the_spool_does_not_tell_is_known_once(self, store: Store) -> None:
        first = placed(store)
        for _ in range(2):
            store.keep_artifact(first.id, kept(0, size=700))
        assert [(each.name, each.size, each.attempt, each.at) for each in store.artifacts(1)] == [("net", 700, 1, 5.0)]
        (message,) = [each for each in store.messages(0) if each.type == "artifact"]
        assert message.data == store.artifact(1, 1, "net").to_json()
        assert store.attempt(first.id).accepted == 0
        requeue(store, first)
        second = placed(store, "8-1", number=1)
        store.keep_artifact(second.id, kept(1, size=900))
        store.keep_artifact(first.id, kept(2, size=700))
        assert [(each.size, each.attempt) for each in store.artifacts(1)] == [(900, 2)]
        with pytest.raises(NotFound):
            store.keep_artifact(AttemptId(9, 1, 1), kept(0))

    def test_an_artifact_of_a_later_attempt_stays(self, store: Store) -> None:
        first = placed(store)
        requeue(store, first)
        second = placed(store, "8-1", number=1)
        store.accept(second.id, [started(), kept(2, step=9)], at=6.0)
        late = [kept(1, step=8), kept(2, "early", step=8), kept(3, "undone", step=9)]
        assert store.accept(first.id, late, at=7.0) == 3
        assert [(each.name, each.attempt) for each in store.artifacts(1)] == [("early", 1), ("net", 2)]

    def test_the_service_has_a_word_for_the_person_too(self, store: Store) -> None:
        attempt = placed(store)
        store.note(attempt.id, "checkpoint 40-1 is not to be trusted", at=7.0)
        (note,) = notes(store, 1)
        assert note.data == {"text": "checkpoint 40-1 is not to be trusted", "level": "warning", "attempt": 1}
        assert store.overview(1).warnings == ("checkpoint 40-1 is not to be trusted",)
        with pytest.raises(NotFound):
            store.note(AttemptId(9, 1, 1), "nobody hears this", at=7.0)

    def test_writers_at_once_lose_nothing_and_readers_skip_nothing(self, store: Store) -> None:
        attempts = [placed(store) for _ in range(2)]
        writing = threading.Event()
        seen: list[list[int]] = [[], []]

        def write(attempt: Attempt) -> None:
            for first in range(1, 400, 20):
                store.accept(attempt.id, training(first, first + 19), at=4.0)
                update_trial(store, attempt.experiment, 1, at=4.0, failures=first)

        def read(mine: list[int]) -> None:
            last_round = False
            while not last_round:
                last_round = not writing.is_set()  # one more look after the writers are done
                while batch := store.messages(mine[-1] if mine else 0, limit=37):
                    mine += [message.seq for message in batch]

        writing.set()
        readers = [threading.Thread(target=read, args=(mine,)) for mine in seen]
        writers = [threading.Thread(target=write, args=(attempt,)) for attempt in attempts]
        for thread in readers + writers:
            thread.start()
        for thread in writers:
            thread.join()
        writing.clear()
        for thread in readers:
            thread.join()
        everything = [message.seq for message in all_messages(store, 10_000)]
        assert len(everything) == 8 + 2 * (400 + 20)
        assert seen == [everything, everything]
        for attempt in attempts:
            assert [one.step for one in store.reports(attempt.experiment, 1)] == list(range(1, 401))

    def test_changes_are_the_records_among_the_messages(self, store: Store) -> None:
        attempt = placed(store)
        store.accept(attempt.id, [started(), report(2, 5)], at=4.0)
        store.note(attempt.id, "mind the gap", at=5.0)
        store.advance_attempt(attempt.id, events.Ended(), at=6.0)
        records = [each for each in all_messages(store, 100) if each.type in ("experiment", "trial", "attempt")]
        assert store.changes(0) == records
        assert [each for one in records for each in store.changes(one.seq - 1, limit=1)] == records
        assert store.changes(records[-1].seq) == []

    def test_spells_are_what_is_held_and_was_held_lately(self, store: Store) -> None:
        first, second, third = placed(store), placed(store), placed(store)
        store.advance_attempt(first.id, events.Ended(), at=10.0, outcome=Outcome.OK)
        store.advance_attempt(second.id, events.Ended(), at=20.0, outcome=Outcome.LOST)
        assert store.usage_intervals(0.0) == [
            UsageInterval(first.id, "ada", "lab", 2, 2.0, 10.0, Outcome.OK),
            UsageInterval(second.id, "ada", "lab", 2, 2.0, 20.0, Outcome.LOST),
            UsageInterval(third.id, "ada", "lab", 2, 2.0, None, None),
        ]
        assert [each.attempt for each in store.usage_intervals(10.0)] == [second.id, third.id]
        assert [each.attempt for each in store.usage_intervals(99.0)] == [third.id]

    def test_claims_are_kept_until_they_are_gone(self, store: Store) -> None:
        head = ReservationRecord(experiment=1, trial=1, head_since=2.5)
        kept = ReservationRecord(experiment=7, trial=0, nth=2, kind="cuda", node="n1", kept_since=3.0, kept_priority=-2)
        ran = ReservationRecord(experiment=2, trial=4, passed=True, committed=9.0, leaving=10.0)
        store.save_reservations([head, kept, ran])
        assert sorted(store.reservations(), key=lambda claim: claim.key) == [head, ran, kept]
        later = kept.model_copy(update={"kept_since": 4.0, "node": None})
        store.save_reservations([later], gone=[head, ReservationRecord(experiment=99, trial=1)])
        assert sorted(store.reservations(), key=lambda claim: claim.key) == [ran, later]
        store.save_reservations([], gone=[ran, later])
        assert store.reservations() == []

    def test_the_scheduler_reads_what_the_whole_records_say(self, store: Store) -> None:
        searching, plain = search(store), store.add_experiment(draft(begins_from="1.1/9-1"), at=1.0)[0].number
        store.record(searching, [created(1), created(2)], [Added(1, {}), Added(2, {})], at=2.0)
        store.advance_trial(searching, 2, events.Held(), at=3.0, holds={Hold.SEARCH})
        store.record(plain, (), [Moved(1, None, {"excluded": frozenset({"n1", "n2"}), "failures": 2})], at=4.0)
        found = store.scheduled()
        whole = ScheduledExperiment.model_validate(parts(store.experiment(plain), ScheduledExperiment))
        assert found.experiments == [store.experiment(searching), whole]
        trials = [store.trial(searching, 1), store.trial(plain, 1)]
        assert found.trials == [ScheduledTrial.model_validate(parts(each, ScheduledTrial)) for each in trials]
        assert found.unreadable == {}

    def test_garbage_for_text_is_kept_as_it_is_or_refused(self, store: Store, garbage: int) -> None:
        chance = random.Random(0)
        alphabet = "'\";--%_\\\0\n\r\t\x1b<>&{}$\u202e\u0301é漢😀 aA0#" + chr(0x10FFFF) + "\x7f\ufeff"
        kept: dict[int, tuple[str, ...]] = {}
        for _ in range(0, garbage, 4):
            name, owner, cwd, notebook = ("".join(chance.choices(alphabet, k=chance.randrange(60))) for _ in range(4))
            try:
                made, _ = store.add_experiment(draft(name, owner, cwd=cwd, notebook=notebook), at=1.0)
            except InvalidRequest:
                assert "\0" in name + owner + cwd + notebook
            else:
                kept[made.number] = name.strip(), owner, cwd, notebook
        everything = store.experiments(limit=garbage)
        assert {x.number: (x.name, x.owner, x.cwd, x.notebook) for x in everything} == kept
        for number, (name, owner, *_) in list(kept.items())[::100]:
            assert number in [x.number for x in store.experiments(owner, search=name, limit=garbage)]
