"""Test that a training at its target commits, waits for a further one, and continues or exits, with the same bits."""

from __future__ import annotations

import pytest
from form_contract import FormContract
from gang import DIGITS, Trial, as_json

pytestmark = pytest.mark.distributed

# What goes by the validation's metric, remembers every batch, or draws, shows whether a validation left a trace.
SENSITIVE = (
    DIGITS.replace(
        "def loss(",
        """def schedule(optimizer):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=10.0)
def loss(""",
    )
    .replace("nn.ReLU()", "Recurrent()")
    .replace('return {"accuracy": (', 'return {"luck": torch.rand(()), "accuracy": (')
    .replace(
        "def dataset():",
        """class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("before", torch.zeros(()))
    def forward(self, x):
        y = torch.relu(x + self.before)
        if self.training:
            self.before.copy_(0.5 * self.before + y.detach().mean())
        return y
def dataset():""",
        1,
    )
)


class TestContract(FormContract):
    """Test that functions keep what every form promises, on two slots."""

    source = DIGITS
    diverging = DIGITS.replace("lr=1e-2", "lr=1e30")
    slots = 2


def test_whoever_hears_nothing_at_its_target_leaves_and_comes_back_with_the_same_bits(whole, trial):
    paused = trial(backend="horovod", until=1)
    first = paused.run()
    assert first.codes == [85, 85], first.logs()
    assert first.committed() == ["6-1"]
    assert list(first.reports("validation")) == [6]
    paused.until = 2
    second = paused.run(resume_from="6-1")
    assert second.codes == [0, 0], second.logs()
    assert paused.parts() == whole("horovod", 2).trial.parts()
    assert as_json(second.reports("validation")[12]) == as_json(whole("horovod", 2).attempt.reports("validation")[12])


def test_a_target_that_is_told_early_is_taken_at_the_one_before(whole, trial):
    early = trial(until=1, epochs=3)
    ran = early.start().tell("until 2").ended()
    assert ran.codes == [85, 85], ran.logs()
    assert ran.committed() == ["6-1", "12-1"]
    assert early.parts() == whole("torch", 2).trial.parts()


def test_a_target_that_lies_behind_is_no_answer(trial):
    ran = trial(until=1).start().tell("until 1").ended()
    assert ran.codes == [85, 85], ran.logs()
    assert ran.committed() == ["6-1"]


def test_who_is_asked_to_leave_at_its_target_leaves(trial):
    ran = trial(until=1).start()
    ran.wait(lambda: ran.committed())
    ran.tell("release").tell("until 2").ended()
    assert ran.codes == [85, 85], ran.logs()
    assert ran.committed() == ["6-1"]


def test_who_is_asked_to_leave_in_the_step_of_its_target_says_its_value_first(trial):
    ran = trial(until=1, batch_size=70).start().tell("release").ended()
    assert ran.codes == [85, 85], ran.logs()
    assert (list(ran.reports("validation")), ran.committed()) == ([1], ["1-1"])


def test_an_attempt_that_begins_at_its_target_asks_at_once_and_says_its_value_again(trial):
    asking = trial(until=1, slots=1)
    first = asking.run()
    again = asking.run(resume_from="6-1")
    assert again.codes == [85], again.logs()
    assert (again.reports("training"), again.committed()) == ({}, [])
    assert as_json(again.reports("validation")) == as_json(first.reports("validation"))
    third = asking.start(resume_from="6-1")
    third.tell("until 2").ended()
    assert third.codes == [0], third.logs()
    assert list(third.reports("validation")) == [6, 12]


@pytest.mark.parametrize("rng", ["stream", pytest.param("derived", marks=pytest.mark.long)])
def test_a_target_between_epochs_is_validated_and_leaves_no_trace(tmp_path, rng):
    def train(name, until=None):
        options = {"steps": 14, "rng": rng}
        return Trial(tmp_path / name, source=SENSITIVE, every="3steps", until=until, options=options)

    whole = train("whole")
    straight = whole.run()
    assert straight.codes == [0, 0], straight.logs()
    told = train("told", until=4)
    ran = told.start().tell("until 8\nuntil 14").ended()  # in one piece: who hears the first knows the second
    assert ran.codes == [0, 0], ran.logs()
    assert list(ran.reports("validation")) == [4, 6, 12, 14]
    assert told.parts() == whole.parts()
    paused = train("paused", until=4)
    first = paused.run()
    assert first.codes == [85, 85], first.logs()
    assert first.committed() == ["3-1", "4-1"]
    paused.until = 14
    second = paused.run(resume_from="4-1")
    assert second.codes == [0, 0], second.logs()
    assert paused.parts() == whole.parts()


def test_a_search_without_its_metric_fails_at_the_first_validation(trial):
    options = {"search": {"method": "asha"}, "metric": {"name": "error"}}
    ran = trial(until=1, options=options).run()
    assert ran.codes == [1, 1], ran.logs()
    failure = ran.failures()[0]
    assert failure.type == "InvalidDefinition"
    assert failure.message.startswith("--metric error: the validation reports no such metric, only loss accuracy;")


def test_a_search_without_validation_is_refused_before_its_first_step(trial):
    source = DIGITS.replace("def validation_data", "def unused_data")
    ran = trial(source=source, slots=1, until=1, options={"search": {"method": "asha"}}).run()
    assert ran.codes == [1], ran.logs()
    assert "there is no validation_data()" in ran.failures()[0].message


def test_a_trial_that_begins_from_another_ones_checkpoint_has_its_own_learning_rate(tmp_path):
    parent = Trial(tmp_path / "parent", slots=1, until=1)
    assert parent.run().codes == [85]
    child = Trial(tmp_path / "child", slots=1, checkpoints=parent.checkpoints, params={"lr": 1e-3})
    child.attempts = 1  # its first would have the number of the parent's
    ran = child.run(resume_from="6-1")
    assert ran.codes == [0], ran.logs()
    (note,) = ran.notes()
    assert note.startswith("begins from checkpoint 6-1 of other hyperparameters: lr 0.01 -> 0.001;")
    assert child.newest().state["optimizer"]["param_groups"][0]["lr"] == 1e-3
    again = child.run(resume_from=child.newest().id)
    assert again.notes() == []
