"""Test the card of an experiment in a notebook: text, HTML and a picture, made by pure functions."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from typing import Any

import pytest

from jupyter_ext.views import MIME_TYPE, SAVED_POINTS, bundle, table
from jupyter_ext.views.saved_state import curves_of, picture_of
from kernel_backend.commands.follow import Look
from kernel_backend.errors import NotFound
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.states import ExperimentState, TrialState
from kernel_backend.model.views.curves import Curve, Curves
from kernel_backend.model.views.overview import Overview, Wait
from tests.support.builders import attempt, trial, user_error

NASTY = "<script>alert('x')</script>&\"quotes\""


def overview(
    state: TrialState = TrialState.RUNNING, whole: str = "active", name: str = "digits", **trials: Any
) -> Overview:
    experiment = Experiment(
        number=1,
        name=name,
        state=ExperimentState(whole),
        owner="ada",
        group="ada",
        snapshot="0" * 64,
        config=Config(slots=2, epochs=10),
        params={"width": 64, "act": name},
        python="python",
        cwd="/",
        notebook=None,
        created_at=100.0,
    )
    return Overview(experiment=experiment, trials=(trial(state, **trials),), attempts=(attempt(),))


class Balanced(HTMLParser):
    """Fails on tags that are not closed, and on anything that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "style", "link")
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> str:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return parser.text


def test_a_running_experiment_shows_its_state_progress_and_metrics():
    shown = bundle(
        overview(step=141, epoch=3.0, metrics={"loss": 0.4, "accuracy": 0.9}), now=165.0, captured=["12 lines"]
    )
    for text in (shown["text/plain"], read(shown["text/html"])):
        assert "running" in text
        assert "12 lines" in text
        assert "epoch 3/10" in text
        assert "accuracy" in text
        assert "1 min 05 s" in text


def test_without_validation_it_shows_what_the_training_came_to():
    shown = bundle(overview(step=141, epoch=3.0, training={"loss": 0.25}), now=165.0)
    assert "training loss 0.25" in shown["text/plain"]
    assert "training" in read(shown["text/html"])
    validated = bundle(overview(step=141, epoch=3.0, training={"loss": 0.25}, metrics={"loss": 0.5}), now=165.0)
    for text in (validated["text/plain"], read(validated["text/html"])):
        assert "training" not in text
        assert "0.5" in text


def test_how_to_look_again_and_to_stop_is_said_while_there_is_something_to_stop():
    hint = "%dl show 1 looks again, %dl stop 1 ends it"
    goes_on, over = overview(), overview(TrialState.COMPLETED, "completed")
    for kind in ("text/plain", "text/html"):
        assert hint in bundle(goes_on, now=165.0, captured=["12 lines"])[kind]
        assert hint not in bundle(goes_on, now=165.0)[kind]  # whoever looks again knows how to
        assert hint not in bundle(over, now=165.0, captured=["12 lines"])[kind]


def test_a_program_that_alone_knows_when_it_ends_has_no_bar():
    def told(**config: Any) -> str:
        found = overview(step=20, epoch=2.5)
        config = Config(slots=2, epochs=10).model_copy(update=config)
        experiment = found.experiment.model_copy(update={"config": config})
        return bundle(found.model_copy(update={"experiment": experiment}), now=100.0)["text/html"]

    assert "progressbar" in told()
    assert "epoch 3/10" in told()
    assert "progressbar" not in told(epochs_unknown=True)
    assert "epoch 3  step 20" in told(epochs_unknown=True)


def test_a_queued_experiment_says_why_it_waits():
    waiting = overview(TrialState.QUEUED).model_copy(update={"wait": Wait(reason="2 of 2 slots in use", place=1)})
    assert "2 of 2 slots in use" in read(bundle(waiting, now=100.0)["text/html"])


def test_a_failure_shows_the_cell_and_line():
    shown = bundle(overview(TrialState.FAILED, "failed", failure=user_error()), now=100.0)
    for text in (shown["text/plain"], read(shown["text/html"])):
        assert "cell [4] line 3" in text
        assert "ValueError: boom" in text


def test_what_people_write_is_escaped_everywhere():
    nasty = overview(TrialState.FAILED, name=NASTY, failure=user_error(message=NASTY), metrics={NASTY: 1.0}, step=1)
    nasty = nasty.model_copy(update={"warnings": (NASTY,)})
    text = read(bundle(nasty, now=100.0, captured=[NASTY], picture=b"png")["text/html"])
    assert text.count(NASTY) >= 5


