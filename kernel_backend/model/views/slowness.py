"""Name in one sentence the main cause of a slow training and its remedy, if a cause stands out.

A cause costs a share of the time, and is mentioned only above a threshold. Of several causes the costliest is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from kernel_backend.model.experiment import Config
from kernel_backend.model.sizes import size
from kernel_backend.model.times import LABELS, Part, RankTimes, Split

LEAST_STEPS, LEAST_S = 20, 8.0  # of each rank; less says nothing
# Thresholds, as fractions of the time.
DATA = 0.25
COMMUNICATION = 0.30
CHECKPOINT = 0.08  # adaptive checkpoints take at most 1 %
VALIDATION = 0.60
PYTHON = 0.50
SLOWER, LOST_TO_RANK = 1.25, 0.10  # a rank's step against the median of the others, and the time that it costs them
# Typical time of an operation of the autograd graph that computes nearly nothing: its call in Python, its launch in the
# forward pass and in the backward pass.
OPERATION_S = 20e-6
MOST_WORKERS = 16
_NOTED = 0.05  # share of the time that a sentence mentions besides
_CHEAPER = "make samples cheaper to read, for example by decoding them once before the training"

# Parts without waiting for others.
_OWN: tuple[Part, ...] = ("data", "input", "transfer", "forward", "backward", "optimizer")
_COMPUTED: tuple[Part, ...] = ("forward", "backward", "optimizer")


class Cause(NamedTuple):
    """Cause of lost time: the fraction of the time that it costs, and the sentence for the user."""

    lost: float
    sentence: str


def sentence(ranks: Sequence[RankTimes], config: Config, *, live: bool) -> str:
    """Return the sentence about the cause that costs a training most time, such as loading data.

    `ranks` has the measured times of its ranks. Returns "" if no cause is above its threshold, or too little is known.
    A running training (`live`) is judged by its last minute, if that has enough steps.
    """
    recent = live and all(_suffices(each.minute) for each in ranks)
    splits = [each.minute if recent else each.whole for each in ranks]
    if not splits or not all(_suffices(each) for each in splits):
        return ""
    found = max(_causes(ranks, splits, config), default=None)
    return "" if found is None else found.sentence


def percent(share: float) -> str:
    """Return a fraction as a percentage.

    Examples
    --------
    >>> percent(0.617)
    '62 %'
    """
    return f"{100 * share:.0f} %"


def _suffices(split: Split) -> bool:
    return split.steps >= LEAST_STEPS and split.seconds >= LEAST_S


def _causes(ranks: Sequence[RankTimes], splits: Sequence[Split], config: Config) -> Iterator[Cause]:
    for cause, threshold in (
        (_data(ranks, splits, config), DATA),
        (_input(splits), DATA),
        (_slow_rank(ranks, splits), LOST_TO_RANK),
        (_communication(splits), COMMUNICATION),
        (_checkpoints(ranks, splits), CHECKPOINT),
        (_validation(splits), VALIDATION),
        (_python(ranks, splits, config), PYTHON),
    ):
        if cause.lost >= threshold:
            yield cause


def _mean(splits: Sequence[Split], *parts: Part) -> float:
    return sum(each.share(*parts) for each in splits) / len(splits)


def _data(ranks: Sequence[RankTimes], splits: Sequence[Split], config: Config) -> Cause:
    share = _mean(splits, "data")
    workers, loader = ranks[0].workers, ranks[0].loader
    busy = 1 - share
    # Without processes a batch takes as long as its wait; with some of them, each makes one in the time of as many
    # steps.
    needed = share / busy if workers == 0 else workers / busy
    wanted = min(MOST_WORKERS, max(workers + 1, math.ceil(round(needed, 6))))
    if loader == "stream":
        way_out = "--loader-workers 1 would hide a part of it" if workers == 0 else _CHEAPER
    elif config.loader_workers is not None and loader != "own":
        way_out = "--loader-workers auto would find how many hide it"
    elif workers >= MOST_WORKERS:
        way_out = f"{workers} loader processes are too few, so {_CHEAPER}"
    else:
        option = f"num_workers={wanted} in the DataLoader" if loader == "own" else f"--loader-workers {wanted}"
        way_out = f"{option} would hide it"
    return Cause(share, f"{percent(share)} of each step waits for data: {way_out}")


def _input(splits: Sequence[Split]) -> Cause:
    share = _mean(splits, "input")
    return Cause(
        share,
        f"{percent(share)} of each step waits for files that are still fetched from their store: this ends once they "
        "are on the node, unless its cache is too small for all of them",
    )


def _slow_rank(ranks: Sequence[RankTimes], splits: Sequence[Split]) -> Cause:
    if len(ranks) < 2:
        return Cause(0.0, "")
    steps = [_step(each, *_OWN) for each in splits]
    slowest = max(range(len(steps)), key=steps.__getitem__)
    others = [each for place, each in enumerate(splits) if place != slowest]
    usual = median(_step(each, *_OWN) for each in others)
    if steps[slowest] < SLOWER * usual:
        return Cause(0.0, "")
    lost = (steps[slowest] - usual) / (splits[slowest].seconds / splits[slowest].steps)
    excess = {part: _step(splits[slowest], part) - median(_step(each, part) for each in others) for part in _OWN}
    part = max(_OWN, key=excess.__getitem__)
    rank = ranks[slowest]
    where = f" (node {rank.node})" if rank.node else ""
    more = percent(steps[slowest] / usual - 1) if usual else "much"
    text = f"rank {rank.rank} is {more} slower than the others{where}, mostly in {LABELS[part]}"
    return Cause(lost, f"{text}: see what else runs there, or whether its part of the data takes longer")


def _step(split: Split, *parts: Part) -> float:
    return sum(split.parts.get(part, 0.0) for part in parts) / split.steps


def _communication(splits: Sequence[Split]) -> Cause:
    # The rank that waits least: the others wait for it, too, and not for the network alone.
    share = min(each.share("communication") for each in splits)
    slots = len(splits)
    text = f"{slots} slots bring {slots * (1 - share):.1f}x here: averaging gradients takes {percent(share)}"
    if (waits := _mean(splits, "communication") - share) >= _NOTED:
        text += f", waiting for the slowest slot {percent(waits)} more"
    return Cause(share, f"{text}; fewer slots or a larger --batch-size communicate less")


def _checkpoints(ranks: Sequence[RankTimes], splits: Sequence[Split]) -> Cause:
    share = max(each.share("checkpoint") for each in splits)  # rank 0 writes, the others wait for it in their sums
    rank = max(ranks, key=lambda each: each.written_bytes)
    text = f"checkpoints take {percent(share)}"
    if rank.written_s:
        text += f": the store writes {size(int(rank.written_bytes / rank.written_s))}/s"
    return Cause(share, f"{text}; --checkpoint-every 10m saves less often")


def _validation(splits: Sequence[Split]) -> Cause:
    share = _mean(splits, "validation")
    return Cause(share, f"validation takes {percent(share)} of the time: --validate-every 5epochs validates less often")


def _python(ranks: Sequence[RankTimes], splits: Sequence[Split], config: Config) -> Cause:
    computing = _mean(splits, "forward", "backward") * splits[0].seconds / splits[0].steps
    if not computing:
        return Cause(0.0, "")
    share = min(1.0, ranks[0].operations * OPERATION_S / computing) * _mean(splits, *_COMPUTED)
    way_out = "try a larger batch" if config.compile else "try --compile or a larger batch"
    return Cause(share, f"the model is so small that Python takes {percent(share)}: {way_out}")
