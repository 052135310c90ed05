"""Test trainings that must not continue for now: their time is used up, or their request became impossible."""

from __future__ import annotations

import pytest

from kernel_backend.client import Client
from kernel_backend.errors import ImpossibleAsk, InvalidRequest
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.ids import AttemptId
from tests.api.served import Served, submit, token_of
from tests.api.test_put_aside import trains
from tests.support.world import until


def test_a_training_whose_time_is_over_is_paused_and_has_as_long_again_when_it_is_resumed(
    served: Served, client: Client
) -> None:
    submit(client, max_time=0.5)
    trains(served, client, AttemptId(1, 1, 1))
    until(lambda: client.experiment(1).trials[0].state == "releasing", "its time is over")
    served.engine.step_aside(AttemptId(1, 1, 1))
    until(lambda: client.experiment(1).trials[0].state == "paused", "it has gone")
    assert client.experiment(1).warnings == (
        "paused: its --max-time of 0.5s is over; daylight resume 1 gives it as long again",
    )
    client.resume(1)
    token_of(served, AttemptId(1, 1, 2))
    until(lambda: client.experiment(1).trials[0].state == "releasing", "it is over once more")


def test_an_ask_that_has_become_impossible_is_held_and_says_so_and_goes_on_by_itself(
    served: Served, client: Client
) -> None:
    first = submit(client, "first", slots=2)
    token_of(served, AttemptId(1, 1, 1))
    submit(client, "second", slots=2)
    served.roster.users = {first.experiment.owner: Quota(limit=1)}
    client.pause(2)  # the next round is now
    client.resume(2)
    until(lambda: (now := client.experiment(2)).trials[0].state == "paused" and now.wait is not None, "it is held")
    assert client.experiment(2).state == "queued"
    wait = client.experiment(2).wait
    assert wait is not None
    assert wait.reason == (
        "2 slots requested; you may have 1 in one trial. The most for one trial there: 1. It goes on by itself as "
        "soon as that is possible."
    )
    served.roster.users = {}
    until(lambda: client.experiment(2).trials[0].state == "queued", "it is queued again")


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"slots": 3}, ImpossibleAsk, r"3 slots requested; here has 2. The most for one trial there: 2 \(--slots 2\)"),
        ({"pool": "locla"}, InvalidRequest, r"--pool locla: there is no such pool \(did you mean local\?\); there is"),
        ({"slots": 2, "group": None}, ImpossibleAsk, r"2 slots requested; you may have 1 in one trial"),
    ],
)
def test_what_can_never_be_had_is_refused_at_once(
    served: Served, client: Client, asked: dict[str, object], error: type[Exception], said: str
) -> None:
    owner = submit(client).experiment.owner
    if "group" in asked:
        served.roster.users = {owner: Quota(max_slots_per_trial=1)}
    with pytest.raises(error, match=said):
        submit(client, **asked)
    assert len(client.experiments()) == 1
