"""Test which checkpoint a trial resumes from, after any history of attempts."""

from __future__ import annotations

import random

import pytest

from kernel_backend.lifecycle.resume import Resume, lineage, progressed, remembered, resume_point
from kernel_backend.model.states import AttemptState, Outcome
from kernel_backend.model.trial import Attempt, Failure, checkpoint_step
from tests.support.builders import attempt


def ended(number: int, resume_from: str | None, step: int | None = None, type: str = "SIGKILL") -> Attempt:
    """Return an attempt that was lost, or that failed at a step."""
    failure = Failure(rank=0, type=type, message="", step=step) if step is not None or type != "SIGKILL" else None
    outcome = Outcome.FAILED if failure else Outcome.LOST
    fields = {"state": AttemptState.ENDED, "resume_from": resume_from, "outcome": outcome, "failure": failure}
    return attempt(number, **fields)


def crashes(count: int, first: int, resume_from: str, step: int = 45) -> list[Attempt]:
    return [ended(number, resume_from, step) for number in range(first, first + count)]


def test_the_first_attempt_begins_at_the_beginning():
    assert resume_point([], []) == Resume(None)


def test_the_newest_checkpoint_is_taken():
    assert resume_point([ended(1, None)], ["10-1", "20-1"]) == Resume("20-1")


def test_what_a_fenced_attempt_commits_late_never_counts():
    history = [ended(1, None), ended(2, "20-1")]
    assert resume_point(history, ["10-1", "20-1", "30-1"]) == Resume("20-1")
    assert resume_point(history, ["10-1", "20-1", "25-2", "30-1"]) == Resume("25-2")


def test_the_fence_of_a_later_attempt_holds_for_all_before_it():
    history = [ended(1, None), ended(2, "40-1"), ended(3, "20-1")]
    assert lineage(history, ["10-1", "20-1", "40-1", "50-2", "30-3"]) == ["10-1", "20-1", "30-3"]


def test_what_an_attempt_has_committed_that_a_restored_database_does_not_know_is_taken_and_told_of_once():
    before = [ended(1, None)]
    point, note = resume_point(before, ["20-1", "30-2"])
    assert (point, note) == ("30-2", note)
    assert note.startswith("training goes on from checkpoint 30-2, of an attempt that this database does not know")
    assert resume_point([*before, ended(3, "30-2")], ["20-1", "30-2"]) == Resume("30-2")
    assert resume_point([*before, ended(3, "20-1")], ["20-1", "30-2"]) == Resume("20-1")  # a later one was fenced off


def test_a_search_goes_on_from_what_it_remembers():
    history = [ended(1, None), ended(4, "20-1")]
    assert remembered(history, ["10-0", "20-1", "30-2", "40-3", "50-4"]) == ["10-0", "20-1", "50-4"]


def test_three_crashes_at_the_same_step_make_a_checkpoint_suspect_and_say_so_once():
    history = [ended(1, None), *crashes(3, 2, "40-1")]
    note = "3 attempts from checkpoint 40-1 failed at step 45: training goes on from checkpoint 30-1, "
    assert resume_point(history, ["30-1", "40-1"]) == Resume("30-1", note + "steps 31 to 40 are trained again")
    assert resume_point([*history, ended(5, "30-1")], ["30-1", "40-1"]) == Resume("30-1")


def test_two_crashes_or_three_at_different_steps_make_nothing_suspect():
    two = [ended(1, None), *crashes(2, 2, "40-1")]
    assert resume_point(two, ["30-1", "40-1"]).point == "40-1"
    assert resume_point([*two, ended(4, "40-1", step=46)], ["30-1", "40-1"]).point == "40-1"
    assert resume_point([*two, ended(4, "40-1")], ["30-1", "40-1"]).point == "40-1"  # lost: no crash


def test_a_suspect_without_a_predecessor_leads_to_the_beginning():
    found = resume_point([ended(1, None), *crashes(3, 2, "40-1")], ["40-1"])
    assert found.point is None
    assert found.note.endswith("training goes on from the beginning, steps 1 to 40 are trained again")


def test_only_crashes_before_the_first_step_speak_against_the_checkpoint():
    killed = [ended(1, None), *(ended(number, "40-1", type="SIGSEGV") for number in (2, 3, 4))]
    assert "failed before its first step" in resume_point(killed, ["30-1", "40-1"]).note
    raised = [ended(1, None), *(ended(number, "40-1", type="LauncherFailed") for number in (2, 3, 4))]
    assert resume_point(raised, ["30-1", "40-1"]) == Resume("40-1")


def test_a_last_checkpoint_that_cannot_be_written_says_nothing_against_the_one_before():
    full = [ended(1, None), *(ended(number, "40-1", 401, "CheckpointFailed") for number in (2, 3, 4, 5))]
    assert resume_point(full, ["30-1", "40-1"]) == Resume("40-1")


def test_training_the_same_steps_again_is_no_progress():
    history = [ended(1, None), *crashes(3, 2, "40-1"), ended(5, "30-1", 45)]
    assert progressed(history[:1], ["10-1"])
    assert not progressed(history[:2], ["40-1"])
    assert not progressed(history, ["30-1", "40-1", "40-5"])
    assert progressed(history, ["30-1", "40-1", "40-5", "50-5"])


def test_a_crash_that_always_comes_back_ends_some_time_however_far_back_each_try_goes():
    """With five retries without progress a trial fails, although it resumes from an earlier checkpoint twice."""
    attempts, committed, failures = [ended(1, None)], ["20-1", "30-1", "40-1"], 0
    while failures <= 5:
        point = resume_point(attempts, committed).point
        number = len(attempts) + 1
        attempts.append(ended(number, point, step=45))
        committed += [f"{step}-{number}" for step in (10, 20, 30, 40) if step > checkpoint_step(point)]
        failures = 1 if progressed(attempts, committed) else failures + 1
        assert number < 20
    assert {checkpoint_step(each.resume_from) for each in attempts} == {0, 30, 40}


@pytest.mark.parametrize("seed", range(200))
def test_no_history_of_losses_and_late_commits_takes_a_trial_backwards_or_across_a_fence(seed):
    """Attempts run, are lost at any time, and may commit after they were fenced, like a zombie process."""
    chance = random.Random(f"resume {seed}")
    attempts: list[Attempt] = []
    commits: list[tuple[int, str]] = []  # when: before which attempt was made, and what
    for number in range(1, chance.randrange(2, 8)):
        committed = [name for _, name in commits]
        chance.shuffle(committed)
        found = resume_point(attempts, committed)
        before = checkpoint_step(attempts[-1].resume_from) if attempts else 0
        assert checkpoint_step(found.point) >= before, f"seed {seed}"
        own = [name for when, name in commits if name.split("-")[1] == str(when)]
        truth = max((checkpoint_step(name) for name in own), default=0)
        assert checkpoint_step(found.point) == truth, f"seed {seed}"
        attempts.append(ended(number, found.point))
        for each in attempts:  # the newest is alive, the others are zombies that should have been killed
            if each.number == number or chance.random() < 0.5:
                step = checkpoint_step(each.resume_from) + chance.randrange(1, 50)
                commits.append((number, f"{step}-{each.number}"))
