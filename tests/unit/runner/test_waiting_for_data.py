"""Test how the ranks of a node wait for data that the first of them fetches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_backend.inputs.fetch import Input
from kernel_backend.runner.data.inputs import Released, _brought
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress


def test_a_rank_waits_for_the_first_of_its_own_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "3")
    asked = (Input(name="train", url="s3://bucket/train", digest="0", listed="none"),)
    given = asked, Instructions(), Spool(tmp_path / "spool.jsonl", 3), Progress(tmp_path, 3)
    given[1].release = True  # as soon as it would wait
    (tmp_path / "inputs-0.json").write_text(json.dumps({"folder": "/other", "arriving": []}))
    with pytest.raises(Released):
        _brought(*given)
    (tmp_path / "inputs-2.json").write_text(json.dumps({"folder": "/ours", "arriving": []}))
    assert _brought(*given) == {"folder": "/ours", "arriving": []}
