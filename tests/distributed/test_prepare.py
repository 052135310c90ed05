"""Test that `prepare` runs once per node, in any one rank, and again only if it did not finish."""

from __future__ import annotations

import pytest
from gang import DIGITS, Attempt, Trial

from kernel_backend.model.reports import Fact

pytestmark = pytest.mark.distributed

PREPARE = """
def prepare(takes=0.3, broken=False):
    global made
    with open("../log", "a") as log:
        log.write("begun\\n")
    open("../archive").read()
    time.sleep(takes)
    if broken:
        raise OSError("no such archive")
    with open("../data", "w") as data:
        data.write("8")
    made = torch.rand(3)
"""
READS = DIGITS + "def collection():\n    return int(open('../data').read())\n"
SOURCE = READS.replace("def train_data(dataset):", "def train_data(dataset, collection):") + PREPARE
# The same training, whose data is there already.
UNPREPARED = SOURCE.replace("def prepare(", "def unused(")


@pytest.fixture
def trial(tmp_path):
    """Provide a function `trial(name, source, **settings)` that creates a trial in a folder next to its archive."""
    (tmp_path / "archive").write_text("packed")

    def make(name: str = "trial", source: str = SOURCE, **settings) -> Trial:
        return Trial(tmp_path / name, source=source, **settings)

    return make


def runs(trial: Trial) -> int:
    """Return how often `prepare` was started."""
    log = trial.folder.parent / "log"
    return len(log.read_text().split()) if log.exists() else 0


def phases(attempt: Attempt) -> set[str]:
    """Return the current phases of the attempt's two ranks."""
    return {tick.phase for rank in (0, 1) if (tick := attempt.folder.tick(rank))}


def test_all_ranks_wait_for_the_one_that_runs_it_and_a_resume_does_not_run_it_again(trial):
    made = trial(epochs=2, until=1)
    assert set(made.run().tell("release").codes) == {85}
    assert runs(made) == 1
    made.until = None
    assert set(made.run(made.pinned()).codes) == {0}
    assert runs(made) == 1


def test_it_leaves_no_trace_in_the_training(trial):
    prepared, ready = trial(slots=1), trial("ready", UNPREPARED, slots=1)
    ran, plain = prepared.run(), ready.run()
    assert set(ran.codes) == set(plain.codes) == {0}, ran.logs() + plain.logs()
    assert prepared.weights() == ready.weights()
    (observed,) = (each.value for each in ran.records if isinstance(each, Fact) and each.name == "observed")
    assert [each["path"] for each in observed["files"]] == [str(prepared.folder.parent / "data")]


def test_who_is_killed_within_leaves_it_to_the_next_that_waits_for_it(trial):
    made = trial(params={"takes": 600.0})
    first = made.start()
    first.wait(lambda: first.pids() and runs(made) == 1)
    made.params = {"takes": 0.1}
    second = made.start()
    second.wait(lambda: second.pids() and phases(second) == {"preparing"})
    first.hang_up().ended()
    assert not (made.folder.parent / "data").exists()
    assert set(second.ended().codes) == {0}, second.logs()
    assert runs(made) == 2


def test_its_error_is_told_by_cell_and_line_and_the_next_attempt_tries_again(trial):
    made = trial(slots=1, params={"broken": True})
    for attempt in (1, 2):
        (failure,) = made.run().failures().values()
        line = SOURCE.splitlines().index('        raise OSError("no such archive")') + 2
        assert (failure.type, failure.step, failure.frames[-1].where) == ("OSError", None, f"cell [4] line {line}")
        assert runs(made) == attempt
