"""Test how hanging ranks are told from waiting ones by heartbeats and stacks, and the search of logs."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

import kernel_backend
from kernel_backend import time_limit
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.watch import stacks as reading
from kernel_backend.launch.watch.hangs import RankState, blamed, hang, overdue
from kernel_backend.launch.watch.logs import BEHIND, SHOWN, LogWatch
from kernel_backend.launch.watch.progress import AWAKE_S, Watch
from kernel_backend.launch.watch.stacks import main_stack, shortened, waits_for_peers
from kernel_backend.model.experiment import LOG_POLICIES, LogPolicy
from kernel_backend.model.frames import Sources
from kernel_backend.model.launch.progress import BEGINNING, PHASES, Tick, limit, stall_limit
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.runner.progress import Progress
from kernel_backend.tail import PIECE

RUNNER = "/env/lib/python3.11/site-packages/kernel_backend/runner"
TORCH = "/env/lib/python3.11/site-packages/torch"
USER = ("/home/ada/code/definition.py", 12, "loss")
LOOP = [(f"{RUNNER}/loop/loop.py", 99, "take_step"), (f"{RUNNER}/__main__.py", 60, "main")]
SLEEPS = [USER, *LOOP]
IN_HOROVOD = [
    ("/env/lib/python3.11/site-packages/horovod/torch/mpi_ops.py", 1260, "synchronize"),
    (f"{RUNNER}/ranks/backends.py", 190, "wait"),
    (f"{RUNNER}/gradients/reducer.py", 205, "finish"),
    *LOOP,
]
IN_TORCH = [(f"{RUNNER}/gradients/reducer.py", 205, "finish"), *LOOP]  # the work's own wait is native
IN_BARRIER = [(f"{TORCH}/distributed/distributed_c10d.py", 4000, "barrier"), USER, *LOOP]
IN_BACKWARD = [
    (f"{TORCH}/autograd/graph.py", 823, "_engine_run_backward"),
    (f"{TORCH}/_tensor.py", 581, "backward"),
    (f"{RUNNER}/gradients/reducer.py", 120, "_compute"),
    *LOOP,
]
IN_SHARDED_FORWARD = [USER, (f"{TORCH}/distributed/fsdp/api.py", 849, "forward"), *LOOP]


def test_the_stacks_below_name_files_that_there_are() -> None:
    calls = [call for stack in (LOOP, IN_HOROVOD, IN_TORCH, IN_BACKWARD) for call in stack]
    ours = {file for file, *_ in calls if file.startswith(RUNNER)}
    assert all((Path(kernel_backend.__file__).parent / "runner" / file[len(RUNNER) + 1 :]).exists() for file in ours)
    for known in (reading._RANKS, reading._SUMS):
        assert any(file.endswith(known) for file in ours)


def stacks(main: list[tuple[str, int, str]]) -> str:
    """Return the stack dump of a rank with these calls in the main thread, and a second thread."""

    def lines(calls: list[tuple[str, int, str]]) -> str:
        return "\n".join(f'  File "{file}", line {line} in {function}' for file, line, function in calls)

    other = lines([("/usr/lib/python3.11/threading.py", 320, "wait"), (f"{RUNNER}/ipc.py", 40, "_read")])
    return (
        f"main thread 0x7f00\nThread 0x00000000007e00 (most recent call first):\n{other}\n\n"
        f"Current thread 0x00000000007f00 (most recent call first):\n{lines(main)}\n"
    )


def standing(main: list[tuple[str, int, str]] | None, step: int = 6, idle: float = 20.0, phase="step") -> RankState:
    return RankState(Tick(step, phase, step), idle, stacks(main) if main else "")


def sources() -> Sources:
    environment = Environment(python="3", implementation="CPython", platform="linux", cpu="", cores=1, distributions={})
    piece = Piece(cell=4, line=1, count=30, cell_line=2)
    snapshot = Snapshot(version="test", numerics=1, pieces=(piece,), roles_from=1, environment=environment)
    return Sources(Path("/home/ada/code"), Path("/home/ada"), snapshot)


def described(*standings: RankState):
    return hang(dict(enumerate(standings)), sources(), lambda file, line: f"    line {line}\n", 9.0)


def test_the_main_threads_newest_stack_is_read_innermost_first():
    twice = stacks(IN_HOROVOD) + stacks(SLEEPS).removeprefix("main thread 0x7f00\n")
    assert [tuple(call)[:3] for call in main_stack(twice)] == SLEEPS
    assert main_stack("") == []


@pytest.mark.parametrize("stack", [IN_HOROVOD, IN_TORCH, IN_BARRIER])
def test_a_rank_within_a_talk_waits_for_its_peers(stack):
    assert waits_for_peers(main_stack(stacks(stack)))


@pytest.mark.parametrize("stack", [SLEEPS, IN_BACKWARD, IN_SHARDED_FORWARD, []])
def test_a_rank_in_the_users_code_or_in_torch_does_not(stack):
    assert not waits_for_peers(main_stack(stacks(stack)))


@pytest.mark.parametrize("waiting", [IN_HOROVOD, IN_TORCH, IN_BARRIER])
def test_the_rank_that_does_not_wait_for_others_is_to_blame_though_they_waited_longer(waiting):
    assert blamed({0: standing(waiting, idle=21.0), 1: standing(SLEEPS), 2: standing(waiting)}) == 1


def test_a_rank_that_does_not_answer_is_to_blame_before_one_that_is_busy():
    assert blamed({0: standing(SLEEPS), 1: standing(None), 2: standing(IN_TORCH)}) == 1


def test_where_all_wait_one_that_does_so_in_its_own_code_is_to_blame_else_the_one_that_is_least_far():
    assert blamed({0: standing(IN_HOROVOD, step=6), 1: standing(IN_BARRIER, step=7)}) == 1
    assert blamed({0: standing(IN_TORCH, step=7), 1: standing(IN_HOROVOD, step=6)}) == 1


def test_a_rank_that_has_just_moved_is_not_to_blame():
    assert blamed({0: standing(SLEEPS, idle=0.5), 1: standing(IN_BARRIER)}) == 1


def test_a_hang_says_who_since_when_and_where_in_which_cell():
    failure = described(standing(IN_TORCH, idle=21.0), standing(SLEEPS))
    assert failure.message == ("rank 1 made no progress for 20 s in step 6: it stands at cell [4] line 13, in loss")
    assert (failure.type, failure.rank, failure.step, failure.at) == ("Hang", 1, 6, 9.0)
    assert [(frame.where, frame.text) for frame in failure.frames] == [("cell [4] line 13", "line 12")]
    assert failure.traceback.startswith("rank 1, idle for 20 s in phase 'step', step 6:\nThread")
    assert "rank 0, idle for 21 s" in failure.traceback
    assert not failure.raised


@pytest.mark.parametrize(
    ("idle", "said"),
    [(4.0, "4.0 s"), (4.046, "4.0 s"), (12.4, "12 s"), (601.2, "10 min 01 s"), (1800.4, "30 min 00 s")],
)
def test_how_long_a_rank_stood_still_is_told_as_other_times_are(idle, said):
    failure = described(standing(IN_TORCH, idle=idle / 2), standing(SLEEPS, idle=idle))
    assert failure.message.startswith(f"rank 1 made no progress for {said} in step 6: ")
    assert failure.traceback.startswith(f"rank 1, idle for {said} in phase 'step', step 6:\n")


def test_every_phase_has_its_words_and_its_step():
    said = [described(standing(SLEEPS, phase=phase)).message.split(" for 20 s ")[1].split(":")[0] for phase in PHASES]
    assert said == [
        "while importing torch",
        "in its first step, 6",
        "in step 6",
        "at the validation after step 6",
        "at the checkpoint of step 6",
        "after its last step, 6",
        "at its target, after step 6",
        "while running prepare",
        "while running the captured code",
        "while connecting the ranks",
        "while building the model, reading data",
        "while finding the batch size",
        "while fetching data",
    ]
    assert [Tick(1, phase, 6).about for phase in PHASES] == [None, 6, 6, 7, 7, 7, 7, *[None] * 6]


def test_a_stack_without_lines_of_the_user_is_told_by_its_file():
    assert f"it stands at {TORCH}/autograd/graph.py line 823" in described(standing(IN_BACKWARD)).message


def test_ranks_that_wait_for_different_things_are_told_so():
    message = described(standing(IN_HOROVOD), standing(IN_BARRIER)).message
    assert message.endswith("it waits for its peers at cell [4] line 13, in loss, and they for others")


def test_the_stacks_of_many_ranks_stay_a_record():
    failure = described(*[standing(SLEEPS * 200) for _ in range(64)])
    assert len(failure.traceback) < 20_000
    assert failure.traceback.count("rank ") == 64
    assert shortened("main thread 0x1\nThread\nsome\nlines", 8) == "...\nlines"


def test_what_is_slow_by_nature_may_take_longer_and_backends_wait_longer_than_anything():
    assert {phase for phase in PHASES if limit(phase, 600.0) == 600.0} == {"step", "validation"}
    assert {limit(phase, 600.0) for phase in PHASES} == {600.0, 1800.0}
    assert {limit(phase, 2.0) for phase in PHASES} == {2.0, 120.0}
    assert all(stall_limit(timeout) > limit(phase, timeout) for timeout in (1.0, 600.0, 1e5) for phase in PHASES)


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def test_a_tick_comes_over_as_it_was_meant(folder):
    assert folder.tick(0) == BEGINNING
    progress = Progress(folder.path, 0)
    for number, phase in enumerate(PHASES, start=1):
        progress.tick(phase, 10**12 + number)
        assert folder.tick(0) == Tick(number, phase, 10**12 + number)
    assert progress.steps == 2


def test_a_rank_that_does_not_tick_is_overdue_and_one_that_does_is_not(folder):
    watch = Watch(folder, range(2), hang_timeout=5.0)
    ticking, silent = Progress(folder.path, 0), Progress(folder.path, 1)
    silent.tick("step", 3)
    for moment in range(8):
        ticking.tick("step", moment)
        assert watch.overdue({0, 1}) == (moment > 6)  # more than five seconds after the first look at its tick
        watch.look(float(moment))
    assert watch.overdue({0, 1})
    assert not watch.overdue({0})
    assert watch.steps() == {0: 7, 1: 3}


@pytest.mark.parametrize(("idle", "late"), [(5.1, False), (119.0, False), (120.1, True)])
def test_ranks_that_wait_for_one_at_a_checkpoint_may_take_as_long_as_it_may(idle, late):
    standings = {0: standing(None, idle=idle, phase="checkpoint"), 1: standing(None, idle=idle, phase="step")}
    assert overdue(standings, 5.0) == late
    assert overdue({1: standings[1]}, 5.0)


def test_a_rank_that_is_slow_by_nature_hides_no_other_for_longer_than_its_own_limit():
    standings = {0: standing(None, idle=1.0, phase="checkpoint"), 1: standing(None, idle=120.1, phase="step")}
    assert overdue(standings, 5.0)
    assert not overdue({}, 5.0)


def test_when_a_slow_checkpoint_has_ended_its_peers_begin_to_wait_anew(folder):
    watch = Watch(folder, range(2), hang_timeout=5.0)
    saving, waiting = Progress(folder.path, 0), Progress(folder.path, 1)
    saving.tick("checkpoint", 3)
    waiting.tick("step", 3)
    for moment in range(60):
        watch.look(float(moment))
        assert not watch.overdue({0, 1})
    saving.tick("step", 3)
    for moment in range(60, 66):
        watch.look(float(moment))
        assert not watch.overdue({0, 1})
    watch.look(66.0)
    assert watch.overdue({0, 1})


def test_time_in_which_the_launcher_stood_still_itself_is_nobodys_fault(folder):
    watch = Watch(folder, range(1), hang_timeout=5.0)
    Progress(folder.path, 0).tick("step", 3)
    for moment in (0.0, 1.0, 1001.0):
        watch.look(moment)
    assert watch.states({0})[0].idle == pytest.approx(1.0 + AWAKE_S)


def test_a_rank_that_finds_the_disk_full_trains_on_unwatched(folder, monkeypatch, caplog):
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    progress = Progress(folder.path, 0)
    progress.tick("step", 3)
    assert "a hang of this rank would go unnoticed" in caplog.text
    assert folder.tick(0) is None
    watch = Watch(folder, range(1), hang_timeout=5.0)
    for moment in range(100):
        watch.look(float(moment))
    assert not watch.overdue({0})


def log(folder: AttemptFolder, text: str, rank: int = 0) -> None:
    with folder.rank_log(rank).open("a") as file:
        file.write(text)


def test_the_first_line_with_a_pattern_counts_once_a_rank_wherever_looks_fall(folder):
    watch = LogWatch(folder, range(2), LOG_POLICIES)
    watch.look()
    log(folder, "step 1\nRuntimeError: CUDA out of m")
    watch.look()
    log(folder, "emory, GPU 0\nCUDA out of memory, too\n")
    log(folder, "bar 50%\rbar 100%\rdevice 3: ECC error", rank=1)
    watch.look()
    first, second = watch.finish()
    assert (first.rank, first.action, first.line) == (0, "cancel_retries", "RuntimeError: CUDA out of memory, GPU 0")
    assert (second.rank, second.action, second.line) == (1, "exclude_node", "device 3: ECC error")


def test_a_log_that_runs_ahead_is_searched_at_its_end(folder):
    watch = LogWatch(folder, range(1), LOG_POLICIES)
    between = ("x" * 79 + "\n") * (BEHIND // 80 + 1)
    log(folder, "ECC error, long ago\n" + between + "CUDA out of memory" + " and more" * 100)
    watch.look()
    (match,) = watch.finish()
    assert match.pattern == "CUDA out of memory"
    assert len(match.line) == SHOWN
    assert PIECE < BEHIND


def test_a_pattern_that_is_none_is_said_and_the_others_are_looked_for(folder, caplog):
    watch = LogWatch(folder, range(1), (LogPolicy(pattern="(", action="cancel_retries"), *LOG_POLICIES))
    log(folder, "ECC error")
    assert [match.pattern for match in watch.finish()] == ["ECC error"]
    assert "'(' is no regular expression" in caplog.text


def test_a_pattern_that_takes_too_long_is_given_up_and_the_others_are_looked_for(folder, caplog, monkeypatch):
    monkeypatch.setattr(time_limit, "PATTERN_S", 0.05)
    watch = LogWatch(folder, range(2), (LogPolicy(pattern="(a+)+$", action="cancel_retries"), *LOG_POLICIES))
    for rank in range(2):
        log(folder, "a" * 64 + "!\nECC error\n", rank=rank)
        watch.look()
    assert [(match.rank, match.pattern) for match in watch.finish()] == [(0, "ECC error"), (1, "ECC error")]
    assert caplog.text.count("'(a+)+$' takes too long to be searched for") == 1
    assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL


def test_without_policies_no_log_is_read(folder):
    log(folder, "ECC error\n")
    assert LogWatch(folder, range(1), ()).finish() == ()
