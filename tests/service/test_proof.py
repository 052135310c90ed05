"""The proof, in small: random kills of random processes, on both backends, at two slots and at three."""

from __future__ import annotations

import random

import pytest

from tests.support.world import World
from tests.torture import kills

pytestmark = pytest.mark.distributed

KILLS = 3  # of each kind of gang: six in all; `make torture` has hundreds, of both backends at both numbers of slots


@pytest.fixture(scope="module")
def tortured(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("torture") / "home", slots=3)
    world.serve()
    yield world
    world.close()


@pytest.fixture(scope="module")
def quiet(tortured):
    return {slots: kills.quiet(tortured, slots=slots, backend="torch") for slots in (2, 3)}


@pytest.mark.parametrize(("slots", "backend"), [(2, "horovod"), (3, "torch")])
def test_random_kills_leave_no_trace_in_the_result(tortured, quiet, slots, backend, capsys):
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # for whoever looks at why it failed, wherever that was
    said = kills.proof(KILLS, seed, slots, backend, tortured, quiet[slots])
    with capsys.disabled():
        print(f"\n{said}; seed {seed}")
