"""Test which of several jobs' values the notebook gets, and what of its own stays."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from jupyter_ext.job.values import JobValues
from jupyter_ext.values.awaited import AwaitedValues, NotRun
from kernel_backend.model.artifacts import RANDOM, CellValues
from kernel_backend.snapshots.trainers import TrainedTrainer


class Ended:
    """A job that has ended, and has stored these values."""

    def __init__(self, number: int, slots: int = 1, missing: dict[str, str] | None = None, **values: Any) -> None:
        self.number, self._values = number, values
        texts = {name: repr(each) for name, each in values.items()}
        self._index = CellValues(values=texts, missing=missing or {}, bytes=1, digest="", slots=slots)

    def values(self, trial: int | None = None, *, wait: bool = True, arriving: Any = None) -> JobValues:
        return JobValues(self.number, self._index, self._values)


class Trainer:
    """A Trainer of the notebook, with what is put into it."""

    def __init__(self, model: str) -> None:
        self.model = model


class Trained(TrainedTrainer):
    """State of a Trainer of `Trainer`'s kind."""

    def put_into(self, trainer: Any) -> None:
        trainer.model, trainer.log = self.model, self.state


def expect(awaited: AwaitedValues, job: Any, *names: str, makes: str = "") -> None:
    awaited.expect(job, None, names, f"%%dlsubmit\ncell of {job.number}", makes=makes)  # type: ignore[arg-type]


def arrived(awaited: AwaitedValues, job: Any) -> None:
    awaited.arrived(job)


def test_of_two_jobs_that_set_a_name_the_later_one_counts() -> None:
    held: dict[str, Any] = {}
    awaited = AwaitedValues(held)
    first, second = Ended(1, model="first", loss=1), Ended(2, model="second")
    expect(awaited, first, "model", "loss")
    expect(awaited, second, "model")
    arrived(awaited, first)
    assert held == {"loss": 1}
    arrived(awaited, second)
    assert held == {"loss": 1, "model": "second"}


def test_what_the_user_sets_meanwhile_stays_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    held: dict[str, Any] = {"best": 0}
    awaited = AwaitedValues(held)
    job = Ended(7, best=9, loss=1)
    expect(awaited, job, "best", "loss")
    held["best"] = 5
    arrived(awaited, job)
    assert held == {"best": 5, "loss": 1}
    said = capsys.readouterr().out
    assert "from #7: loss" in said
    assert "note: best was set here since, and stays; %dl values 7 best --as NAME brings the job's" in said
    assert awaited.bound == ["loss"]
    held["loss"] = 2
    assert awaited.bound == []


def test_a_value_that_could_not_come_is_not_replaced_by_an_older_one_in_silence() -> None:
    held: dict[str, Any] = {"big": "old", "other": "old"}
    awaited, job = AwaitedValues(held), Ended(7, missing={"big": "it has 2 GB", "other": "it has 2 GB"}, loss=1)
    expect(awaited, job, "big", "other", "loss")
    arrived(awaited, job)
    with pytest.raises(NotRun, match="big could not come back from #7: it has 2 GB\nrun the cell again to use the"):
        awaited.bind_for("print(big)")
    awaited.bind_for("print(big)")
    held["other"] = "new"
    awaited.bind_for("print(other)")


def test_a_value_under_another_name_leaves_the_notebooks_own(capsys: pytest.CaptureFixture[str]) -> None:
    held: dict[str, Any] = {"history": "mine"}
    awaited = AwaitedValues(held)
    awaited.bind(Ended(4, slots=2, history=[1], loss=2), ["history"], renamed="theirs")  # type: ignore[arg-type]
    assert held == {"history": "mine", "theirs": [1]}
    assert "from #4 (rank 0): theirs" in capsys.readouterr().out


def test_the_random_generators_are_set_only_if_the_job_has_stored_them() -> None:
    random.seed(3), torch.manual_seed(3)
    before = random.getstate(), torch.get_rng_state()
    states = {"python": random.Random(8).getstate(), "torch": torch.Generator().manual_seed(8).get_state()}
    awaited = AwaitedValues({})
    job = Ended(1, loss=1)
    expect(awaited, job, "loss")
    arrived(awaited, job)
    assert random.getstate() == before[0]
    other = Ended(2, loss=2, **{RANDOM: states})
    expect(awaited, other, "loss")
    arrived(awaited, other)
    assert random.random() == random.Random(8).random()
    assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(8)))


def test_a_trainer_is_made_by_the_cells_own_line_and_gets_what_the_job_has_made_of_its_own() -> None:
    held: dict[str, Any] = {"Trainer": Trainer}
    awaited, job = AwaitedValues(held), Ended(3, model="trained", trainer=Trained("trained", [0.5]))
    expect(awaited, job, "model", "trainer", makes="trainer = Trainer(model)")
    arrived(awaited, job)
    assert (type(held["trainer"]), vars(held["trainer"])) == (Trainer, {"model": "trained", "log": [0.5]})
    assert awaited.bound == ["model"]  # later cells that are submitted make the Trainer by its line


def test_a_trainer_of_an_earlier_cell_gets_it_and_without_any_the_state_is_bound() -> None:
    own = Trainer("mine")
    held: dict[str, Any] = {"trainer": own}
    awaited, job = AwaitedValues(held), Ended(3, trainer=Trained("trained", [0.5]))
    expect(awaited, job, "trainer")
    arrived(awaited, job)
    assert (held["trainer"], own.model) == (own, "trained")
    del held["trainer"]
    awaited.bind(job)  # type: ignore[arg-type]
    assert held["trainer"].state == [0.5]
    awaited.bind(job, ["trainer"], renamed="other")  # type: ignore[arg-type]
    assert repr(held["other"]) == ("<state of the job's Trainer of str: put_into(trainer) brings it into another>")


def test_a_trainer_that_cannot_be_made_here_fails_the_cell_that_reads_it_alone() -> None:
    held: dict[str, Any] = {}
    awaited, job = AwaitedValues(held), Ended(3, model="trained", trainer=Trained("trained", []))
    expect(awaited, job, "model", "trainer", makes="trainer = Trainer(devices=8)")
    arrived(awaited, job)
    assert held["model"] == "trained"
    awaited.bind_for("model")
    with pytest.raises(NotRun, match=r"trainer could not be made again here: NameError: .*%dl values 3 trainer --as"):
        awaited.bind_for("trainer.predict(x)")


def test_two_names_of_one_trainer_are_of_one_here() -> None:
    trained = Trained("trained", [])
    held: dict[str, Any] = {"Trainer": Trainer}
    awaited, job = AwaitedValues(held), Ended(3, model="trained", trainer=trained, same=trained)
    expect(awaited, job, "model", "trainer", "same", makes="trainer = same = Trainer(model)")
    arrived(awaited, job)
    assert held["trainer"] is held["same"]


def test_the_notebooks_own_trainer_stays_if_it_cannot_take_what_the_job_has_made() -> None:
    held: dict[str, Any] = {"trainer": "of another kind"}
    awaited, job = AwaitedValues(held), Ended(3, trainer=Trained("trained", []))
    expect(awaited, job, "trainer")
    arrived(awaited, job)
    with pytest.raises(NotRun, match="trainer could not be made again here: AttributeError"):
        awaited.bind_for("trainer")
    awaited.bind_for("trainer")
    assert held["trainer"] == "of another kind"


def test_nothing_of_a_cell_is_read_while_no_job_is_awaited() -> None:
    AwaitedValues({}).bind_for("this is no cell of Python at all(")
