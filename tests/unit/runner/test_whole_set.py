"""Test the `metrics` role in a validation on one rank: its calls, arguments, and allowed results."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.metrics.join import NotJoined, join
from kernel_backend.runner.metrics.whole_set import LIMIT, MetricPart, Metrics
from kernel_backend.runner.ranks.backends import SingleRank

CPU = torch.device("cpu")


def evaluated(function, outputs, targets, asked=("output", "target"), limit=LIMIT, times=1):
    metrics = Metrics(function, frozenset(asked), SingleRank(), CPU, limit)
    for _ in range(times):
        evaluation = metrics.begin(epoch=3)
        for number, (output, target) in enumerate(zip(outputs, targets, strict=True)):
            evaluation.add(MetricPart(number, 0, len(target), {"output": output, "target": target, "epoch": 3}))
            evaluation.end_batch(number)
        found = evaluation.finish()
    return found


BATCHES = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 8.0])], [torch.zeros(3), torch.zeros(2)]


def test_a_number_comes_from_one_call_with_all_samples():
    found = evaluated(lambda output, target: {"rms": output.square().mean().sqrt(), "largest": output}, *BATCHES)
    assert found == pytest.approx({"rms": (94 / 5) ** 0.5, "largest": 18 / 5})


def test_values_per_sample_are_summed_batch_by_batch_and_nothing_is_kept():
    sizes = []

    def metrics(output, target):
        sizes.append(len(output))
        return {"error": (output - target).abs(), "as array": output.numpy()}

    assert evaluated(metrics, *BATCHES, limit=12) == {"error": 18 / 5, "as array": 18 / 5}
    assert sizes == [3, 2]


def test_one_value_of_the_only_sample_may_be_either():
    one = [torch.tensor([value]) for value in (1.0, 2.0, 6.0)]
    assert evaluated(lambda output, target: {"error": output}, one, one) == {"error": 3.0}
    assert evaluated(lambda output, target: {"error": output}, one, one, limit=4) == {"error": 3.0}
    assert evaluated(lambda output, target: {"root": output.mean().sqrt()}, one, one) == pytest.approx({"root": 3**0.5})
    with pytest.raises(InvalidDefinition, match=r"root\), so it is called once with output and target of all"):
        evaluated(lambda output, target: {"root": output.mean().sqrt()}, one, one, limit=4)


def test_a_batch_that_is_too_small_for_a_metric_is_no_fault():
    def needs_all(output, target):
        if len(output) < 5:
            raise ValueError("only one class")
        return {"auc": 0.75}

    assert evaluated(needs_all, *BATCHES) == {"auc": 0.75}
    with pytest.raises(ValueError, match="only one class"):
        evaluated(needs_all, BATCHES[0][:1], BATCHES[1][:1])
    with pytest.raises(ValueError, match="only one class"):
        evaluated(needs_all, *BATCHES, limit=12)


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        (lambda output, target: 0.5, "metrics\\(\\) returned a float; it must return a dict"),
        (lambda output, target: {"f1": "high"}, "metric f1 is a str: return a tensor with one value per sample"),
        (lambda output, target: {"f1": torch.ones(4)}, "metric f1 has 4 values for a batch of 3 samples"),
        (
            lambda output, target: {"f1": output.sum() if len(output) == 2 else output},
            "returned a number for f1, and one value per sample before",
        ),
    ],
)
def test_what_is_no_metric_is_told(metrics, says):
    with pytest.raises(InvalidDefinition, match=says):
        evaluated(lambda output, target: metrics(output, target), *BATCHES)


def test_more_than_the_limit_is_refused_with_what_to_do_instead():
    says = r"returns a number \(mean\).* more than 1.2e-08 GB: return one value per sample, or objects of torchmetrics"
    with pytest.raises(InvalidDefinition, match=says):
        evaluated(lambda output, target: {"mean": output.mean()}, *BATCHES, limit=12)


SHORT, WIDE = torch.ones(3, 4), torch.ones(2, 5)


@pytest.mark.parametrize(
    ("outputs", "name", "says"),
    [
        ([SHORT, SHORT, WIDE], "output", r"\(3, 4\) in batch 1 and \(2, 5\) in batch 3"),
        (
            [{"a": (each, 1, 2, 3)} for each in (SHORT, SHORT, WIDE)],
            r"output\['a'\]\[0\]",
            r"\(3, 4\) in batch 1 and \(2, 5\) in batch 3",
        ),
    ],
)
def test_a_batch_of_another_width_is_refused_at_once_with_what_to_do_instead(outputs, name, says):
    def batches():
        yield from outputs
        raise AssertionError("it went on")

    sizes = [torch.zeros(3), torch.zeros(3), torch.zeros(2), torch.zeros(1)]
    says = rf"\(mean\).*, and batches of {name} differ in shape, {says}: pad all batches to one width .* or return one"
    with pytest.raises(InvalidDefinition, match=says):
        evaluated(lambda output, target: {"mean": torch.tensor(0.5)}, batches(), sizes)


def test_batches_of_other_widths_are_no_fault_of_values_per_sample():
    found = evaluated(lambda output, target: {"mean": output.mean(1)}, [SHORT, WIDE], BATCHES[1])
    assert found == {"mean": 1.0}


def test_metrics_that_fail_on_batches_of_any_width_raise_their_own_error():
    def fails(output, target):
        raise ValueError("no such class")

    with pytest.raises(ValueError, match="no such class"):
        evaluated(fails, [SHORT, WIDE], BATCHES[1])


class Largest:
    """Metric of the simplest kind."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.seen = []

    def update(self, output, target):
        self.seen += output.tolist()

    def compute(self):
        return {"largest": max(self.seen), "count": len(self.seen)}


