"""Test the store in PostgreSQL by the contract, with a server in a temporary folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from outbox_contract import OutboxContract
from register_contract import RegisterContract
from sharing_contract import SharingContract
from sqlalchemy import create_engine, event
from store_contract import StoreContract, check_a_later_migration, draft, placed, training

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.trial import Attempt
from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.postgresql import DatabaseInUse
from kernel_backend.store.sql import SqlStore
from kernel_backend.store.tables import metadata
from tests.support.postgres import PostgresServer, database_name, postgres, postgres_server
from tests.support.world import until

__all__ = ["postgres"]  # a fixture of the tests below
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """Provide the URL of a new database."""
    return postgres.create()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


class TestPostgresStore(OutboxContract, RegisterContract, SharingContract, StoreContract):
    @pytest.fixture
    def store(self, postgres: PostgresServer) -> Iterator[SqlStore]:
        store = SqlStore(postgres.create_migrated(), alone=True)
        yield store
        store.close()

    @pytest.fixture
    def garbage(self) -> int:
        return 2000


def test_the_migrated_schema_is_the_one_in_tables(url: str) -> None:
    SqlStore(url).close()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as db:
        context = MigrationContext.configure(db, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_later_migration_keeps_the_rows(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_a_later_migration(url, tmp_path, monkeypatch)


def test_stores_that_open_a_new_database_at_once_share_it(url: str) -> None:
    together = threading.Barrier(4)

    def open_and_add() -> None:
        together.wait()
        store = SqlStore(url)
        for _ in range(10):
            store.add_experiment(draft(), at=1.0)
        store.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(open_and_add) for _ in range(4)]:
            done.result()
    store = SqlStore(url)
    assert sorted(x.number for x in store.experiments(limit=100)) == list(range(1, 41))
    assert [message.seq for message in store.messages(0)] == list(range(1, 81))
    store.close()


def drop_connections(postgres: PostgresServer, url: str) -> None:
    """End all sessions of a database, and wait until they are gone."""
    name = database_name(url)
    postgres.execute(name, f"SELECT pg_terminate_backend(pid) {OTHERS}")
    until(lambda: postgres.execute(name, f"SELECT count(*) {OTHERS}") == [(0,)], "the connections are gone")


@pytest.mark.parametrize("alone", [False, True])
def test_a_server_that_drops_its_connections_is_found_again(postgres: PostgresServer, url: str, alone: bool) -> None:
    store = SqlStore(url, alone=alone)
    attempt = placed(store)
    store.accept(attempt.id, training(1, 10), at=4.0)
    drop_connections(postgres, url)
    assert store.accept(attempt.id, training(11, 20), at=4.0) == 20
    assert [one.step for one in store.reports(1, 1)] == list(range(1, 21))
    store.close()


def test_a_killed_server_is_waited_for_by_calls_of_all_kinds(own_server: PostgresServer) -> None:
    store = SqlStore(own_server.create(), alone=True)
    attempt = placed(store)
    own_server.kill()
    with ThreadPoolExecutor(2) as pool:
        written = pool.submit(store.accept, attempt.id, training(1, 10), at=4.0)
        read = pool.submit(store.experiment, 1)
        until(lambda: store._database._lost is not None, "a call has met the loss")
        own_server.start()
        assert (written.result(), read.result().number) == (10, 1)
    assert len(store.reports(1, 1)) == 10
    store.close()


def test_a_server_that_stays_away_is_told_and_what_comes_later_does_not_wait(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_backend.store.database.OUTAGE_S", 0.5)
    store = SqlStore(own_server.create(), alone=True)
    attempt = placed(store)
    own_server.kill()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"is not available: .* Nothing of this was stored"):
            store.accept(attempt.id, training(1, 10), at=4.0)
    own_server.start()
    assert store.accept(attempt.id, training(1, 10), at=4.0) == 10
    store.close()


@pytest.mark.parametrize("reached", [True, False], ids=["committed", "lost before"])
def test_a_commit_that_nobody_answers_is_looked_up(postgres: PostgresServer, url: str, reached: bool) -> None:
    store = SqlStore(url, alone=True)
    attempt = placed(store)
    cut = iter([True])

    def lose_the_answer(db: object) -> None:
        raw = db.connection.driver_connection  # type: ignore[attr-defined]
        if next(cut, False):
            if reached:
                raw.commit()
            raw.close()

    event.listen(store._database._lazy_writer, "commit", lose_the_answer)
    if reached:
        assert store.accept(attempt.id, training(1, 10), at=4.0) == 10
    else:
        with pytest.raises(StoreUnavailable, match="Nothing of this was stored"):
            store.accept(attempt.id, training(1, 10), at=4.0)
    assert next(cut, None) is None
    assert len(store.reports(1, 1)) == (10 if reached else 0)
    assert store.accept(attempt.id, training(1, 20), at=4.0) == 20
    assert [one.step for one in store.reports(1, 1)] == list(range(1, 21))
    store.close()


def test_a_second_service_is_kept_out_and_told_who_is_in(url: str) -> None:
    first = SqlStore(url, alone=True)
    with pytest.raises(
        DatabaseInUse, match=r"in use by another service \(daylight \S+ \d+, since 20\d\d-.*End that one"
    ):
        SqlStore(url, alone=True)
    first.add_experiment(draft(), at=1.0)
    first.close()
    second = SqlStore(url, alone=True)
    assert second.add_experiment(draft(), at=1.0)[0].number == 2
    second.close()


def test_a_service_that_lost_the_database_to_another_writes_nothing_more(
    postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_backend.store.database.OUTAGE_S", 0.2)
    first = SqlStore(url, alone=True)
    attempt: Attempt = placed(first)
    drop_connections(postgres, url)
    second = SqlStore(url, alone=True)
    with pytest.raises(DatabaseInUse):
        first.accept(attempt.id, training(1, 10), at=4.0)
    assert first.reports(1, 1) == []
    second.close()
    assert first.accept(attempt.id, training(1, 10), at=4.0) == 10
    first.close()


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"//ada:\*\*\*@/db.* is not available"):
        SqlStore(f"postgresql://ada:secret@/db?host={tmp_path}")


def test_a_user_who_may_create_no_tables_is_told_how_to_allow_it(postgres: PostgresServer, url: str) -> None:
    postgres.execute("postgres", "CREATE ROLE bob LOGIN")
    postgres.execute(database_name(url), "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(
        StoreUnavailable, match=r"permission denied for schema public\. .*ALTER DATABASE \S+ OWNER TO bob"
    ):
        SqlStore(postgres.url(database_name(url), "bob"))


def test_a_database_that_cannot_store_unicode_is_refused(postgres: PostgresServer) -> None:
    with pytest.raises(InvalidRequest, match=r"stores text as LATIN1, .*ENCODING 'UTF8'"):
        SqlStore(postgres.create("ENCODING 'LATIN1' TEMPLATE template0"))


def test_a_parameter_that_libpq_does_not_know_is_named(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be opened: .*colour"):
        SqlStore(f"{url}&colour=blue")
