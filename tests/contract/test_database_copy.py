"""Test that a database is copied completely between SQLite and PostgreSQL, or not at all."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from outbox_contract import hook
from register_contract import register, version
from sqlalchemy import URL
from store_contract import draft, placed, rank_times, search, slot_use, started, training

from kernel_backend import discovery
from kernel_backend.cli import main
from kernel_backend.errors import Conflict, DaylightError, InvalidRequest, NotFound
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.cluster.usage import ReservationRecord
from kernel_backend.model.node_faults import NodeFault
from kernel_backend.model.reports import ArtifactSaved, Fact, Measurements, Note, Report
from kernel_backend.model.search.records import Create, LogEntry, Vacancy
from kernel_backend.store.copy import CopyFailed, TableContents, copy_database
from kernel_backend.store.postgresql import DatabaseInUse
from kernel_backend.store.sql import SqlStore
from kernel_backend.store.url import database_url
from tests.support.postgres import PostgresServer, postgres

__all__ = ["postgres"]  # a fixture of the tests below
New = Callable[[], URL]
DEED = AuditEntry(at=1.0, who="ada", act="set", on="dave", detail="limit none -> 4: “größer”")
FAULT = NodeFault(pool="gpu", node="n1", kind="clock", attempt="1.1-1", at=2.5, reason="its clock is 5 min off")
EVERY_TABLE = 22


@pytest.fixture
def sqlite(tmp_path: Path) -> New:
    numbers = itertools.count(1)
    return lambda: database_url(tmp_path / f"{next(numbers)}.db")


@pytest.fixture(params=["to PostgreSQL", "to SQLite"])
def ends(request: pytest.FixtureRequest, postgres: PostgresServer, sqlite: New) -> tuple[URL, URL]:
    server = database_url(postgres.create())
    return (sqlite(), server) if request.param == "to PostgreSQL" else (server, sqlite())


def text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def fill(url: URL) -> None:
    """Fill a store with rows in every table, including values that databases treat differently."""
    store = SqlStore(text(url))
    attempt = placed(store)
    values = {"loss": float("nan"), "worst": float("inf"), "tiny": 5e-324, "none": 0.0, "third": 1 / 3}
    store.accept(attempt.id, [started()], at=3.0)
    store.accept(
        attempt.id,
        [
            *training(2, 20),
            Report(number=21, at=1e9 / 3, kind="validation", step=2**40, epoch=0.1, metrics=values),
            Note(number=22, at=4.0, level="warning", text="ein “Zeichen” \U0001f600\n\t'\"\\"),
            Fact(number=23, at=4.0, name="observed", value={"digest": "0" * 64, "rows": [1, None, True]}),
            ArtifactSaved(
                number=24, at=4.0, name="table", step=3, size=2**40, digest="0" * 64, media="text/plain", file="a"
            ),
        ],
        at=4.0,
    )
    store.add_webhook(hook(draft().owner, failing_since=1 / 3), 20, None)
    register(store, version(metrics={"accuracy": 1 / 3}, note="größer"))
    number = search(store)
    store.record(
        number, [LogEntry(number=1, at=5.0, event=Vacancy(), decision=Create(trial=1, params={}, until=1))], at=5.0
    )
    store.keep_search_history(number, bytes(range(256)))
    store.save_reservations([ReservationRecord(experiment=number, trial=0, nth=1, passed=True, head_since=1.5)])
    store.set_quota("user", "dave", {"limit": 4}, DEED)
    store.set_drained("gpu7", True, DEED)
    store.set_pool("gpu", PoolSettings(engine="slurm"), DEED)
    store.add_node_fault(FAULT, forget=0.0)
    measured = Measurements(times=(rank_times(1, steps=3, data=1 / 3),), use=(slot_use(0, 1, gpu=1 / 3),))
    store.keep_measured(attempt.id, measured, at=5.0)
    store.close()


def state(url: URL) -> list[object]:
    """Return everything that a store's methods return about its content."""
    store = SqlStore(text(url))
    try:
        return [
            repr(each)  # NaN equals nothing
            for each in (
                *store.overviews(),
                *store.messages(0),
                *store.reports(1, 1),
                *store.facts(1, 1),
                *store.search_log(2),
                store.search_history(2),
                *store.reservations(),
                *store.quotas().items(),
                *store.drained(),
                *store.pools(),
                *store.node_faults(0.0),
                *store.times(1, 1),
                *store.use(1, 1),
                *store.webhooks(),
                store.next_notice(1),
                *store.audit(),
                store.token_digest(store.attempts(1, 1)[0].id),
                store.trial_uid(1, 1),
                store.last_seq(),
            )
        ]
    finally:
        store.close()


def quiet(_: str) -> None:
    pass


