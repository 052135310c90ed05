"""Test that processes which a program forks behave as in plain Python: signals, loops, output, and their end.

Each program is a process of its own, as it has the handlers of a rank.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S, starvation
from tests.support.script_runs import run as run_script

ROOT = Path(__file__).parents[3]
RANK = """
import faulthandler, multiprocessing, os, pathlib, signal, subprocess, sys, time
from kernel_backend.runner.forked_children import children_end_here
from kernel_backend.runner.ipc import Instructions
from kernel_backend.runner.progress import show_stacks_on_demand
signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # which jobs in a shell's background ignore
fork = multiprocessing.get_context("fork")
instructions = Instructions()
reading, writing = os.pipe()
instructions.listen(reading)
show_stacks_on_demand(pathlib.Path.cwd(), 0)

def forever():
    while True:
        time.sleep(60)

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def printed(folder: Path, source: str) -> list[str]:
    """Run lines in the process of a rank, which must end with 0; return the lines that it and its children print."""
    done = subprocess.run(
        [sys.executable, "-c", RANK + textwrap.dedent(source)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE_S * starvation(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGQUIT"])
def test_a_forked_process_ends_by_a_signal_however_early_it_comes(tmp_path, name):
    found = printed(
        tmp_path,
        f"""
        for _ in range(20):
            process = fork.Process(target=forever)
            process.start()
            os.kill(process.pid, signal.{name})
            process.join()
            print(process.exitcode)
        """,
    )
    assert found == [str(-getattr(signal, name))] * 20


def test_a_pool_ends_and_the_rank_is_still_asked_to_release(tmp_path):
    found = printed(
        tmp_path,
        """
        with fork.Pool(2) as pool:
            print(pool.map(abs, [-1, 2]))
        os.kill(os.getpid(), signal.SIGTERM)
        print(instructions.release)
        process = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: None)
        process.terminate()
        print(process.wait())
        """,
    )
    assert found == ["[1, 2]", "True", str(-signal.SIGTERM)]


def test_a_forked_process_keeps_the_handler_that_the_program_has_set(tmp_path):
    found = printed(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        process = fork.Process(target=forever)
        process.start()
        process.terminate()
        process.join()
        print(process.exitcode)
        """,
    )
    assert found == ["7"]


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("sys.exit(3)", 3), ("sys.exit('why')", 1), ("1 / 0", 1)])
def test_a_forked_process_that_leaves_the_program_ends_there(tmp_path, end, code):
    found = printed(
        tmp_path,
        f"""
        with children_end_here():
            child = os.fork()
            if not child:
                {end}
        print("the rank goes on", ended(child))
        """,
    )
    assert found == [f"the rank goes on {code}"]


LOOP = """
import os
import torch
weight = torch.ones(1, requires_grad=True)
def train():
    for _ in range(5):
        (weight * 2).sum().backward()
for _ in range(3):
    (weight * 2).sum().backward()
    if _ == 1:
        child = os.fork()
        if not child:
            train()
            os._exit(int(weight.grad.item()))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("end", code)
"""


ABOVE = """
child = os.fork()
if not child:
    train()
    print('child', flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_training_loop_in_a_forked_process_is_none_of_the_jobs_and_runs_as_in_plain_python(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(LOOP)
    saved = run_script(path, save_at=[2])
    assert (saved.error, saved.heads, saved.printed) == ("", 3, "end 14\n")
    resumed = run_script(path, checkpoint=saved.checkpoints[2])
    assert (resumed.error, resumed.heads, resumed.printed) == ("", 3, "end 14\n")


def test_a_process_that_is_forked_while_a_restart_is_silent_trains_and_prints(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(LOOP.replace("for _ in range(3)", ABOVE + "for _ in range(3)"))
    saved = run_script(path, save_at=[2])
    assert (saved.error, saved.heads, saved.printed) == ("", 3, "child\nend 14\n")
    resumed = run_script(path, checkpoint=saved.checkpoints[2])
    assert (resumed.error, resumed.heads) == ("", 3)
    assert resumed.printed == "child\nend 14\n"
