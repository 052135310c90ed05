"""Test that a running training records steps on request, answers each request, and keeps its bits."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from kernel_backend.launch.trace import TraceRelay
from kernel_backend.model.launch.trace import OPERATIONS, RankTrace, Trace, artifact_of, instructed, result_file
from kernel_backend.model.reports import Instruction, Traced
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.tracer import Tracer, traced_text

TRACE = Trace(id="5f3a", steps=3, ranks=(0,))


class Kept(dict[str, bytes]):
    """Store of artifacts by name."""

    def __call__(self, name: str, path: Path) -> None:
        self[name] = path.read_bytes()


class Rank:
    """Rank that trains a small model, with its artifacts and reports."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.instructions, self.kept, self.told = Instructions(), Kept(), list[Traced]()
        spool = Spool(folder / "spool.jsonl", number)
        spool.say = self.told.append  # type: ignore[method-assign, assignment]
        keep = self.kept if number == 0 else None
        self.tracer = Tracer(folder, 12, self.instructions, spool, keep, number, torch.device("cpu"))

    def train(self, steps: int, asked_at: int | None = 2, trace: Trace = TRACE) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(net.parameters())
        for step in range(1, steps + 1):
            if step == asked_at:
                self.instructions.trace = trace
            self.tracer.phase("first step" if step == 1 else "step", step)
            optimizer.zero_grad()
            net(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
            self.tracer.phase("validation", step)
        self.tracer.close()
        return [*net.parameters(), torch.get_rng_state()]


def test_steps_are_recorded_and_the_training_keeps_its_bits(tmp_path: Path) -> None:
    alone = Rank(tmp_path).train(9, asked_at=None)
    rank = Rank(tmp_path)
    traced = rank.train(9)
    assert all(torch.equal(one, other) for one, other in zip(alone, traced, strict=True))
    assert [each.text for each in rank.told] == ["traced steps 3 to 5 of rank 0: daylight profile 12 --trace shows it"]
    assert rank.told[0].id == TRACE.id
    events = json.loads(gzip.decompress(rank.kept[artifact_of(0)]))["traceEvents"]
    assert {f"ProfilerStep#{number}" for number in (1, 2, 3)} <= {each.get("name") for each in events}
    (found,) = (RankTrace.model_validate(each) for each in json.loads(rank.kept[OPERATIONS]))
    assert (found.first, found.last) == (3, 5)
    assert {each.name: each.calls for each in found.operations}["aten::addmm"] == 6
    assert sorted(path.name for path in tmp_path.glob("trace-*")) == [result_file(TRACE.id, 0)]


def test_a_training_that_ends_before_says_what_was_recorded(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    rank.train(4)
    assert [each.text for each in rank.told] == ["traced steps 3 to 3 of rank 0: daylight profile 12 --trace shows it"]


def test_a_request_that_comes_too_late_is_answered(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    rank.train(3, asked_at=None)
    late = Rank(tmp_path)
    late.instructions.trace = TRACE
    late.tracer.close()
    assert [each.text for each in late.told] == ["no trace of rank 0: the training ended before a further step"]
    assert late.kept == {}


def test_rank_0_collects_what_other_ranks_have_recorded(tmp_path: Path) -> None:
    both = TRACE.model_copy(update={"ranks": (1, 2)})
    (tmp_path / result_file(TRACE.id, 2)).write_text(RankTrace(rank=2, problem="a full disk").model_dump_json())
    Rank(tmp_path, 1).train(8, trace=both)
    rank = Rank(tmp_path)
    rank.train(8, trace=both)
    assert set(rank.kept) == {artifact_of(1), OPERATIONS}
    assert rank.told[0].text == (
        "traced steps 3 to 5 of rank 1: daylight profile 12 --trace shows it; no trace of rank 2: a full disk"
    )


def test_a_second_profiler_is_told_and_no_error(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    with torch.profiler.profile():
        rank.train(8)
    assert len(rank.told) == 1


def test_a_request_is_an_instruction_that_is_passed_on_once() -> None:
    given: list[str] = []
    relay = TraceRelay(given.append)
    for trace in (None, TRACE, TRACE, TRACE.model_copy(update={"id": "77"})):
        relay.take(Instruction(accepted=0, trace=trace))
    assert given == ["trace 5f3a 3 0", "trace 77 3 0"]
    assert instructed(given[0].split()) == TRACE


@pytest.mark.parametrize("line", ["trace", "trace a 3", "trace a x 0", "trace a 3 0,", "trace a 3 -1", "release"])
def test_other_lines_are_no_request(line: str) -> None:
    assert instructed(line.split()) is None


def test_several_ranks_are_told_in_one_note() -> None:
    found = [RankTrace(rank=0, first=7, last=9), RankTrace(rank=3, first=8, last=10)]
    assert traced_text(12, found) == "traced steps 7 to 10 of ranks 0, 3: daylight profile 12 --trace shows it"
