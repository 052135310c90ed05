"""Describe the form prediction: a cell with `predict_data`, whose rows a trained model predicts."""

from __future__ import annotations

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Source, TrainingForm
from kernel_backend.definition.prediction_form import ON_BAD, SHARD_ROWS, is_prediction, prediction_definition
from kernel_backend.model.experiment import Config

# Settings of a training, which predictions lack.
_OF_TRAINING = (
    "accumulate", "amp", "auto_batch", "checkpoint_every", "clip", "compile", "ema", "epochs", "gather_loss",
    "logical_workers", "metric", "patience", "per_slot_batch", "rng", "schedule_per", "search", "steps", "strategy",
    "sync_bn", "uneven", "until", "validate_every", "validate_first",
)  # fmt: skip


def _recognises(source: Source) -> bool:
    return is_prediction(source.functions)


def _parse(source: Source) -> Definition:
    return prediction_definition(source.tree, source.roles_from)


def _names_its_model(definition: Definition, config: Config) -> str | None:
    if config.weights_from is None:
        return "predict_data() gives the rows, and no model is named: write --from memes@production, or --from 12"
    return None


PREDICTION = TrainingForm(
    name="prediction",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.prediction.training:Prediction",
    loop="predictions train nothing: leave it out, and use",
    refuses=dict.fromkeys(_OF_TRAINING, f"--batch-size, {ON_BAD}= and {SHARD_ROWS}= where they help"),
    rules=(_names_its_model,),
    local="Load the model here with job.load(), and call it",
    script="predictions need the trained model: export it with daylight export 12 --model DIR",
)