def test_everything_arrives_and_what_follows_is_numbered_as_in_the_source(ends: tuple[URL, URL], sqlite: New) -> None:
    source, target = ends
    fill(source)
    copied = copy_database(source, target, quiet)
    assert len(copied) == EVERY_TABLE
    assert all(each.rows for each in copied.values())
    assert state(target) == state(source)
    assert copy_database(target, sqlite(), quiet) == copied
    for url in ends:
        store = SqlStore(text(url))
        store.add_experiment(draft(), at=9.0)
        store.write_down(DEED)
        store.close()
    assert state(target) == state(source)


def test_a_target_that_holds_anything_is_left_as_it_is(ends: tuple[URL, URL]) -> None:
    source, target = ends
    fill(source)
    store = SqlStore(text(target))
    store.write_down(DEED)
    store.close()
    with pytest.raises(Conflict, match=r"holds audit \(1\): nothing was copied"):
        copy_database(source, target, quiet)
    store = SqlStore(text(target))
    assert (len(store.audit()), store.experiments(), store.last_seq()) == (1, [], 0)
    store.close()


def test_a_value_that_the_target_cannot_store_leaves_it_empty(postgres: PostgresServer, sqlite: New) -> None:
    source, target = sqlite(), database_url(postgres.create())
    fill(source)
    with sqlite3.connect(str(source.database)) as db:
        db.execute("UPDATE attempts SET backend_reason = 'a' || char(0) || 'b'")
    with pytest.raises(
        InvalidRequest, match=r"table attempts: a value cannot be stored there: .*NUL.* Nothing was copied"
    ):
        copy_database(source, target, quiet)
    with sqlite3.connect(str(source.database)) as db:
        db.execute("UPDATE attempts SET backend_reason = 'ab', accepted = 'many'")
    with pytest.raises(InvalidRequest, match="table attempts holds 'many' in a column of type int"):
        copy_database(source, target, quiet)
    with sqlite3.connect(str(source.database)) as db:
        db.execute("UPDATE attempts SET accepted = 24")
    copy_database(source, target, quiet)
    assert state(target) == state(source)


def test_rows_that_arrive_otherwise_are_noticed_and_not_kept(
    ends: tuple[URL, URL], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = ends
    fill(source)
    plus, seen = TableContents.plus, itertools.count()
    with monkeypatch.context() as patch:
        # As if the target had rounded a number.
        patch.setattr(TableContents, "plus", lambda self, row: plus(self, (*row, next(seen))))
        with pytest.raises(CopyFailed, match=r"table \w+: \d+ rows were read and \d+ arrived, or not as they were"):
            copy_database(source, target, quiet)
    copy_database(source, target, quiet)
    assert state(target) == state(source)


def test_a_source_must_be_a_database_of_this_version(postgres: PostgresServer, sqlite: New, tmp_path: Path) -> None:
    source, target = sqlite(), database_url(postgres.create())
    with pytest.raises(NotFound, match=r"there is no file .*\.db"):
        copy_database(source, target, quiet)
    sqlite3.connect(str(source.database)).close()
    with pytest.raises(InvalidRequest, match="holds no database of Daylight"):
        copy_database(source, target, quiet)
    fill(source)
    with pytest.raises(InvalidRequest, match="cannot be copied to itself"):
        copy_database(source, source, quiet)
    with sqlite3.connect(str(source.database)) as db:
        db.execute("UPDATE alembic_version SET version_num = '0012'")
    with pytest.raises(InvalidRequest, match=r"has schema 0012 of a development version"):
        copy_database(source, target, quiet)
    (tmp_path / "poem.db").write_text("this is no database\n" * 100)
    with pytest.raises(DaylightError, match="file is not a database"):
        copy_database(database_url(tmp_path / "poem.db"), target, quiet)


def test_a_server_database_in_use_is_copied_only_on_request(
    postgres: PostgresServer, sqlite: New, capsys: pytest.CaptureFixture[str]
) -> None:
    url, other = postgres.create(), sqlite()
    service = SqlStore(url, alone=True)
    service.add_experiment(draft(), at=1.0)
    with pytest.raises(DatabaseInUse):
        copy_database(database_url(url), other, quiet)
    assert main(["db", "copy", url, str(other.database), "--running"]) == 0
    with pytest.raises(DatabaseInUse):
        copy_database(other, database_url(url), quiet)
    service.add_experiment(draft(), at=1.0)
    service.close()
    copy = SqlStore(text(other))
    assert [each.number for each in copy.experiments()] == [1]
    copy.close()
    assert "counts and digests are equal" in capsys.readouterr().out


def test_a_home_whose_service_runs_is_neither_source_nor_target(
    tmp_path: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    file, url = tmp_path / "daylight.db", postgres.create()
    fill(database_url(file))
    with discovery.lock(tmp_path):
        assert main(["db", "copy", str(file), url]) == 2
        assert main(["db", "copy", url, str(file)]) == 2
        assert capsys.readouterr().err.count(f"a service uses {file}: end it first") == 2
        assert main(["db", "copy", str(file), url, "--running"]) == 0
    assert main(["db", "move", str(file), url]) == 2
    assert "write daylight db copy FROM TO" in capsys.readouterr().err
