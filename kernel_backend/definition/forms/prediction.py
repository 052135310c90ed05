"""Describe the forms prediction and evaluation: cells of `predict_data` or `evaluate_data`, whose rows a model gets."""

from __future__ import annotations

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import TrainingForm
from kernel_backend.definition.prediction_form import (
    EVALUATING,
    ON_BAD,
    PREDICTING,
    SHARD_ROWS,
    UseOfModel,
    definition_of_use,
    is_use_of_model,
)
from kernel_backend.model.experiment import Config

# Settings of a training, which is not one.
_OF_TRAINING = (
    "accumulate", "amp", "auto_batch", "await_evaluation", "checkpoint_every", "clip", "compile", "ema", "epochs",
    "gather_loss",
    "logical_workers", "patience", "per_slot_batch", "rng", "schedule_per", "steps", "strategy",
    "sync_bn", "uneven", "until", "validate_every", "validate_first",
)  # fmt: skip


def _form(use: UseOfModel, training: str, local: str, instead: str, also: tuple[str, ...] = ()) -> TrainingForm:
    def measures_checkpoints(definition: Definition, config: Config) -> str | None:
        if config.search is None or (use is EVALUATING and config.follows):
            return None
        return f"--search is for trainings, and {use.form}s train nothing: leave it out"

    def names_its_model(definition: Definition, config: Config) -> str | None:
        if config.weights_from is None:
            return f"{use.data}() gives the rows, and no model is named: write --from memes@production, or --from 12"
        return None

    return TrainingForm(
        name=use.form,
        recognises=lambda source: is_use_of_model(use, source.functions),
        parse=lambda source: definition_of_use(use, source.tree, source.roles_from),
        training=f"kernel_backend.runner.forms.prediction.{training}",
        loop=f"{use.form}s train nothing: leave it out, and use",
        refuses=dict.fromkeys((*_OF_TRAINING, *also), instead),
        rules=(names_its_model, measures_checkpoints),
        local=local,
        script=f"{use.form}s need the trained model: export it with daylight export 12 --model DIR",
    )


PREDICTION = _form(
    PREDICTING,
    "training:Prediction",
    local="Load the model here with job.load(), and call it",
    instead=f"--batch-size, {ON_BAD}= and {SHARD_ROWS}= where they help",
    also=("metric",),
)
EVALUATION = _form(
    EVALUATING,
    "evaluation:Evaluation",
    local="Load the model here with job.load(), and measure it",
    instead="--batch-size where it helps",
)
