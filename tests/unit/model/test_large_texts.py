"""Test how much of a JSON text from outside is parsed: the number of its values, and of its problems, is limited."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from kernel_backend.launch.spool import read_page
from kernel_backend.model.experiment import Submission
from kernel_backend.model.record import MOST_PROBLEMS, problem_text
from kernel_backend.model.reports import Delivery, SpoolPosition
from kernel_backend.model.versions import MOST_VALUES, changes_nothing, check_values, read

ASKED = {"snapshot": "a", "python": "p", "cwd": "/"}
NOTHING = changes_nothing(frozenset())

TOO_MANY = {
    "records that are none": (Delivery, '{{"records":[{}]}}'.format(",".join(["{}"] * MOST_VALUES))),
    "lists in lists": (Submission, '{"params":{"a":%s' % ("[" * MOST_VALUES)),
    "parameters": (Submission, json.dumps({**ASKED, "params": {"a": [[]] * MOST_VALUES}})),
    "unknown fields without effect": (Submission, json.dumps(ASKED | {f"a{i}": None for i in range(MOST_VALUES)})),
}


@pytest.mark.parametrize(("kind", "text"), TOO_MANY.values(), ids=TOO_MANY.keys())
def test_a_text_of_too_many_values_is_refused_before_it_is_parsed(kind: Any, text: str) -> None:
    with pytest.raises(ValidationError) as raised:
        read(kind, text.encode(), NOTHING)
    assert [each["type"] for each in raised.value.errors()] == ["too_many_values"]
    assert problem_text(raised.value).startswith("body: it has ")
    assert "and the limit is 65,536: send less at once" in problem_text(raised.value)


@pytest.mark.parametrize("text", ["," * MOST_VALUES, '\\",[{' * MOST_VALUES, '"' * MOST_VALUES, "\n" * MOST_VALUES])
def test_what_stands_within_a_string_is_no_value(text: str) -> None:
    assert read(Submission, json.dumps({**ASKED, "params": {"a": text}}).encode(), NOTHING).params == {"a": text}


@pytest.mark.parametrize("end", ["", '"', "\\", '\\"', '\\\\"'])
def test_the_values_of_a_text_with_an_open_string_are_counted_once(end: str) -> None:
    check_values(b'{"a":"' + b'\\",' * 2**20 + end.encode())  # 3 MiB: it would take hours if each quote began anew


def test_problems_without_number_are_counted_and_not_listed() -> None:
    text = json.dumps(ASKED | {f"a{i}": None for i in range(MOST_PROBLEMS + 1)})
    with pytest.raises(ValidationError) as raised:
        read(Submission, text.encode(), NOTHING)
    assert problem_text(raised.value) == "body: 1,001 values are not what they must be"


def test_a_thousand_fields_of_a_later_version_are_left_out_wherever_they_are() -> None:
    later = {f"a{i}": None for i in range(MOST_PROBLEMS // 2)}
    body = {**ASKED, **later, "config": {"keep": {"best": 3, **later}}}
    for data in (json.dumps(body).encode(), body):
        assert read(Submission, data, NOTHING) == Submission(**ASKED, config={"keep": {"best": 3}})
    assert len(body["config"]["keep"]) == 1 + len(later)  # the given data are unchanged


def test_a_line_of_a_spool_with_too_many_values_is_skipped_with_a_reason(tmp_path: Any) -> None:
    lines = ['{{"type":"note","number":1,"text":"a","x":[{}]}}'.format(",".join(["{}"] * MOST_VALUES))]
    lines += ['{{"type":"note","number":2,{}}}'.format(",".join(f'"a{i}":{i}' for i in range(MOST_PROBLEMS + 1)))]
    lines += ['{"type":"note","number":3,"text":"b"}']
    spool = tmp_path / "spool.jsonl"
    spool.write_text("\n".join(lines) + "\n")
    page = read_page(spool, SpoolPosition())
    assert [each.number for each in page.records] == [3]
    assert page.skipped == 2
    assert page.problem.startswith("the line at byte 0: it has ")


def test_a_client_reads_any_number_of_values_and_of_later_fields_in_an_answer() -> None:
    later = {f"a{i}": [0] * 100 for i in range(MOST_PROBLEMS + 1)}
    assert read(Submission, json.dumps({**ASKED, **later}).encode(), of_service=True) == Submission(**ASKED)
