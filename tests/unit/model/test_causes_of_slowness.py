"""Test the sentence about what makes a training slow: named where one cause stands out, silent otherwise."""

from __future__ import annotations

import pytest

from kernel_backend.model.experiment import Config
from kernel_backend.model.times import Loader, Part, RankTimes, Split
from kernel_backend.model.views.slowness import sentence


def rank(number: int = 0, steps: int = 1000, **parts: float) -> RankTimes:
    """Return the times of a rank whose steps take these milliseconds by part."""
    details = {name: parts.pop(name) for name in ("operations", "written_bytes", "written_s") if name in parts}
    named: dict[Part, float] = {name: ms * steps / 1000 for name, ms in parts.items()}  # type: ignore[misc]
    return RankTimes(rank=number, node=f"n{number}", whole=Split(steps=steps, parts=named), **details)  # type: ignore[arg-type]


def reads(times: RankTimes, loader: Loader, workers: int) -> RankTimes:
    return times.model_copy(update={"loader": loader, "workers": workers})


def said(*ranks: RankTimes, live: bool = False, config: Config | None = None) -> str:
    return sentence(ranks, config or Config(), live=live)


HEALTHY = [
    [rank(forward=4, backward=7, optimizer=1, data=0.5, stall=0.2, operations=40)],
    [rank(forward=4, backward=7, data=3.0)],  # 21 %
    [rank(forward=10, backward=18, checkpoint=1.5)],
    [rank(forward=10, backward=10, validation=15)],
    [rank(0, forward=5, backward=9, communication=4), rank(1, forward=5.4, backward=9, communication=3.6)],
    [rank(0, forward=5, backward=9, communication=9), rank(1, forward=7, backward=9, communication=6)],
    [rank(forward=30, backward=60, operations=400)],
    [rank(stall=50, forward=10)],  # a user's callbacks
    [],
]


@pytest.mark.parametrize("ranks", HEALTHY)
def test_nothing_is_said_where_nothing_stands_out(ranks: list[RankTimes]) -> None:
    assert said(*ranks) == ""


@pytest.mark.parametrize(
    ("times", "way_out"),
    [
        (reads(rank(data=13, forward=3, backward=5), "indexed", 0), "--loader-workers 2 would hide it"),
        (reads(rank(data=28, forward=2, backward=5), "indexed", 0), "--loader-workers 4 would hide it"),
        (reads(rank(data=13, forward=3, backward=5), "indexed", 2), "--loader-workers 6 would hide it"),
        (reads(rank(data=13, forward=3, backward=5), "own", 0), "num_workers=2 in the DataLoader would hide it"),
        (reads(rank(data=13, forward=3, backward=5), "stream", 0), "--loader-workers 1 would hide a part of it"),
        (reads(rank(data=13, forward=3, backward=5), "stream", 1), "make samples cheaper to read"),
        (reads(rank(data=13, forward=3, backward=5), "indexed", 16), "16 loader processes are too few"),
    ],
)
def test_waiting_for_data_is_named_with_the_number_of_processes_that_hide_it(times: RankTimes, way_out: str) -> None:
    share = "62 %" if times.whole.parts["data"] == 13 else "80 %"
    assert said(times).startswith(f"{share} of each step waits for data: ")
    assert way_out in said(times)


def test_a_number_of_loader_processes_that_was_given_is_answered_by_auto() -> None:
    waits = rank(data=13, forward=3, backward=5)
    fixed = Config(loader_workers=2)
    text = "62 % of each step waits for data: --loader-workers auto would find how many hide it"
    assert said(reads(waits, "indexed", 2), config=fixed) == text
    assert "num_workers=2 in the DataLoader" in said(reads(waits, "own", 0), config=fixed)


def test_a_slow_rank_is_named_with_its_node_and_what_takes_it_longer() -> None:
    others = [rank(number, forward=5, backward=10, communication=6.5) for number in (0, 1, 2)]
    slow = rank(3, forward=5, backward=16, communication=0.5)
    assert said(*others, slow).startswith("rank 3 is 40 % slower than the others (node n3), mostly in backward: ")


def test_communication_counts_as_that_of_the_rank_that_waits_least() -> None:
    ranks = [rank(0, forward=4, backward=7, communication=9), rank(1, forward=4.5, backward=7, communication=8.5)]
    assert said(*ranks).startswith("2 slots bring 1.1x here: averaging gradients takes 42 %; ")
    ranks = [rank(0, forward=4, backward=3, communication=13), rank(1, forward=4.5, backward=7, communication=8.5)]
    assert said(*ranks).startswith("2 slots bring 1.1x here: averaging gradients takes 42 %, waiting for the slowest ")


def test_checkpoints_are_named_with_the_rate_of_the_store() -> None:
    writes = rank(0, forward=4, backward=5, checkpoint=1, written_bytes=40e6, written_s=2.0)
    waits = rank(1, forward=4, backward=5, communication=1)
    expected = "checkpoints take 10 %: the store writes 20.0 MB/s; --checkpoint-every 10m saves less often"
    assert said(writes, waits) == expected


def test_a_validation_is_named_only_where_it_takes_most_of_the_time() -> None:
    assert said(rank(forward=4, backward=6, validation=30)).startswith("validation takes 75 % of the time: ")


def test_a_small_model_is_named_by_the_operations_of_its_graph() -> None:
    small = rank(steps=10_000, forward=0.4, backward=0.4, optimizer=0.2, operations=30)
    assert said(small) == "the model is so small that Python takes 75 %: try --compile or a larger batch"
    assert said(small, config=Config(compile=True)).endswith(": try a larger batch")


def test_the_costliest_of_several_causes_is_named() -> None:
    both = rank(forward=4, backward=4, data=4, checkpoint=2)
    assert said(both).startswith("29 % of each step waits for data")


def test_too_few_steps_and_too_little_time_say_nothing() -> None:
    assert said(rank(steps=19, data=1000, forward=100)) == ""
    assert said(rank(steps=100, data=50, forward=10)) == ""  # 6 s


def test_a_running_training_is_judged_by_its_last_minute() -> None:
    whole = rank(forward=4, backward=7, data=0.1)
    now_slow = rank(steps=1000, forward=4, backward=7, data=30).whole
    times = whole.model_copy(update={"minute": now_slow})
    assert said(times, live=True).startswith("73 % of each step waits for data")
    assert said(times) == ""
    early = whole.model_copy(update={"minute": rank(steps=5, data=9000).whole})
    assert said(early, live=True) == ""  # too few steps: the whole run counts
