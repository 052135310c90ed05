"""Test calls in confined processes: results, errors, and calls that exceed the limits."""

from __future__ import annotations

import asyncio
import operator
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernel_backend.confined import SMALL, Confined
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition, InvalidRequest


def run(work: Callable[[Confined], Coroutine[Any, Any, Any]], **limits: Any) -> Any:
    """Return the result of `work` with a fresh set of processes."""

    async def whole() -> Any:
        confined = Confined(**limits)
        try:
            return await work(confined)
        finally:
            confined.close()

    return asyncio.run(whole())


def test_a_call_answers_and_raises_as_it_would_here() -> None:
    async def work(confined: Confined) -> None:
        assert await confined.call("dave", operator.add, 1, 2) == 3
        with pytest.raises(InvalidDefinition, match=r"^line 2: ") as raised:
            await confined.call("dave", parse, "x = 1\ny = = 2\n")
        assert raised.value.details["line"] == 2
        assert raised.value.http_status == 400

    run(work)


def test_one_process_answers_call_after_call() -> None:
    async def work(confined: Confined) -> set[int]:
        return {await confined.call("dave", os.getpid) for _ in range(5)}

    assert len(run(work)) <= 2
    assert os.getpid() not in run(work)


def test_a_small_source_is_read_without_a_process_and_refused_alike() -> None:
    async def work(confined: Confined) -> None:
        assert await confined.call("dave", os.getpid, size=SMALL) == os.getpid()
        assert await confined.call("dave", os.getpid, size=SMALL + 1) != os.getpid()
        with pytest.raises(InvalidDefinition, match=r"^line 2: "):
            await confined.call("dave", parse, "x = 1\ny = = 2\n", size=14)
        with pytest.raises(InvalidRequest, match=r"nested too deeply"):
            await confined.call("dave", nested, 10**6, size=SMALL)

    run(work)


def nested(depth: int) -> int:
    return 1 + nested(depth - 1) if depth else 0


def test_what_computes_for_too_long_is_ended_and_the_next_call_answered() -> None:
    async def work(confined: Confined) -> None:
        for _ in range(3):
            with pytest.raises(InvalidRequest, match=r"takes more than 0.5 s or .* to be read"):
                await confined.call("dave", sum, range(10**15))
        assert await confined.call("dave", operator.add, 1, 2) == 3

    run(work, cpu_s=0.5)


def test_what_waits_for_too_long_is_ended() -> None:
    async def work(confined: Confined) -> None:
        with pytest.raises(InvalidRequest, match="to be read"):
            await confined.call("dave", time.sleep, 1000)

    run(work, wall_s=0.5)


def test_what_takes_too_much_memory_is_refused() -> None:
    async def work(confined: Confined) -> None:
        with pytest.raises(InvalidRequest, match="too large, to be read"):
            await confined.call("dave", bytes, 2**31)
        assert await confined.call("dave", operator.add, 1, 2) == 3

    run(work)


def test_a_process_that_has_become_large_makes_room_for_another() -> None:
    async def work(confined: Confined) -> None:
        before = await confined.call(
            "dave", eval, "globals().update(kept=b'1' * 300 * 2**20) or __import__('os').getpid()"
        )
        after = [await confined.call("dave", os.getpid) for _ in range(4)]
        assert before not in after

    run(work)


def test_a_process_that_dies_is_replaced() -> None:
    async def work(confined: Confined) -> None:
        with pytest.raises(InvalidRequest):
            await confined.call("dave", os._exit, 3)
        assert await confined.call("dave", operator.add, 1, 2) == 3

    run(work)


def test_one_user_keeps_no_other_waiting(tmp_path: Path) -> None:
    wait = f"while not __import__('os').path.exists({str(tmp_path / 'answered')!r}): __import__('time').sleep(0.01)"

    async def work(confined: Confined) -> None:
        slow = [asyncio.create_task(confined.call("dave", exec, wait)) for _ in range(5)]
        assert await confined.call("eve", operator.add, 1, 2) == 3
        assert not any(each.done() for each in slow)
        (tmp_path / "answered").touch()
        await asyncio.gather(*slow)

    run(work)


def test_they_end_with_whoever_has_them() -> None:
    async def work(confined: Confined) -> int:
        found: int = await confined.call("dave", os.getpid)
        return found

    assert not psutil.pid_exists(run(work))


def test_a_first_call_that_goes_on_ends_with_them(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    say = f"import os, time; open({str(begun)!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(1000)"

    async def work(confined: Confined) -> int:
        call = asyncio.create_task(confined.call("dave", exec, say))
        while not (begun.exists() and begun.read_text().endswith(" ")):
            await asyncio.sleep(0.01)
        confined.close()
        with pytest.raises(InvalidRequest):
            await asyncio.wait_for(call, 30)
        return int(begun.read_text())

    assert not psutil.pid_exists(run(work))


def test_what_an_administrator_limits_keeps_nobody_from_being_answered() -> None:
    """With `ulimit -t` and `ulimit -v` of a login node, the hard limits cannot be raised."""
    program = """
import asyncio, operator, resource
from kernel_backend.confined import Confined
resource.setrlimit(resource.RLIMIT_CPU, (3600, 3600))
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
async def main():
    confined = Confined()
    try:
        print(await confined.call("dave", operator.add, 1, 2))
    finally:
        confined.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr
