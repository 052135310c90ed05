"""Test that slots are requested for one of the user's own groups, and for no other."""

from __future__ import annotations

import pytest

from kernel_backend.errors import Forbidden
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Config
from kernel_backend.service.admission import group_of
from kernel_backend.service.rerun import as_requested_by
from tests.unit.model.test_golden import experiment

DAVE = Person(name="dave", groups=("vision", "speech"))


def test_it_is_the_first_group_unless_another_is_named():
    assert group_of(DAVE, Config()) == "vision"
    assert group_of(DAVE, Config(group="speech")) == "speech"


def test_who_is_in_no_group_is_one_alone():
    alone = Person(name="eve")
    assert group_of(alone, Config()) == group_of(alone, Config(group="eve")) == "eve"


@pytest.mark.parametrize("name", ["visoin", "dave", "robots"])
def test_another_group_is_refused_with_the_nearest_and_all_that_are_theirs(name: str):
    with pytest.raises(Forbidden, match=rf"--group {name}: .*you are in vision, speech") as refused:
        group_of(DAVE, Config(group=name))
    assert ("did you mean vision?" in refused.value.message) is (name == "visoin")


def test_a_rerun_of_anothers_experiment_is_for_ones_own_group():
    before = experiment(config=Config(group="robots", slots=3), group="robots")
    assert as_requested_by(DAVE, before, Rerun(trust=before.owner)).config == Config(slots=3)
    same = experiment(config=Config(group="speech"))
    assert as_requested_by(DAVE, same, Rerun(trust=same.owner)) is same


def test_nobody_has_what_is_a_groups_by_being_called_as_it_is():
    squatter = Person(name="vision")
    with pytest.raises(Forbidden, match="there is a group vision, which you are not in"):
        group_of(squatter, Config(), {"vision", "speech"})
    assert group_of(Person(name="vision", groups=("speech",)), Config(), {"vision", "speech"}) == "speech"
    assert group_of(Person(name="vision", groups=("vision",)), Config(), {"vision"}) == "vision"
    assert group_of(Person(name="eve"), Config(), {"vision"}) == "eve"
