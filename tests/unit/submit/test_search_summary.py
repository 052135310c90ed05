"""Test the summary of a search: its parameters, and the bounds of its training time."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from jupyter_ext.submit.search_summary import GANGS, MOST_FORETOLD, bounds_text, forecast_text, parameter_text
from kernel_backend.search import forecast
from kernel_backend.search.forecast import RUNS
from kernel_backend.search.simulation.problems import Trained
from kernel_backend.spec.assignments import parse_line
from kernel_backend.spec.config_text import to_config
from tests.support.builders import parse_options


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lr=1e-4..1e-1:log", "lr: 0.0001 to 0.1 on a logarithmic scale"),
        ("n=1..6", "n: whole numbers from 1 to 6"),
        ("n=1..100:log", "n: whole numbers from 1 to 100 on a logarithmic scale"),
        ("width=16..256:log2", "width: powers of two from 16 to 256"),
        ("drop=0..0.5:3", "drop: 0 to 0.5"),
        ("act=relu,none,'a,b'", "act: relu, none or 'a,b'"),
        ("m=0..0.9@opt=sgd,lion opt=sgd,adam,lion", "m: 0 to 0.9, where opt is sgd or lion"),
        (
            "block.k=3,5@each@kind=conv blocks=3 block.kind=conv@each",
            "k of each of the blocks: 3 or 5, where kind is conv",
        ),
        ("blocks=3 block.k=3,5@each", "blocks: 3"),
    ],
)
def test_a_parameter_is_told_in_words(line: str, said: str):
    assert parameter_text(parse_line(line.split()).space.parameters[0]) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "--search asha --epochs 256",
            "asha: 64 trials of 1 to 256 epochs on 1 slot, that is 64 to 16,384 epochs of a slot",
        ),
        (
            "--search asha --epochs 9 --first-rung 2 --trials 1 --slots 3",
            "asha: 1 trial of 2 to 9 epochs on 3 slots, that is 6 to 27 epochs of a slot",
        ),
        ("--search random --steps 500", "random: 16 trials of 500 steps on 1 slot, that is 8,000 steps of a slot"),
        ("--search grid", "grid: 6 trials of 1 epoch on 1 slot, that is 6 epochs of a slot"),
        ("--search grid --trials 4", "grid: 4 trials of 1 epoch on 1 slot, that is 4 epochs of a slot"),
        ("--search pbt --epochs 8", "pbt: 16 trials of 8 epochs on 1 slot, that is 128 epochs of a slot"),
        ("--search pbt --population 4 --epochs 8", "pbt: 4 trials of 8 epochs on 1 slot, that is 32 epochs of a slot"),
        (
            "--search random --budget 20gpuh --max-time 90m",
            "random: trials of 1 epoch on 1 slot, until 20h of slot time are used up or 90m have passed",
        ),
        (
            "--search random --trials 4 --max-time 8h",
            "random: 4 trials of 1 epoch on 1 slot, that is 4 epochs of a slot, or until 8h have passed",
        ),
        ("--search hyperband --epochs 16", "hyperband: trials of 1 to 16 epochs on 1 slot"),
    ],
)
def test_how_much_a_search_trains_is_told_from_the_least_to_the_most(line: str, said: str):
    config = to_config(parse_options(line.split(), "terminal"))
    assert bounds_text(config, parse_line(["n=1..3", "f=true,false"]).space) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "--search random --trials 4 --epochs 10",
            "about 40 epochs in all (100 % of 4 whole trainings); as long as 4 whole trainings one by one, "
            "2 by 2 at once, 1 by 8 at once",
        ),
        ("--search random --budget 2h", ""),
        (
            "--search grid --epochs 9000000",
            "about 27000000 epochs in all (100 % of 3 whole trainings); as long as 3 whole trainings one by one, "
            "2 by 2 at once, 1 by 8 at once",
        ),
    ],
)
def test_what_a_search_will_train_is_foretold(line: str, said: str):
    assert forecast_text(to_config(parse_options(line.split(), "terminal")), parse_line(["n=1..3"]).space) == said


def test_halving_is_foretold_to_train_a_small_part():
    config = to_config(parse_options(["--search", "asha", "--trials", "64", "--epochs", "64"], "terminal"))
    share = re.search(r"\((\d+) % of 64 whole trainings\)", forecast_text(config, parse_line(["n=1..3"]).space))
    assert share is not None
    assert 2 < int(share[1]) < 15  # 64 trials cost at least a unit each, and the ladder of this R costs 4.4 of 64


@pytest.mark.parametrize(
    "line",
    [
        "--search random --trials 1000000",
        "--search asha --trials 5000",
        "--search hyperband --steps 4096 --eta 2 --first-rung 1",
        "--search pbt --steps 100000 --interval 10",
    ],
)
def test_what_would_take_long_to_play_is_not_foretold(line: str) -> None:
    assert forecast_text(to_config(parse_options(line.split(), "terminal")), parse_line(["n=1..3"]).space) == ""


@pytest.mark.parametrize("line", ["--search hyperband", "--search asha --trials 64", "--search pbt --interval 1000"])
def test_a_forecast_simulates_as_many_reports_for_long_trainings_as_for_short_ones(line: str, monkeypatch):
    simulated: Counter[int] = Counter()

    class Counted(Trained):
        def value(self, trial: int, unit: int) -> float:
            simulated[self.units] += 1
            return super().value(trial, unit)

    monkeypatch.setattr(forecast, "Trained", Counted)
    for steps in (20_000, 2_000_000):
        words = [*line.split(), "--steps", str(steps)]
        if "pbt" in words:
            words[words.index("--interval") + 1] = str(steps // 20)
        assert forecast_text(to_config(parse_options(words, "terminal")), parse_line(["lr=1e-4..1e-1:log"]).space)
    assert 0 < simulated[20_000] <= RUNS * len(GANGS) * MOST_FORETOLD
    assert simulated[2_000_000] <= 2 * simulated[20_000]
