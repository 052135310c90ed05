"""Contract of engines: tests of what `engines/base.py` specifies, with real processes as ranks."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kernel_backend.engines.base import Engine, GangStatus
from kernel_backend.errors import Conflict, NotFound
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.reports import SpoolPosition
from kernel_backend.model.states import Outcome
from tests.support.builders import share
from tests.support.patience import PATIENCE_S, starvation


async def until(condition, what: str):
    """Wait until an awaitable condition is true, and return its value."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE_S * starvation():
        value = await condition()
        if value:
            return value
        await asyncio.sleep(0.05)
    raise AssertionError(f"did not happen in {PATIENCE_S:g} s: {what}")


async def status(engine: Engine, key: AttemptId) -> GangStatus | None:
    return next((found for found in await engine.statuses() if found.key == key), None)


async def ended(engine: Engine, key: AttemptId) -> GangStatus:
    async def look():
        found = await status(engine, key)
        return found if found and found.phase == "ended" else None

    return await until(look, f"gang {key} ends")


async def begun(engine: Engine, key: AttemptId, ranks: int = 2) -> None:
    async def look():
        return all([b"begins" in (await log(engine, key, rank)) for rank in range(ranks)])

    await until(look, f"all ranks of {key} begin")


async def log(engine: Engine, key: AttemptId, rank: int) -> bytes:
    try:
        return (await engine.logs(key, rank, 0)).text.encode()
    except NotFound:
        return b""


