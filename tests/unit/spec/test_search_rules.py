"""Test the check of a search's options before submission, and the hints in its errors."""

from __future__ import annotations

import pytest

from kernel_backend.errors import InvalidRequest
from kernel_backend.spec.assignments import parse_line
from kernel_backend.spec.config_text import to_config
from kernel_backend.spec.search_rules import check_search
from tests.support.builders import parse_options


def checked(line: str) -> None:
    options = parse_options(line.split(), "terminal")
    check_search(to_config(options), parse_line(options.words).space)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "lr=0.1",
        "--search single",
        "--search asha --epochs 9 lr=1e-4..1e-1:log",
        "--search asha --steps 500 --first-rung 20 --stopping --sampler random --brackets standard lr=1,2",
        "--search hyperband --epochs 9 --eta 3 --trials 5 lr=1,2",
        "--search random lr=0..0.5 --parallel 2 --warm 12.7",
        "--search asha --epochs 9 lr=1,2 --warm 12",
        "--search pbt --epochs 9 lr=1,2 --sampler kde --warm 12",
        "--search custom:Mine --warm 12",
        "--search grid lr=1e-4..1e-1:log:5 n=1..3 w=0.25..4:log2 f=true,false",
        "--search pbt --population 4 --interval 2 --epochs 9 --sampler sobol lr=0..0.5",
        "--search pbt --epochs 2 lr=0..0.5",
        "--search custom:Mine",
    ],
)
def test_a_search_that_can_be_is_let_through(line: str):
    checked(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lr=1e-4..1e-1:log", "^'lr=0.0001..0.1:log' is searched only with --search: add --search asha, or give one"),
        ("--search single lr=1,2", "'lr=1,2' is searched only with --search"),
        ("--search asha --epochs 9", "--search asha has nothing to search: write a range or a list"),
        ("--search asha lr=1,2", "--search asha needs 2 or more: --epochs 1 has nothing .*; write --epochs 10"),
        ("--search hyperband --steps 1 lr=1,2", "--search hyperband needs 2 or more: --steps 1"),
        ("--search asha --epochs 3 --first-rung 3 lr=1,2", "--first-rung 3: must be less than --epochs 3"),
        ("--search random --stopping lr=1,2", "--stopping means nothing to --search random: .* asha or hyperband"),
        ("--search tpe --sampler kde lr=1,2", "--sampler means nothing to --search tpe"),
        ("--search random --eta 3 lr=1,2", "--eta means nothing to --search random"),
        ("--search hyperband --epochs 9 --brackets standard lr=1,2", "--brackets means nothing .* with asha$"),
        ("--search asha --epochs 9 --population 4 lr=1,2", "--population means nothing .* with pbt$"),
        ("--search single --trials 4", "--trials means nothing to --search single: .* with any other$"),
        ("--search pbt lr=1,2", "--search pbt needs 2 or more: --epochs 1"),
        ("--search sobol --sampler kde lr=1,2", "--sampler means nothing to .* with asha or hyperband or pbt$"),
        ("--search pbt --epochs 9 --population 4 --interval 9 lr=1,2", "--interval 9: must be less than --epochs 9"),
        ("--search random lr=1,2 --warm 12", "--warm 12 means nothing to --search random: .* search with asha"),
        ("--search grid lr=1,2 --warm 7.1 --warm 12", "--warm 12 means nothing to --search grid"),
        ("--search hyperband --epochs 9 lr=1,2 --warm 12", "--warm 12 means nothing .* add --sampler kde$"),
        ("--search asha --epochs 9 lr=1,2 --sampler sobol --warm 12", "--warm 12 means nothing .* add --sampler kde$"),
        ("--search grid lr=1e-4..1e-1:log", "'lr=0.0001..0.1:log': a grid .* such as lr=0.0001..0.1:log:5"),
        ("--search grid blocks=1..2 block.x=0..0.5@each", "a grid .* such as block.x=0..0.5:5@each"),
        ("--search grid --stopping a=0..0.5 b=0..0.5", "(?s)--stopping means.*a=0..0.5:5.*b=0..0.5:5"),
    ],
)
def test_a_search_that_cannot_be_is_refused_with_all_that_is_wrong(line: str, said: str):
    with pytest.raises(InvalidRequest, match=said):
        checked(line)
