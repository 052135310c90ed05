"""Say what a user can do with a training that has ended: load its model, train it longer, run it again."""

from __future__ import annotations

from kernel_backend.model.states import EXPERIMENT_ENDED, ExperimentState
from kernel_backend.model.views.overview import Overview
from kernel_backend.text import reference

_RESULTS = {"plain": "result", "prediction": "predictions"}  # methods of a job that give what is no model


def load_code(overview: Overview) -> str:
    """Return a line of Python that gets the result of an experiment that has ended; "" if there is none to get."""
    number, form = overview.experiment.number, overview.experiment.config.form
    if overview.experiment.state not in EXPERIMENT_ENDED or form == "evaluation":
        return ""
    if form in _RESULTS:
        there = overview.state == ExperimentState.COMPLETED
    else:
        there = overview.state in (ExperimentState.COMPLETED, ExperimentState.STOPPED) and form != "command"
        there = there and overview.front is not None and overview.front.step > 0
    return f"import daylight; daylight.job({number}).{_RESULTS.get(form, 'load')}()" if there else ""


def longer(overview: Overview) -> tuple[str, int] | None:
    """Return unit and number of twice the length of a training whose model can be loaded; None if that is unknown."""
    config = overview.experiment.config
    if not load_code(overview).endswith("load()") or config.known_epochs is None:
        return None
    return ("epochs", 2 * config.epochs) if config.steps is None else ("steps", 2 * config.steps)


def next_text(overview: Overview, program: str) -> str:
    """Format the next steps: load, export, train longer, run again, each as a line to be copied.

    It begins with `take it on: daylight.job(12).load(), %dl export 12 --model model-12`. `program` is the command of
    verbs here, `%dl` or `daylight`. "" for an experiment without a result.
    """
    code, more, trial = load_code(overview), longer(overview), overview.front
    if not code:
        return ""
    one = reference(trial).removeprefix("#") if trial and overview.experiment.config.search else ""
    number = overview.experiment.number
    trained = [f"{program} continue {one or number} --{more[0]} {more[1]}"] if more else []
    export = [f"{program} export {one or number} --model model-{number}"] if code.endswith("load()") else []
    if code.endswith("predictions()"):
        export = [f"{program} predictions {number} --to predictions-{number}.parquet"]
    steps = [code.removeprefix("import daylight; "), *export, *trained, f"{program} rerun {number}"]
    return f"take it on: {', '.join(steps)}"
