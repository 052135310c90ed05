"""Test the digests of a program's variables, their comparison, and that a rehearsal disturbs nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from kernel_backend.definition.script.signs import RUNGS, Rung, Sign, presumed
from kernel_backend.model.experiment import Config
from kernel_backend.model.trial import NOT_SAVED
from kernel_backend.runner.forms.script.files import ProgramFiles
from kernel_backend.runner.forms.script.rehearsal.digests import named_digests, value_digest
from kernel_backend.runner.forms.script.rehearsal.recorder import Recorder
from kernel_backend.runner.forms.script.rehearsal.rehearsal import Rehearsal
from kernel_backend.runner.forms.script.rehearsal.result import Result
from kernel_backend.runner.forms.script.rehearsal.stored import StoredVerdict
from kernel_backend.runner.forms.script.rehearsal.verdict import (
    Rehearsed,
    difference,
    guarantee,
    refusal,
    serves,
    weaker,
)
from kernel_backend.runner.forms.script.state.tombstones import BeginAnew, NotSaved


class Meter:
    def __init__(self):
        self.total, self.started, self.lock = 0.0, 1.0, threading.Lock()


def trained(steps: int, lr: float = 0.1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        model(torch.randn(4, 3)).pow(2).sum().backward()
        optimizer.step()
    return {"model": model, "optimizer": optimizer, "rng": np.random.default_rng(3), "dice": random.Random(4)}


def looped():
    found: list[object] = [1]
    found.append(found)
    return found


def test_equal_states_have_equal_digests():
    assert named_digests(trained(3)) == named_digests(trained(3))


def test_a_hook_counts_by_what_it_is_and_not_by_its_number():
    one, other, without = trained(1), trained(1), trained(1)
    torch.nn.Linear(1, 1).register_forward_hook(print)  # takes a number, as a hook of Daylight's own does
    for each in (one, other):
        each["model"].register_forward_hook(print)
    assert named_digests(one) == named_digests(other) != named_digests(without)


class Unreadable:
    __slots__ = ("inner",)

    def __getattribute__(self, name):
        if name == "inner":
            raise RuntimeError("not now")
        return super().__getattribute__(name)


def test_a_value_that_cannot_be_read_is_passed_over_and_all_others_are_compared():
    digests = named_digests({"broken": Unreadable(), "n": 1})
    assert digests == {"broken": "unreadable: RuntimeError", **named_digests({"n": 1})}


def test_a_function_that_a_compiler_has_made_is_read_as_the_object_that_it_wraps():
    def compiled():
        pass

    compiled.__wrapped__ = Meter()  # as torch.compile wraps a CompiledFxGraph
    before = value_digest(compiled)
    compiled.__wrapped__.total = 1.0
    assert value_digest(compiled) != before


@pytest.mark.parametrize(("config", "wanted"), [(Config(rehearse=False), set()), (Config(), {1, 2, 3})])
def test_a_training_is_rehearsed_unless_the_user_forbids_it(config, wanted, tmp_path: Path):
    job = types.SimpleNamespace(trial=1, checkpoints="checkpoints")
    ranks, device = types.SimpleNamespace(size=1), torch.device("cpu")
    rank = types.SimpleNamespace(config=config, job=job, ranks=ranks, device=device)
    training = types.SimpleNamespace(position=types.SimpleNamespace(form={}, step=0), guarantee="")
    recorder = types.SimpleNamespace(wanted=set())
    Rehearsal(rank, training, recorder, [], True, contextlib.nullcontext, StoredVerdict(tmp_path / "verdict", ""))
    assert recorder.wanted == wanted


class Attempt:
    """Attempt of a training as its rehearsal sees it, in the folder of its trial."""

    def __init__(self, folder: Path, signs=(), form=None, resumed_from=None, rehearse=True):
        job = types.SimpleNamespace(trial=1, checkpoints="checkpoints")
        self.said, self.asked, self.aside, self.notes = [], [], [], []
        rank = types.SimpleNamespace(config=Config(rehearse=rehearse), job=job, device=torch.device("cpu"))
        rank.ranks, rank.say_guarantee = types.SimpleNamespace(size=1), self.said.append
        rank.note = lambda text, *_: self.notes.append(text)
        position = types.SimpleNamespace(form=form or {}, step=0, epoch=0)
        self.training = types.SimpleNamespace(position=position, resumed_from=resumed_from, retain=lambda _: None)
        self.training.request_checkpoint = lambda: self.asked.append(True)
        self.training.set_aside_checkpoints = lambda: self.aside.append(True)
        self.training.guarantee = presumed(signs)
        recorder = types.SimpleNamespace(wanted=set(), of=lambda steps: {step: {"w": "1"} for step in steps})
        stored = StoredVerdict(folder / "verdict.json", "uid")
        self.rehearsal = Rehearsal(rank, self.training, recorder, signs, False, contextlib.nullcontext, stored)
        self.rehearsal._steps = range(1, 2)

    def judge(self, value: str):
        self.rehearsal._settle(Rehearsed({1: {"w": value}}))
        return self


THREAD = Sign("start", 3, "worker = Thread(...) is a thread next to the loop")


@pytest.mark.parametrize("rehearse", [False, True])
def test_a_restart_heeds_a_presumption_until_a_rehearsal_has_judged(tmp_path: Path, rehearse: bool):
    attempt = Attempt(tmp_path, [THREAD], rehearse=rehearse)
    assert attempt.rehearsal.allows(outermost=False) == rehearse  # the rehearsal needs one
    assert refusal({**attempt.rehearsal.state(), "outermost": True}, [THREAD]).endswith("with the same bits")
    if rehearse:
        attempt.judge("1")
        assert (attempt.said[-1][:17], attempt.asked) == ("exact to the step", [True])
        assert refusal(attempt.rehearsal.state(), [THREAD]) == ""


def test_a_rehearsal_that_is_refused_sets_nothing_aside(tmp_path: Path):
    attempt = Attempt(tmp_path)
    attempt.rehearsal._settle(Rehearsed({}, refused="it starts a program"))
    assert (attempt.notes, attempt.aside) == (["a restart was not rehearsed: it starts a program"], [])
    assert (attempt.said, attempt.rehearsal.state()["judged"]) == ([], False)
    assert attempt.rehearsal.allows(outermost=False)


def test_a_refusal_is_handed_over_while_the_writes_of_a_replay_are_discarded(tmp_path: Path):
    files = ProgramFiles(str(tmp_path), None, ())
    files.replay()
    if not (child := os.fork()):
        result = Result(tmp_path / "digests.json")
        with files.throughout({"open": open}):
            result.leave({"refused": "it starts a program"})
    assert os.waitpid(child, 0)[1] == 0
    assert json.loads((tmp_path / "digests.json").read_text()) == {"refused": "it starts a program"}


def test_a_guarantee_that_was_never_rehearsed_stays_a_presumption_in_later_attempts(tmp_path: Path):
    first = Attempt(tmp_path, rehearse=False)
    later = Attempt(tmp_path, form=first.rehearsal.state(), resumed_from="5-1", rehearse=False)
    assert later.training.guarantee == "presumed exact to the step"


def test_the_failure_of_a_program_that_cannot_go_on_is_known_by_its_name():
    assert NotSaved.__name__ == NOT_SAVED


def test_an_attempt_that_went_on_from_an_inexact_checkpoint_begins_anew_and_later_ones_know(tmp_path: Path):
    form = Attempt(tmp_path).rehearsal.state()
    attempt = Attempt(tmp_path, form=form, resumed_from="5-1")
    with pytest.raises(BeginAnew, match="checkpoint 5-1, from which this attempt went on, was no exact one: w differs"):
        attempt.judge("2")
    assert attempt.aside == [True]
    third = Attempt(tmp_path)  # nothing is left that it could go on from
    assert third.training.guarantee.startswith("presumed from the start, with the same bits: w differs")
    assert not third.rehearsal.allows(outermost=True)
    stored = StoredVerdict(tmp_path / "verdict.json", "uid")
    assert refusal(stored.over(form | {"outermost": True}), []) == "a restart begins from the start, with the same bits"
    assert StoredVerdict(tmp_path / "verdict.json", "another trial's").over(form) == form


@pytest.mark.parametrize(
    ("rung", "outermost", "goes_on"),
    [
        ("step", False, True),
        ("step", True, True),
        ("epoch", False, False),
        ("epoch", True, True),
        ("start", False, False),
        ("start", True, False),
        ("anew", False, False),
        ("anew", True, False),
    ],
)
def test_a_restart_goes_on_only_from_a_checkpoint_that_the_guarantee_names(rung: Rung, outermost: bool, goes_on: bool):
    presumption = [] if rung == "step" else [Sign(rung, 1, "")]
    verdict = {"judged": True, "rung": rung}
    others = [Sign("start" if rung == "step" else "anew", 1, "")]
    cases = [(verdict, others), (verdict, [])]
    if rung != "anew":  # which a source alone does not say of a checkpoint
        cases.append(({}, presumption))
    for known, found in cases:
        assert serves(rung, outermost) == goes_on == (refusal({**known, "outermost": outermost}, found) == "")


def test_a_program_without_a_seed_goes_on_from_its_checkpoints_until_a_rehearsal_differs():
    unseeded, thread = Sign("anew", 1, ""), Sign("epoch", 2, "")
    assert refusal({"outermost": False}, [unseeded]) == ""
    assert refusal({"outermost": False}, [unseeded, thread]) != ""
    assert refusal({"outermost": True, "judged": True, "rung": "anew"}, [unseeded]) != ""


def test_a_recorder_that_fails_says_so_and_does_not_raise_into_the_training():
    program = types.SimpleNamespace(builtins={}, module=None, by_clock=frozenset())  # no module: reading it fails
    events = types.SimpleNamespace(on_iteration=[], on_step=[])
    recorder = Recorder(events, program)
    recorder.wanted = {1}
    events.on_iteration[0](None, sys._getframe())
    events.on_step[0](1)
    assert recorder.failure.startswith("its variables cannot be compared, TypeError")
    assert recorder.of(range(1, 2)) is None


def test_a_name_that_differs_is_told_apart():
    one, other = trained(3), trained(3)
    other["optimizer"].state[other["model"][0].weight]["step"] += 1
    other["rng"].random()
    before, after = named_digests(one), named_digests(other)
    assert {name for name in before if before[name] != after[name]} == {"optimizer", "rng"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (torch.zeros(2), torch.zeros(2, requires_grad=True)),
        (torch.zeros(2), torch.zeros(2, 1)),
        (np.zeros(2), np.zeros(2, dtype=np.float32)),
        (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
        (random.Random(1), random.Random(2)),
        (iter([1, 2]), iter([1, 3])),
        ((lambda k: lambda: k)(1), (lambda k: lambda: k)(2)),
    ],
)
def test_values_that_are_not_the_same(one, other):
    assert value_digest(one) != value_digest(other)


def test_two_names_of_one_object_are_not_two_objects():
    a, b = [1], [1]
    assert value_digest([a, a]) != value_digest([a, b])


def test_an_object_may_hold_itself_and_a_lock():
    assert value_digest(looped()) == value_digest(looped())
    assert value_digest(Meter()) == value_digest(Meter())


def test_a_module_that_the_program_has_made_counts_by_its_attributes():
    one, other = types.ModuleType("state"), types.ModuleType("state")
    one.step, other.step = 1, 2
    assert named_digests({"state": one}) != named_digests({"state": other})
    assert named_digests({"random": random}) == {}


def test_a_logger_counts_alike_whatever_other_loggers_the_process_has():
    before = named_digests({"logger": logging.getLogger("program")})
    logging.getLogger("program.other").warning("once")
    assert named_digests({"logger": logging.getLogger("program")}) == before


def test_attributes_by_the_clock_do_not_count():
    one, other = Meter(), Meter()
    other.started = 2.0
    assert value_digest(one) != value_digest(other)
    assert value_digest(one, frozenset({"started"})) == value_digest(other, frozenset({"started"}))


def test_a_step_that_was_not_reached_is_a_difference():
    mine = {4: {"w": "a"}, 5: {"w": "b"}}
    assert difference(mine, Rehearsed(mine)) is None
    assert difference(mine, Rehearsed({4: {"w": "a"}})) == "a restarted process did not come to step 5"
    assert difference(mine, Rehearsed({}, error="NotSaved: it")) == "NotSaved: it"


def test_many_names_are_counted():
    mine = {1: dict.fromkeys("abcde", "0")}
    told = difference(mine, Rehearsed({1: dict.fromkeys("abcdf", "1")}))
    assert told == "a, b, c and 3 more differ after a restart, at step 1"


def test_each_rung_has_a_guarantee_and_a_rung_below():
    assert [weaker(each, [], nested=True) for each in RUNGS] == [*RUNGS[1:], "anew"]
    assert guarantee("anew", "x differs") == "from the start, with other bits: x differs"


def test_a_failed_rehearsal_is_followed_by_what_the_code_allows_at_most():
    thread, unseeded = Sign("start", 3, "a thread"), Sign("anew", 4, "no seed")
    assert weaker("step", [thread], nested=True) == "start"
    assert weaker("step", [unseeded, thread], nested=True) == "anew"
    assert weaker("start", [thread], nested=True) == "anew"


NETWORK = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("open('mine.txt', 'w').write('1'); one, two = __import__('socket').socketpair(); one.send(b'1')", ""),
        ("import multiprocessing; print(multiprocessing.Pool(1).map(len, ['a']))", "[1]"),
        ("import multiprocessing; print(multiprocessing.Manager().list([2]))", "[2]"),
        ("import subprocess; subprocess.run(['true'])", "it starts a program"),
        ("import subprocess; subprocess.run(['true'], close_fds=False)", "it starts a program"),
        ("os.system('true')", "it runs a command"),
        ("os.posix_spawn('/bin/true', ['true'], {})", "it starts a program"),
        ("os.spawnv(os.P_WAIT, '/bin/true', ['true'])", "it starts a program"),
        ("os.fork() or os.execv('/bin/true', ['true']); os.wait(); print('goes on')", "it starts a program"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "it connects to a network"),
        ("import socket; socket.socket(socket.AF_UNIX).connect('/run/a.sock')", "it connects to a network"),
        (f"{NETWORK}; s.sendto(b'1', ('127.0.0.1', 9))", "it sends to a network"),
        (f"{NETWORK}; s.sendmsg([b'1'], [], 0, ('127.0.0.1', 9))", "it sends to a network"),
    ],
)
def test_a_rehearsal_ends_before_it_starts_a_program_or_uses_a_network(tmp_path: Path, line: str, told: str):
    program = f"""
    import os
    from kernel_backend.runner.forms.script.rehearsal.sandbox import confine
    def refuse(text):
        print(text, flush=True)
        os._exit(0)
    confine(refuse)
    {line}
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == told
