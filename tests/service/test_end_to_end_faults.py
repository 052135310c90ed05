"""Test faults other than kill -9: ranks that hang or freeze, log lines that forbid a retry, a full database."""

from __future__ import annotations

import os
import re
import resource
import signal
import sqlite3

import psutil
import pytest

from kernel_backend import discovery
from kernel_backend.errors import DaylightError
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.trial import checkpoint_step
from tests.support.world import DEFINITION, World, until

pytestmark = pytest.mark.distributed

OPTIONS = {"epochs": 4, "checkpoint_every": {"steps": 4}}  # of 8 steps
# The ranks of Horovod wake in each of its cycles also while they wait.
QUIET = {**OPTIONS, "backend": "torch"}
# Rank 1 does something at the 14th batch that it sees, the first time that it comes there.
ONCE = (
    DEFINITION
    + """
import os, signal
seen = []
def loss(output, target, pause=0.0, marker="", does=""):
    time.sleep(pause)
    seen.append(1)
    if len(seen) == 14 and os.environ["RANK"] == "1" and not os.path.exists(marker):
        open(marker, "w").close()
        exec(does)
    return nn.functional.mse_loss(output, target)
"""
)


# Rank 1 is killed at the 16th batch that it sees, and in the next three attempts at the third.
CRASHES = (
    DEFINITION
    + """
import os, signal
seen = []
def loss(output, target, pause=0.0, marker=""):
    time.sleep(pause)
    seen.append(1)
    crashes = os.path.getsize(marker) if os.path.exists(marker) else 0
    if len(seen) == (3 if crashes else 16) and os.environ["RANK"] == "1" and crashes < 4:
        with open(marker, "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return nn.functional.mse_loss(output, target)
"""
)


def attempt_folder(world: World, number: int) -> AttemptFolder:
    return AttemptFolder(world.home / "attempts" / f"{number}.1-1")


def test_a_rank_that_hangs_is_named_by_cell_and_line_and_the_next_attempt_goes_on(world):
    number = world.submit(ONCE, **OPTIONS, hang_timeout=4, marker="hangs", does="time.sleep(3600)").experiment.number
    overview = world.ended(number)
    first, second = overview.attempts
    assert (overview.state, first.outcome, first.failure.type, first.failure.rank) == ("completed", "failed", "Hang", 1)
    line = ONCE.strip().splitlines().index("        exec(does)") + 2  # its first line is the cell's second
    said = rf"rank 1 made no progress for ([0-9.]+) s [^:]+: it stands at cell \[4\] line {line}, in loss"
    seconds = re.fullmatch(said, first.failure.message)
    assert seconds is not None, first.failure.message
    # The rank that waits for the one that hangs may be idle for longer, and then is the first to exceed the limit.
    told = re.findall(r"^rank \d, idle for ([0-9.]+) s", first.failure.traceback, re.MULTILINE)
    idle = [float(each) for each in told]
    assert float(seconds[1]) in idle
    assert max(idle) >= 4
    assert second.resume_from is not None
    assert (attempt_folder(world, number).path / "stacks-0.log").stat().st_size > 1000


@pytest.mark.long
def test_a_frozen_rank_is_as_good_as_dead(world):
    number = world.lasting(**OPTIONS, hang_timeout=4)
    world.checkpointed(number)
    world.ranks()[0].suspend()
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 2)
    assert (overview.attempts[0].failure.type, overview.attempts[0].failure.rank) == ("Hang", 0)
    assert "it does not answer" in overview.attempts[0].failure.message


def test_ranks_that_wait_for_different_things_are_a_hang_too(world):
    does = "import torch.distributed as dist; dist.recv(torch.zeros(1), 0)"
    options = {"hang_timeout": 4, "max_restarts": 0, "backend": "torch"}
    number = world.submit(ONCE, **OPTIONS, **options, marker="parted", does=does).experiment.number
    (first,) = world.ended(number).attempts
    assert (first.failure.type, first.failure.rank) == ("Hang", 1)
    assert "it waits for its peers at cell [4] line " in first.failure.message


