"""Test the text about a training's data and weights."""

from __future__ import annotations

import pytest

from kernel_backend.model.facts import BatchSize, Delivered, LoaderSetting, Observed, ObservedFile, StoredFact, known
from kernel_backend.model.snapshot import Data, Environment, Snapshot
from kernel_backend.text.provenance import fact_lines, provenance_line

ENVIRONMENT = Environment(
    python="3.11.7", implementation="CPython", platform="Linux", cpu="any", cores=2, distributions={}
)
LESLIE = Data(
    name="/data/leslie", path="/data/leslie", files=20_000, bytes=1_200_000_000, digest="d1", listed="data/0.tsv"
)
FILE = ObservedFile(path="/data/x.npz", size=1_500, mtime=1.0, digest="ab12")


def snapshot(**fields) -> Snapshot:
    return Snapshot(version="0", numerics=1, pieces=(), roles_from=1, environment=ENVIRONMENT, **fields)


def fact(name, value, attempt=1) -> StoredFact:
    return StoredFact(attempt=attempt, name=name, at=1.0, value=value.to_json())


def delivered(samples=1797, whole=True) -> Delivered:
    return Delivered(samples=samples, digest="5f3a0011", seed=3, code="c0de", whole=whole)


def test_one_line_says_what_was_delivered_read_and_declared():
    facts = known([fact("delivered", delivered()), fact("observed", Observed(files=(FILE,), more=1))])
    said = provenance_line(facts, snapshot(data=(LESLIE,), commits=("dvc://a1b2",)))
    assert said == (
        "data: 1,797 samples delivered (digest 5f3a0011...), 2 files read; "
        "declared /data/leslie 20,000 files 1.2 GB, commit dvc://a1b2"
    )


def test_nothing_is_said_where_nothing_is_known():
    assert provenance_line({}, snapshot()) == ""
    assert fact_lines({}, snapshot()) == []


def test_an_epoch_that_was_not_gone_through_to_its_end_is_named_so():
    assert "of a part of the first epoch" in provenance_line(
        known([fact("delivered", delivered(whole=False))]), snapshot()
    )


@pytest.mark.parametrize("turned", [False, True])
def test_the_newest_attempt_has_the_last_word(turned):
    facts = [fact("delivered", delivered(10), attempt=1), fact("delivered", delivered(20), attempt=2)]
    assert known(facts[::-1] if turned else facts)["delivered"]["samples"] == 20


def test_the_setting_of_the_loader_is_said():
    lines = fact_lines(known([fact("loader", LoaderSetting(workers=4))]), snapshot())
    assert lines == ["loader     4 workers, each 2 batches ahead"]


def test_a_batch_size_that_was_found_is_said():
    lines = fact_lines(known([fact("batch", BatchSize(size=96, reason="104 does not fit in 2.0 GB"))]), snapshot())
    assert lines == ["batch size 96, found by --batch-size auto (104 does not fit in 2.0 GB)"]


def test_long_lists_of_files_are_counted_and_not_shown_whole():
    facts = known([fact("observed", Observed(files=(FILE,) * 30, more=7))])
    lines = fact_lines(facts, snapshot())
    assert lines[0] == "read       /data/x.npz  1.5 kB  digest ab12"
    assert lines[-1] == "read       and 17 more files"
