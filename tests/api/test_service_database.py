"""Test how a service process chooses its database, waits for it, holds it alone, and never uses another by mistake."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend import discovery
from kernel_backend.backup import back_up, restore
from kernel_backend.cli import main
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore
from tests.support.forked_service import ForkedService
from tests.support.postgres import PostgresServer, postgres, postgres_server
from tests.support.world import PATIENCE_S, until

__all__ = ["postgres"]  # a fixture of the tests below
SHORT = "--Daylight.db_wait=0.5"
IDLE = "--idle-timeout=0.5"
DRAFT = NewExperiment(
    owner="ada", group="lab", snapshot="0" * 64, config=Config(), params={"lr": 0.1}, python="python", cwd="/"
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    yield home
    discovery.end(home)


def run(home: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    return ForkedService(home, *arguments, **variables).ended()


def add(at: str | Path) -> None:
    store = SqlStore(at)
    store.add_experiment(DRAFT, at=1.0)
    store.close()


def numbers(at: str | Path) -> list[int]:
    store = SqlStore(at)
    try:
        return [each.number for each in store.experiments()]
    finally:
        store.close()


def test_the_setting_chooses_it_and_the_home_remembers_it_without_its_password(
    home: Path, postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.create()
    settings = tmp_path / "settings.py"
    settings.write_text(f"c.Daylight.db_url = {url.replace('daylight@', 'daylight:pa55word@')!r}\n")
    code, told = run(home, f"--config={settings}", IDLE)
    assert (code, "pa55word" in told, (home / "daylight.db").exists()) == (0, False, False)
    assert (home / "database-url").read_text() == f"{url}\n"
    assert (home / "database-url").stat().st_mode & 0o777 == 0o600
    add(url)
    assert run(home, IDLE)[0] == 0  # finds it in the home
    with pytest.raises(InvalidRequest, match=r"the database of \S+ is postgresql://.*: back it up with pg_dump"):
        back_up(home, tmp_path / "backup.db")
    (tmp_path / "older.db").touch()
    with pytest.raises(InvalidRequest, match=r"is postgresql://.*: restore it with pg_restore"):
        restore(home, tmp_path / "older.db")
    assert run(home, f"--db-url=sqlite:///{home}/daylight.db", IDLE)[0] == 0
    assert (home / "daylight.db").exists()
    assert not (home / "database-url").exists()


def test_a_password_on_the_command_line_is_warned_of_and_not_repeated(home: Path, postgres: PostgresServer) -> None:
    url = postgres.create().replace("daylight@", "daylight:pa55word@")
    code, told = run(home, f"--db-url={url}", IDLE)
    assert code == 0
    assert "other users of this machine can read the password in --db-url" in told
    assert "pa55word" not in told


def test_an_empty_database_is_not_taken_while_the_home_has_experiments_in_its_file(
    home: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url, file = postgres.create(), home / "daylight.db"
    for _ in range(3):
        add(file)
    code, told = run(home, f"--db-url={url}", IDLE)
    assert code == 1
    assert f"holds no experiment, and {file} up to #3: copy them first (daylight db copy {file} '{url}')" in told
    assert main(["db", "copy", str(file), url]) == 0
    assert "counts and digests are equal" in capsys.readouterr().out
    assert run(home, f"--db-url={url}", IDLE)[0] == 0
    assert numbers(url) == [3, 2, 1]


def test_a_server_that_is_down_is_waited_for(home: Path) -> None:
    with postgres_server() as server:
        url = server.create()
        server.kill()
        process = ForkedService(home, f"--db-url={url}")
        told = process.output.readline()
        assert re.search(r"Connection refused: waiting up to (59|60) s for it", told)
        server.start()
        until(lambda: discovery.find(home), "it serves")
        process.terminate()
        process.ended()
        server.kill()
        code, told = run(home, f"--db-url={url}", SHORT)
        assert code == 1
        assert "Traceback" not in told
        assert "no service without its database" in told.splitlines()[-1]
        assert "is the server up, and does this open it: psql" in told.splitlines()[-1]
        server.start()


def test_a_database_that_does_not_exist_is_told_at_once(home: Path, postgres: PostgresServer) -> None:
    code, told = run(home, DAYLIGHT_DB_URL=postgres.url("nowhere"))  # would wait for a minute
    assert code == 1
    assert 'database "nowhere" does not exist' in told
    assert "named by DAYLIGHT_DB_URL" in told


def test_a_second_service_is_kept_out_of_a_database(home: Path, postgres: PostgresServer, tmp_path: Path) -> None:
    url, other = postgres.create(), tmp_path / "other"
    process = ForkedService(home, f"--db-url={url}")
    until(lambda: discovery.find(home), "it serves")
    code, told = run(other, f"--db-url={url}", SHORT)
    assert code == 1
    assert f"is in use by another service (daylight {os.uname().nodename[:40]} {process.pid}, since " in told
    process.terminate()
    process.ended()
    assert run(other, f"--db-url={url}", IDLE)[0] == 0


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://ada:pa55word@host/db", "'mysql://***@host/db' is no database for a store"),
        ("postgresql://ada:pa55word@host:x/db", "is no database for a store"),
        ("postgresql://ada:pa55@word@host/db", "write %40 for each @"),
        ("sqlite:////elsewhere/daylight.db", "is not the SQLite file of this home"),
        ("nonsense", "'nonsense' is no database for a store"),
    ],
)
def test_a_url_that_cannot_be_is_told_without_its_password(home: Path, url: str, told: str) -> None:
    code, said = run(home, f"--db-url={url}")
    assert code == 1
    assert told in said
    assert said.splitlines()[-1].startswith("daylight: db_url: ")
    assert "pa55" not in said
    assert "Traceback" not in said


def test_a_missing_driver_is_told_with_what_to_install(home: Path, tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError(\"No module named 'psycopg'\")\n")
    done = subprocess.run(
        [sys.executable, "-m", "kernel_backend", "--db-url=postgresql:///db"],
        env={**os.environ, "DAYLIGHT_HOME": str(home), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "pip install 'daylight[postgresql]'" in done.stderr
