"""Test that a failing rank names the user's line, and that a gang which is asked to exit saves a checkpoint."""

from __future__ import annotations

import pytest
from gang import DIGITS

pytestmark = pytest.mark.distributed

RAISES = DIGITS.replace(
    "    time.sleep(pause)",
    """    global calls
    calls += 1
    if calls == 7 and torch.initial_seed() and int(__import__("os").environ["RANK"]) == 1:
        raise ValueError("seven is too many")""",
).replace("import time", "import time\ncalls = 0")


@pytest.mark.parametrize("backend", ["horovod", "torch"])
def test_a_rank_that_raises_tells_cell_line_and_step_and_the_other_is_a_consequence(trial, backend):
    ran = trial(source=RAISES, backend=backend, epochs=3).run()
    assert ran.codes == [1, 1], ran.logs()
    victim, culprit = ran.failures()[0], ran.failures()[1]
    assert (culprit.type, culprit.message, culprit.step) == ("ValueError", "seven is too many", 7)
    frame = culprit.frames[-1]
    line = 1 + RAISES.splitlines().index('        raise ValueError("seven is too many")')
    assert (frame.file, frame.function, frame.line) == ("definition.py", "loss", line)
    assert frame.where == f"cell [4] line {line + 1}"
    assert frame.text == 'raise ValueError("seven is too many")'
    assert not culprit.consequence
    assert victim.consequence, victim
    assert "seven is too many" in (ran.folder.path / "rank-1.log").read_text()


def test_an_error_in_the_cell_itself_is_a_failure_like_any_other(trial):
    ran = trial(source=DIGITS + "\nclass InvalidHyperparameters(Exception): ...\n"
                "raise InvalidHyperparameters('width is odd')\n", slots=1).run()  # fmt: skip
    failure = ran.failures()[0]
    assert (failure.type, failure.invalid, failure.step) == ("InvalidHyperparameters", True, None)
    assert failure.frames[-1].function == "<module>"
    assert ran.codes == [1]


@pytest.mark.parametrize("backend", ["horovod", "torch"])
def test_a_gang_that_is_released_commits_leaves_and_goes_on_with_the_same_bits(whole, trial, backend):
    released = trial(backend=backend, params={"pause": 0.05})
    first = released.start(hold=2).reaches(2)
    ask = first.tell("release").heard() if backend == "horovod" else first.terminate(rank=1)
    ask.go().ended()
    assert first.codes == [85, 85], first.logs()
    newest = released.newest()
    assert first.committed() == [newest.id]
    assert 2 <= newest.step < 12
    second = released.run(resume_from=newest.id)
    assert second.codes == [0, 0], second.logs()
    assert released.parts() == whole(backend, 2).trial.parts()


def test_ranks_whose_launcher_is_gone_end_at_once(trial):
    left = trial(params={"pause": 5.0}).start()
    left.wait(lambda: left.records)
    assert left.hang_up().ended().codes == [-9, -9]


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_taken(whole, trial):
    damaged = trial(every="5steps")
    assert damaged.run().codes == [0, 0]
    part = damaged.newest()
    path = damaged.folder / "checkpoints" / part.id / "optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = damaged.run(resume_from=part.id)
    assert again.codes == [0, 0], again.logs()
    assert again.started.resumed_from == "10-1"
    (note,) = again.notes()
    assert "optimizer has changed" in note
    assert "from checkpoint 10-1, steps 11 to 12 are trained again" in note
    assert (path.parent.parent / "12-1.bad").is_dir()
    assert damaged.newest().id == "12-2"
    assert damaged.parts() == whole("torch", 2).trial.parts()


def test_an_attempt_that_was_followed_by_another_commits_nothing_more_and_ends(trial):
    """The engine has given the attempt up behind a broken network, of which the attempt does not know."""
    given_up = trial(every="2steps", epochs=20, params={"pause": 0.03})
    ran = given_up.start(hold=3).reaches(3)
    given_up.home.fence(2)
    left = {manifest.id for manifest in given_up.home.committed()}
    ran.go().ended()
    assert set(ran.codes) == {1}
    causes = [failure for failure in ran.failures().values() if not failure.consequence]
    assert [(failure.type, failure.message) for failure in causes] == [
        ("Fenced", "attempt 1.1-1 was followed by attempt 2: it ends here")
    ]
    # One whose look at the claim was over already may still have come through.
    assert len({manifest.id for manifest in given_up.home.committed()} - left) <= 1