def test_a_launcher_that_is_told_to_go_from_outside_leaves_a_checkpoint_and_costs_no_retry(world):
    number = world.lasting(**QUIET, max_restarts=0)
    world.reached(number, 4)
    launcher = attempt_folder(world, number).launcher()
    os.kill(launcher.pid, signal.SIGTERM)
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt, overview.trials[0].failures) == ("completed", 2, 0)
    assert (overview.attempts[0].outcome, overview.attempts[0].failure) == ("released", None)
    assert overview.attempts[1].resume_from is not None


def test_a_log_line_can_say_that_another_try_is_of_no_use(world):
    does = "print('RuntimeError: CUDA out of memory.', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    number = world.submit(ONCE, **QUIET, marker="memory", does=does).experiment.number
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("failed", 1)
    message = overview.trials[0].failure.message
    assert message.startswith("rank 1 was ended by SIGKILL")
    assert "not tried again: rank 1 said 'RuntimeError: CUDA out of memory.', and --on-log" in message


def test_a_node_that_a_log_line_excludes_is_avoided_until_the_experiment_is_resumed(world):
    does = "print('GPU 3: uncorrectable ECC error', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    number = world.submit(ONCE, **QUIET, marker="ecc", does=does).experiment.number
    held = until(lambda: (o := world.overview(number)).trials[0].excluded and o.wait and o, "a node is left out")
    (node,) = held.trials[0].excluded
    assert (held.experiment.state, held.state) == ("active", "queued")
    assert held.wait.reason == (
        f"left out after a line of the log (--on-log): {node}; pause and resume it to try there again"
    )
    (note,) = held.warnings
    assert note.startswith(f"node {node} is left out from now on: rank 1 said 'GPU 3: uncorrectable ECC error'")
    client = world.serve()
    client.pause(number)
    until(lambda: "user" in world.overview(number).trials[0].holds, "the pause is known")
    client.resume(number)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt, overview.trials[0].excluded) == ("completed", 2, frozenset())


def test_a_checkpoint_that_is_followed_by_three_crashes_at_one_step_is_passed_over(world):
    number = world.submit(CRASHES, **QUIET, pause=0.05, marker="crashes").experiment.number
    overview = world.ended(number)
    first, *crashed, last = overview.attempts
    assert (overview.state, first.resume_from, len(crashed)) == ("completed", None, 3)
    (suspect,) = {attempt.resume_from for attempt in crashed}
    (step,) = {attempt.failure.step for attempt in crashed}
    assert 0 < checkpoint_step(last.resume_from) < checkpoint_step(suspect) < step
    (note,) = overview.warnings
    assert note.startswith(f"3 attempts from checkpoint {suspect} failed at step {step}: training goes on from ")
    assert f"from checkpoint {last.resume_from}, steps {checkpoint_step(last.resume_from) + 1} to " in note


def test_a_full_database_is_said_and_costs_no_report(world):
    client = world.serve()
    number = world.lasting(**QUIET)
    world.reached(number, 2)
    address = discovery.find(world.home)
    service = psutil.Process(address.pid)
    before = service.rlimit(resource.RLIMIT_FSIZE)
    service.rlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    with pytest.raises(DaylightError, match=r"is not available: .* Nothing of this was stored"):
        client.pause(number)
    known, spool = len(world.reports(number)), attempt_folder(world, number).spool
    length = spool.stat().st_size
    until(lambda: spool.stat().st_size > length + 500, "training goes on")
    assert len(world.reports(number)) == known
    service.rlimit(resource.RLIMIT_FSIZE, before)
    world.hurry(number)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
    steps = [(report.kind, report.step) for report in world.reports(number)]
    assert len(steps) == len(set(steps))
    told = [report.step for report in world.reports(number) if report.kind == "validation"]
    assert told == [8, 16, 24, 32]


def test_a_locked_database_costs_no_report_and_training_ends_meanwhile(world):
    world.serve()
    number = world.lasting(**QUIET)
    world.reached(number, 2)
    lock = sqlite3.connect(world.home / "daylight.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    world.hurry(number)
    until(attempt_folder(world, number).result, "training ends")
    known = len(world.reports(number))
    assert world.overview(number).state == "running"
    lock.execute("ROLLBACK")
    lock.close()
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
    assert len(world.reports(number)) > known
    told = [report.step for report in world.reports(number) if report.kind == "validation"]
    assert told == [8, 16, 24, 32]