def test_a_picture_is_in_the_bundle_and_in_the_card_with_its_numbers_as_text():
    shown = bundle(overview(metrics={"accuracy": 0.9}, step=1), now=100.0, picture=b"\x89PNG")
    assert base64.b64decode(shown["image/png"]) == b"\x89PNG"
    assert 'alt="curves of experiment 1: accuracy 0.9"' in shown["text/html"]


CURVE = Curve(
    kind="training", metric="loss", size=(1,), step=(1,), epoch=(0.1,), at=(1.0,), mean=(None,), low=(None,),
    high=(None,), broken=(0,), last=float("nan"),
)  # fmt: skip


def test_one_bundle_holds_what_every_front_end_needs():
    shown = bundle(overview(step=1), now=165.0, captured=["12 lines"], picture=b"png", curves=Curves(trial=1))
    assert list(shown) == [MIME_TYPE, "text/html", "text/plain", "image/png"]
    saved = shown[MIME_TYPE]
    assert (saved["version"], saved["number"], saved["at"], saved["captured"]) == (1, 1, 165.0, ["12 lines"])
    assert Overview.model_validate(saved["overview"]) == overview(step=1)
    assert Curves.model_validate(saved["curves"]) == Curves(trial=1)


def test_without_reports_there_is_neither_picture_nor_curves():
    shown = bundle(overview(), now=165.0)
    assert "image/png" not in shown
    assert shown[MIME_TYPE]["curves"] is None


def test_what_is_not_finite_is_still_json():
    curves = Curves(trial=1, curves=(CURVE,))
    shown = bundle(overview(step=1, metrics={"loss": float("nan"), "gap": float("inf")}), now=1.0, curves=curves)
    saved = json.loads(json.dumps(shown, allow_nan=False))[MIME_TYPE]
    assert saved["overview"]["trials"][0]["metrics"] == {"loss": "NaN", "gap": "Infinity"}
    assert saved["curves"]["curves"][0]["last"] == "NaN"


class Without:
    """A service that has no curves, and counts who asks."""

    def __init__(self) -> None:
        self.asked = list[Any]()

    def curves(self, number: int, trial: int = 1, points: int = 400) -> Curves:
        self.asked.append(points)
        raise NotFound("an older service has no such route")

    def picture(self, number: int) -> bytes:
        self.asked.append("picture")
        raise OSError("and this one is broken")


def test_a_service_is_asked_for_curves_only_when_there_are_some_and_may_fail():
    service: Any = Without()
    assert (curves_of(service, overview()), picture_of(service, overview()), service.asked) == (None, None, [])
    told = overview(step=1)
    assert (curves_of(service, told), picture_of(service, told)) == (None, None)
    assert service.asked == [SAVED_POINTS, "picture"]


def test_the_guarantee_stands_below_the_head():
    shown = overview().model_copy(
        update={"attempts": (attempt(guarantee="reproducible: a kill changes no bit of the result"),)}
    )
    found = bundle(shown, now=165.0)
    assert found["text/plain"].splitlines()[1] == "reproducible: a kill changes no bit of the result"
    assert "reproducible: a kill changes no bit of the result" in read(found["text/html"])


def test_cards_take_the_colours_of_the_theme():
    html = bundle(overview(), now=100.0)["text/html"]
    assert "var(--jp-content-font-color1," in html


def test_tables_line_up_and_are_escaped():
    shown = table(("id", "name"), [("1", "a"), ("12", NASTY)])
    assert shown["text/plain"].splitlines()[:2] == ["id  name", "1   a"]
    assert NASTY in read(shown["text/html"])
    assert table(("id",), [], "no experiments yet")["text/plain"] == "no experiments yet"


def test_a_plain_log_says_what_changed_between_two_looks():
    report = StoredReport(
        seq=1, trial=1, attempt=1, at=0.0, kind="validation", step=47, epoch=1.0, metrics={"accuracy": 0.9}
    )
    before, after = overview(TrialState.STARTING), overview(TrialState.RUNNING)
    lines = Look(before, after, (report,)).lines
    assert lines == ["#1  running", "#1  epoch 1/10  step 47  accuracy 0.9"]
    assert Look(after, after).lines == []


@pytest.mark.parametrize("state", list(TrialState))
def test_every_state_can_be_drawn(state: TrialState):
    read(bundle(overview(state), now=100.0)["text/html"])
