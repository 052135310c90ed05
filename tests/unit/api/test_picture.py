"""Test that the static picture is always a PNG of one size, whatever the reports contain."""

from __future__ import annotations

import io
import math
import warnings

import pytest
from matplotlib.image import imread

from kernel_backend.api.picture import DARK, LIGHT, Palette, draw
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.model.states import ExperimentState, TrialState
from kernel_backend.model.views.curves import Curve, gather, thin
from kernel_backend.model.views.overview import Overview, Wait
from tests.support.builders import trial


def overview(name: str = "digits", wait: Wait | None = None, config: Config | None = None) -> Overview:
    experiment = Experiment(
        number=12,
        name=name,
        state=ExperimentState.ACTIVE,
        owner="ada",
        group="lab",
        snapshot="0" * 64,
        config=config or Config(epochs=10),
        params={},
        python="python",
        cwd="/",
        notebook=None,
        created_at=0.0,
    )
    return Overview(experiment=experiment, trials=(trial(TrialState.RUNNING, epoch=3.4),), wait=wait)


def report(step: int, kind: Kind = "training", **metrics: float) -> StoredReport:
    return StoredReport(seq=step, trial=1, attempt=1, at=0.0, kind=kind, step=step, epoch=step / 100, metrics=metrics)


def curves(reports: list[StoredReport]) -> tuple[Curve, ...]:
    """Return the curves as the service passes them to the drawing."""
    heard = [(each.kind, each.step, each.epoch, each.at, each.metrics) for each in reports]
    return thin(1, gather(heard, seq=1), points=400).curves


def assert_drawn(png: bytes, palette: Palette) -> None:
    """Assert that a PNG has the expected size and the theme's background, and is not empty."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    image = imread(io.BytesIO(png), format="png")
    assert image.shape[:2] == (600, 1800)
    paper = [int(palette.paper[place : place + 2], 16) for place in (1, 3, 5)]
    assert [round(float(channel) * 255) for channel in image[-1, -1, :3]] == paper
    assert (image[:, :, :3] != image[-1, -1, :3]).any()


REPORTS = {
    "none": [],
    "one": [report(1, loss=2.3)],
    "training and validation": [report(n, loss=1 / n) for n in range(1, 90)]
    + [report(n, "validation", loss=0.5, accuracy=n / 100, f1=0.3) for n in (30, 60)],
    "validation without a loss": [report(5, "validation", accuracy=0.5)],
    "a long training": [report(n, loss=1 / n) for n in range(1, 10_001)],
    "no number among them": [report(1, loss=math.nan), report(2, "validation", loss=math.inf, accuracy=math.nan)],
    "numbers that no axis holds": [report(n, loss=value) for n, value in enumerate([1e308, -1e308, 5e-324, 0.0])],
    "many metrics": [report(1, "validation", **{f"metric {n} $x_" * 3: float(n) for n in range(9)})],
    "no metrics": [report(1)],
    "two steps": [report(n, disc_loss=1 / n, gen_loss=0.8, right=0.5) for n in range(1, 90)]
    + [report(60, "validation", disc_loss=0.2, gen_loss=0.8, spread=0.3)],
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_state_of_an_experiment_can_be_drawn(name: str, palette: Palette) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_drawn(draw(overview(), curves(REPORTS[name]), dark=palette is DARK), palette)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_name_is_text_and_never_a_formula_or_a_second_line() -> None:
    for name in ("$x^{2$ \\frac", "two\nlines\x00", "网络 😀", "long " * 40):
        assert_drawn(draw(overview(name), []), LIGHT)


def test_why_an_experiment_waits_is_drawn_where_there_are_no_curves_yet() -> None:
    waiting = overview(wait=Wait(reason="2nd in the queue", place=2))
    assert draw(waiting, []) != draw(overview(), [])


def test_a_validation_beside_the_loss_has_a_panel_and_a_training_metric_has_none() -> None:
    loss = [report(1, loss=1.0), report(2, loss=0.5)]
    validated = draw(overview(), curves([*loss, report(2, "validation", accuracy=0.9)]))
    assert validated != draw(overview(), curves(loss))
    assert draw(overview(), curves([*loss, report(3, lr=0.1)])) == draw(overview(), curves([*loss, report(3, lr=0.2)]))


def test_the_loss_of_each_training_step_has_a_panel() -> None:
    one = [report(n, disc_loss=1 / n, right=0.5) for n in range(1, 9)]
    other = [report(n, disc_loss=1 / n, right=0.7) for n in range(1, 9)]
    two = [report(n, disc_loss=1 / n, gen_loss=0.5, right=0.5) for n in range(1, 9)]
    assert draw(overview(), curves(one)) == draw(overview(), curves(other))
    assert draw(overview(), curves(one)) != draw(overview(), curves(two))


def test_what_uses_a_model_is_drawn_over_its_rows() -> None:
    reports = [report(n, loss=1 / n) for n in range(1, 9)]
    moved = [each.model_copy(update={"epoch": 2 * each.epoch}) for each in reports]
    rows = overview(config=Config(form="evaluation"))
    assert draw(rows, curves(reports)) == draw(rows, curves(moved))
    assert draw(overview(), curves(reports)) != draw(overview(), curves(moved))