KEPT = Largest()


def updated_by_the_user(output, target):
    KEPT.update(output, target)
    return {"it": KEPT}


@pytest.mark.parametrize(
    ("metrics", "asked"),
    [(lambda epoch: KEPT, ()), (lambda epoch: {"it": KEPT}, ("epoch",)), (updated_by_the_user, ("output", "target"))],
)
def test_metric_objects_begin_anew_with_each_validation(metrics, asked):
    assert evaluated(metrics, *BATCHES, asked=asked, times=2) == {"largest": 8.0, "count": 5.0}


def test_numbers_that_ask_for_no_samples_are_taken_as_they_are():
    assert evaluated(lambda epoch: {"epoch": epoch}, *BATCHES, asked=("epoch",)) == {"epoch": 3.0}


Pair = namedtuple("Pair", "left right")


@dataclass
class Answer:
    """Output object like those of libraries."""

    logits: torch.Tensor
    loss: torch.Tensor | None = None


def test_outputs_of_any_structure_are_joined():
    def part(rows, offset):
        rows_of = torch.arange(rows, dtype=torch.float32) + offset
        return {
            "pair": Pair(rows_of, (rows_of.numpy(), None)),
            "answer": Answer(rows_of.reshape(rows, 1), torch.tensor(float(rows))),
            "names": [f"{offset}{number}" for number in range(rows)],
            "boxes": [torch.zeros(number, 4) for number in range(rows)],
            "mode": "eval",
            "odd": torch.ones(rows + 1),
        }

    joined = join([2, 3], [part(2, 0), part(3, 10)], "output")
    assert joined["pair"].left.tolist() == [0, 1, 10, 11, 12]
    assert isinstance(joined["pair"].right[0], np.ndarray)
    assert joined["pair"].right[1] is None
    assert joined["answer"].logits.shape == (5, 1)
    assert float(joined["answer"].loss) == pytest.approx((2 * 2 + 3 * 3) / 5)
    assert joined["names"] == ["00", "01", "100", "101", "102"]
    assert [len(each) for each in joined["boxes"]] == [0, 1, 0, 1, 2]
    assert joined["mode"] == "eval"
    assert isinstance(joined["odd"], NotJoined)
    with pytest.raises(InvalidDefinition, match=r"output\['odd'\] \(a tensor of shape \(3,\)\) has no row for each"):
        joined["odd"].mean()