def processes(home: Path, module: str = "") -> list[psutil.Process]:
    """Return the running processes of this home whose command line contains `module`."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("DAYLIGHT_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE
            if mine and module in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def interpreter(folder: Path) -> str:
    """Return an interpreter that runs the fake rank in place of the runner."""
    script = folder / "python"
    standin = Path(__file__).with_name("standin_rank.py")
    root = Path(__file__).parents[2]
    script.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{root}" DAYLIGHT_WARM=0\n'  # a forkserver has the real runner
        f'if [ "$3" = kernel_backend.runner ]; then exec {sys.executable} {standin} "$4"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def specifications(folder: Path, home: Path, python: str) -> Callable[..., LaunchSpec]:
    """Return a function `make(number, **params)` that returns the launch spec of two ranks on one node."""

    def make(number: int = 1, **params) -> LaunchSpec:
        return LaunchSpec(
            experiment=1,
            trial=1,
            attempt=number,
            config=Config(slots=2, threads=1),
            params=params,
            placement=(share(),),
            python=python,
            cwd=str(folder),
            code=str(folder / "code"),
            snapshot="0" * 64,
            checkpoints=str(folder / "checkpoints"),
            home=str(home),
        )

    return make


class EngineContract:
    """Tests to be inherited with `engine` and `again`, an engine of the same home as after a restart."""

    pool = "local"  # of its jobs
    keep_allocation = 0.0  # of its jobs

    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        return tmp_path / "home"

    @pytest.fixture
    def job(self, tmp_path: Path, home: Path) -> Callable[..., LaunchSpec]:
        make = specifications(tmp_path, home, interpreter(tmp_path))
        kept = {"pool": self.pool, "keep_allocation": self.keep_allocation}
        return lambda *number, **params: make(*number, **params).model_copy(update=kept)

    def test_a_gang_runs_to_its_end_with_the_right_world_and_is_known_by_its_token(self, engine, job, home):
        async def go():
            await engine.submit(job(), "secret")
            found = await ended(engine, job().id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.OK, (0, 0))
            assert found.token_digest == token_digest("secret")
            said = json.loads((await engine.logs(job().id, 1, 0)).text.splitlines()[0])
            assert said["WORLD_SIZE"] == "2"
            if "HOROVOD_RANK" in said:
                assert (said["HOROVOD_RANK"], said["HOROVOD_SIZE"]) == ("1", "2")
            page = await engine.records(job().id, 0, SpoolPosition())
            assert ([record.number for record in page.records], page.last) == ([1], True)
            assert {use.rank for left in page.measured for use in left.use} <= {0, 1}
            assert page.measured
            rest = await engine.records(job().id, 0, page.end)
            assert (rest.records, rest.measured) == ((), ())
            assert (await engine.records(job().id, 1, SpoolPosition())).records == ()

        asyncio.run(go())

    def test_a_killed_rank_ends_the_gang_and_is_named(self, engine, job, home):
        async def go():
            await engine.submit(job(seconds=60), "secret")
            await begun(engine, job().id)
            victim = next(p for p in processes(home, "standin") if p.environ()["RANK"] == "1")
            victim.kill()
            found = await ended(engine, job().id)
            assert found.outcome is Outcome.FAILED
            assert (found.result.failure.rank, found.result.failure.type) == (1, "SIGKILL")
            assert processes(home, "standin") == []

        asyncio.run(go())

    def test_an_exit_code_is_a_failure_of_that_rank(self, engine, job, home):
        async def go():
            await engine.submit(job(exit=3, only_rank=1), "secret")
            found = await ended(engine, job().id)
            assert (found.outcome, found.result.failure.rank) == (Outcome.FAILED, 1)

        asyncio.run(go())

    def test_a_released_gang_leaves_by_itself(self, engine, job, home):
        async def go():
            await engine.submit(job(seconds=60), "secret")
            await begun(engine, job().id)
            await engine.release(job().id)
            found = await ended(engine, job().id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.RELEASED, (85, 85))

        asyncio.run(go())

    def test_the_same_key_twice_is_the_same_gang_which_is_gone_when_kill_returns(self, engine, again, job, home):
        async def go():
            await asyncio.gather(engine.submit(job(seconds=60), "s"), again.submit(job(seconds=60), "s"))
            await begun(engine, job().id)
            await engine.submit(job(seconds=60), "s")
            await asyncio.sleep(0.5)
            assert len(processes(home, "standin")) == 2
            await engine.kill(job().id)
            assert processes(home) == []
            assert (await ended(engine, job().id)).outcome is Outcome.LOST

        asyncio.run(go())

    def test_a_restarted_service_finds_its_gangs_again(self, engine, again, job, home):
        async def go():
            await engine.submit(job(seconds=60), "secret")
            await begun(engine, job().id)
            assert (await status(again, job().id)).phase == "running"
            await again.release(job().id)
            assert (await ended(again, job().id)).outcome is Outcome.RELEASED

        asyncio.run(go())

    def test_a_killed_launcher_takes_its_ranks_along_and_the_gang_is_lost(self, engine, job, home):
        async def go():
            await engine.submit(job(seconds=60), "secret")
            await begun(engine, job().id)
            launcher = AttemptFolder(attempt_folder(home, job().id)).launcher()
            psutil.Process(launcher.pid).kill()
            assert (await ended(engine, job().id)).outcome is Outcome.LOST
            assert processes(home) == []

        asyncio.run(go())

    def test_logs_and_their_tails_are_read_on_by_offset_and_a_tail_begins_with_a_line(self, engine, job, home):
        async def go():
            await engine.submit(job(), "secret")
            await ended(engine, job().id)
            whole = await engine.logs(job().id, 0, 0)
            assert "rank 0 begins" in whole.text
            assert whole.offset == whole.size
            assert (await engine.logs(job().id, 0, whole.offset)).text == ""
            assert (await engine.logs(job().id, 0, 10**9)).text == ""
            assert await engine.logs(job().id, 0) == whole
            *_, last = whole.text.splitlines(keepends=True)
            for tail in (*range(1, len(last.encode()) + 2), whole.size - 1, whole.size, whole.size + 1):
                piece = await engine.logs(job().id, 0, tail=tail)
                assert (piece.offset, piece.size) == (whole.size, whole.size)
                assert len(piece.text.encode()) <= tail
                assert whole.text.endswith(piece.text)  # no character of it is halved
                before = whole.text.removesuffix(piece.text)
                assert last.endswith(piece.text) or not before or before.endswith("\n")
            assert piece.text == whole.text
            assert (await engine.logs(job().id, 0, tail=len(last.encode()))).text == last
            with pytest.raises(NotFound):
                await engine.logs(AttemptId(9, 9, 9), 0, 0)
            with pytest.raises(NotFound):
                await engine.logs(AttemptId(9, 9, 9), 0, tail=100)

        asyncio.run(go())

    def test_what_is_another_attempts_is_set_aside_and_leaves_nothing_under_its_key(self, engine, job, home):
        async def go():
            await engine.submit(job(seconds=60), "of another database")
            await begun(engine, job().id)
            await engine.set_aside(job().id)
            assert processes(home) == []
            found = await status(engine, job().id)
            assert found is None or (found.phase, found.outcome) == ("ended", None)
            assert (await engine.records(job().id, 0, SpoolPosition())).records == ()
            await engine.forget(job().id)
            await engine.submit(job(), "secret")
            assert (await ended(engine, job().id)).outcome is Outcome.OK
            page = await engine.records(job().id, 0, SpoolPosition())
            assert [record.number for record in page.records] == [1]

        asyncio.run(go())

    def test_a_forgotten_gang_is_listed_no_more_and_keeps_its_logs_and_its_folder(self, engine, job, home):
        async def go():
            await engine.submit(job(), "of another database")
            await ended(engine, job().id)
            await engine.forget(job().id)
            assert await status(engine, job().id) is None
            assert (await engine.logs(job().id, 0, 0)).ended
            with pytest.raises(Conflict, match="was another attempt's"):
                await engine.submit(job(), "secret")
            assert (await engine.records(job().id, 0, SpoolPosition())).records == ()

        asyncio.run(go())

    def test_what_was_never_there_can_be_released_and_killed(self, engine):
        async def go():
            await engine.release(AttemptId(9, 9, 9))
            await engine.kill(AttemptId(9, 9, 9))
            page = await engine.records(AttemptId(9, 9, 9), 0, SpoolPosition())
            assert (page.records, page.last) == ((), True)

        asyncio.run(go())
