"""Test that retention keeps checkpoints selected by rules, pinned ones and those for a fallback, and no others."""

from __future__ import annotations

import math
import random

import pytest

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.retention import decide_retention, expendable
from kernel_backend.model.experiment import Keep, Metric

HISTORIES = 1000
LOSS = Metric()


def manifest(step: int, loss: float | None = None, trial: int = 1, pinned: bool = False, attempt: int = 1) -> Manifest:
    return Manifest(
        experiment=1, trial=trial, attempt=attempt, step=step, epoch=0.0, at=0.0, world=1, seed=0, params={}, parts=(),
        metrics={} if loss is None else {"loss": loss}, pinned=pinned,
    )  # fmt: skip


def kept(manifests: list[Manifest], keep: Keep, may_run: bool = False, metric: Metric = LOSS) -> dict[int, tuple]:
    """Return the reasons to retain, by step, of the checkpoints that stay."""
    verdicts = decide_retention({1: manifests}, keep, metric, {1} if may_run else set())
    return {verdict.manifest.step: verdict.reasons for verdict in verdicts if verdict.reasons}


def test_a_checkpoint_stays_for_every_rule_that_names_it():
    some = [manifest(10, 0.1), manifest(20, 0.5, pinned=True), manifest(30, 0.4), manifest(40), manifest(50, 0.3)]
    assert kept(some, Keep(), may_run=True) == {
        10: ("best",),
        20: ("pinned",),
        40: ("latest", "fall-back"),
        50: ("latest", "fall-back"),
    }


def test_of_a_trial_that_may_run_again_the_two_newest_stay_whatever_the_rules_say():
    some = [manifest(step) for step in (10, 20, 30)]
    nothing = Keep(best=0, latest=0)
    assert kept(some, nothing, may_run=True) == {20: ("fall-back",), 30: ("fall-back",)}
    assert kept(some, nothing, may_run=False) == {}


def test_what_has_no_value_is_never_best_and_of_equal_ones_the_earlier_is():
    some = [manifest(10, 0.2), manifest(20, 0.2), manifest(30, math.nan), manifest(40)]
    assert kept(some, Keep(best=1, latest=0)) == {10: ("best",)}
    assert kept(some[2:], Keep(best=1, latest=0)) == {}


def test_the_metric_says_what_best_is():
    some = [manifest(10, 0.2), manifest(20, math.inf), manifest(30, 0.3)]
    assert kept(some, Keep(best=1, latest=0), metric=Metric(name="loss", mode="max")) == {30: ("best",)}
    assert kept(some, Keep(best=1, latest=0), metric=Metric(name="accuracy", mode="max")) == {}


def test_best_overall_counts_over_all_trials():
    trials = {1: [manifest(10, 0.3), manifest(20, 0.2)], 2: [manifest(10, 0.1, trial=2), manifest(20, 0.25, trial=2)]}
    verdicts = decide_retention(trials, Keep(best=0, latest=0, best_overall=2), LOSS, set())
    stay = [(each.manifest.trial, each.manifest.step, each.reasons) for each in verdicts if each.reasons]
    assert stay == [(1, 20, ("best overall",)), (2, 10, ("best overall",))]


def test_a_running_trial_keeps_its_two_newest_and_as_many_of_its_best_as_there_may_be_overall():
    some = [manifest(10, 0.3), manifest(20, 0.1), manifest(30, 0.2), manifest(40, 0.4), manifest(50, 0.5)]
    goes = expendable(some, Keep(best=0, latest=0, best_overall=1), LOSS)
    assert [each.step for each in goes] == [10, 30]


@pytest.mark.parametrize("seed", [20])
def test_over_random_histories_exactly_the_right_ones_stay(seed, capsys):
    rng = random.Random(seed)
    judged = 0
    for number in range(HISTORIES):
        trials, keep, metric, may_run = history(rng)
        verdicts = decide_retention(trials, keep, metric, may_run)
        assert [each.manifest for each in verdicts] == [each for some in trials.values() for each in some]
        for verdict in verdicts:
            assert set(verdict.reasons) == oracle(verdict.manifest, trials, keep, metric, may_run), (seed, number)
        for trial, some in trials.items():
            goes = [each.manifest for each in verdicts if not each.reasons and each.manifest.trial == trial]
            assert not any(each.pinned for each in goes), (seed, number)
            assert trial not in may_run or not any(each in some[-2:] for each in goes), (seed, number)
        judged += len(verdicts)
    with capsys.disabled():
        print(f"\nretention: {HISTORIES} random histories, {judged} checkpoints judged right (seed {seed})")


def history(rng: random.Random):
    """Return random checkpoints of an experiment's trials, with ties, gaps and NaN in their values."""
    trials = {}
    for trial in range(1, rng.randint(1, 4) + 1):
        places = {(rng.randint(1, 30), rng.randint(1, 3)) for _ in range(rng.randint(0, 12))}
        trials[trial] = [
            manifest(step, rng.choice([None, math.nan, math.inf, -0.0, 0.0, rng.random(), rng.randint(0, 3)]), trial,
                     rng.random() < 0.1, attempt)
            for step, attempt in sorted(places)
        ]  # fmt: skip
    keep = Keep(best=rng.randint(0, 3), latest=rng.randint(0, 3), best_overall=rng.choice([None, 0, 1, 4]))
    metric = Metric(name=rng.choice(["loss", "loss", "loss", "other"]), mode=rng.choice(["min", "max"]))
    return trials, keep, metric, {trial for trial in trials if rng.random() < 0.5}


def oracle(one: Manifest, trials, keep: Keep, metric: Metric, may_run) -> set[str]:
    """Return the reasons by a direct implementation of the rules, which counts better checkpoints without sorting."""

    def valued(each: Manifest) -> bool:
        return metric.name in each.metrics and math.isfinite(each.metrics[metric.name])

    def beats(other: Manifest) -> bool:
        if not valued(other):
            return False
        mine, its = one.metrics[metric.name], other.metrics[metric.name]
        if mine == its:
            return (other.trial, other.step, other.attempt) < (one.trial, one.step, one.attempt)
        return its < mine if metric.mode == "min" else its > mine

    siblings = trials[one.trial]
    everyone = [each for some in trials.values() for each in some]
    newer = sum((each.step, each.attempt) > (one.step, one.attempt) for each in siblings)
    reasons = set()
    if valued(one) and sum(map(beats, siblings)) < keep.best:
        reasons.add("best")
    if valued(one) and keep.best_overall and sum(map(beats, everyone)) < keep.best_overall:
        reasons.add("best overall")
    if newer < keep.latest:
        reasons.add("latest")
    if newer < 2 and one.trial in may_run:
        reasons.add("fall-back")
    return reasons | ({"pinned"} if one.pinned else set())
