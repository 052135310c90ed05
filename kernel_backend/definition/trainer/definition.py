"""Build the definition of a cell with a Trainer: numbers in its TrainingArguments are the hyperparameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_backend.definition.contract import Definition, Function, Parameter
from kernel_backend.definition.merge import with_default
from kernel_backend.definition.trainer.cell import TrainerCell, trainer_cell
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.values import as_value, literal

ROLE = "trainer"
_EPOCHS, _SEED = 3, 42  # defaults of TrainingArguments
# Hyperparameters that a cell need not write, with the defaults of these classes. Those of others, such as SFTConfig
# of TRL, may have other defaults.
_ALWAYS = {"learning_rate": 5e-5, "per_device_train_batch_size": 8, "weight_decay": 0.0}
_OF_TRANSFORMERS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_NUMBERS = frozenset(_ALWAYS) | {
    "adam_beta1", "adam_beta2", "adam_epsilon", "gradient_accumulation_steps", "label_smoothing_factor",
    "lr_scheduler_type", "max_grad_norm", "neftune_noise_alpha", "optim", "warmup_ratio", "warmup_steps",
}  # fmt: skip
# Arguments that a job does not support, and the alternative for each.
REFUSED = {
    "auto_find_batch_size": "its batch size would follow from what the memory of one slot holds: give the batch size",
    "batch_eval_metrics": "compute_metrics is called once, with all predictions",
    "deepspeed": "Daylight sums the gradients of whole models itself",
    "fsdp": "Daylight sums the gradients of whole models itself",
    "ignore_data_skip": "a restart goes on at the batch where it was",
    "resume_from_checkpoint": "a restart goes on from the job's own checkpoint",
}
_NOT_USED = {
    "push_to_hub": "load the model with job.load(), and push that",
    "load_best_model_at_end": "job.load(best=True) gives the best weights",
}


def trainer_definition(tree: ast.Module, roles_from: int) -> Definition:
    """Return the training definition of a cell with a Hugging Face Trainer.

    Raises InvalidDefinition for TrainingArguments that a job does not support.
    """
    cell = trainer_cell(tree, roles_from)
    given = {each.arg: each.value for each in cell.arguments.keywords if each.arg}
    check_arguments(given)
    parameters = tuple(_parameters(cell.arguments, given))
    function = Function(
        name=ROLE, written=ast.unparse(cell.trainer.func), line=cell.trainer.lineno, parameters=parameters
    )
    return Definition(
        form="trainer",
        roles=(ROLE,),
        functions={ROLE: function},
        hyperparameters={each.name: each for each in parameters},
        settings=settings_of(given),
        hints=tuple(_hints(cell, given)),
        about=f"{function.written}, its model and data",
    )


def check_arguments(given: Mapping[str, ast.expr]) -> None:
    """Raise InvalidDefinition for an argument of TrainingArguments that a job does not support."""
    for name, instead in REFUSED.items():
        if name in given and not _is_off(given[name]):
            text = f"{name}={ast.unparse(given[name])}"
            line = given[name].lineno
            raise InvalidDefinition(
                f"{text} of TrainingArguments (line {line}) is not possible in a job: {instead}. Take it out",
                line=line,
                text=text,
            )


def _parameters(call: ast.Call, given: dict[str, ast.expr]) -> Iterator[Parameter]:
    known = ast.unparse(call.func).rpartition(".")[2] in _OF_TRANSFORMERS
    for name in sorted(_NUMBERS):
        if name not in given and not (known and name in _ALWAYS):
            continue
        line = given[name].lineno if name in given else call.lineno
        try:
            default = literal(given[name]) if name in given else _ALWAYS[name]
        except ValueError:
            continue  # computed by the cell, so that it cannot be given at submit
        parameter = Parameter(name=name, kind="hyperparameter", required=False, line=line)
        yield with_default(parameter, as_value(default))


def settings_of(given: Mapping[str, ast.expr], instead: str = "write one, or max_steps=...") -> dict[str, Any]:
    """Return the fields of Config that TrainingArguments set: length, seed, and the metric for the best checkpoint.

    `given` has the expressions of the arguments by name. `instead` is the advice in the error for a number of epochs
    that the source does not show. Raises InvalidDefinition if the code does not show a number of epochs or a seed.
    """
    values = {name: _literal(node) for name, node in given.items()}
    steps, epochs = values.get("max_steps"), values.get("num_train_epochs", _EPOCHS)
    found: dict[str, Any] = {"seed": values.get("seed", _SEED)}
    if type(found["seed"]) is not int:
        raise _no_number(given["seed"], "seed", "no number that is known at submit: leave it out, as --seed N sets it")
    if type(steps) is int and steps > 0:
        found["steps"] = steps
    elif isinstance(epochs, int | float) and epochs > 0 and int(epochs) == epochs:
        found["epochs"] = int(epochs)
    else:
        raise _no_number(given["num_train_epochs"], "num_train_epochs", f"no whole number of epochs: {instead}")
    metric = values.get("metric_for_best_model") or "loss"
    name = metric if metric.startswith("eval_") else f"eval_{metric}"
    greater = values.get("greater_is_better", not metric.endswith("loss"))
    return found | {"metric": {"name": name, "mode": "max" if greater else "min"}}


def _no_number(node: ast.expr, name: str, why: str) -> InvalidDefinition:
    return InvalidDefinition(f"{name}={ast.unparse(node)} (line {node.lineno}) is {why}", line=node.lineno, text=name)


def _hints(cell: TrainerCell, given: Mapping[str, ast.expr]) -> Iterator[str]:
    for name, instead in _NOT_USED.items():
        if name in given and not _is_off(given[name]):
            yield f"{name} of TrainingArguments (line {given[name].lineno}) is not used: {instead}"
    yield from validation_hints(cell.trainer, given)
    if cell.after:
        yield (
            f"line {cell.after[0].lineno} and those below it are not run, as they stand behind train(): write them in "
            "a cell of their own, which waits for this job"
        )


def validation_hints(trainer: ast.Call, given: Mapping[str, ast.expr]) -> Iterator[str]:
    """Yield a hint if a Trainer has an `eval_dataset`, but its arguments do not say when to validate."""
    validates = any(each.arg == "eval_dataset" for each in trainer.keywords)
    if validates and ("eval_strategy" not in given or _literal(given["eval_strategy"]) == "no"):
        yield (
            f"eval_dataset (line {trainer.lineno}) is never read, as TrainingArguments has no eval_strategy: "
            'write eval_strategy="epoch"'
        )


def _literal(node: ast.expr) -> Any:
    try:
        return literal(node)
    except ValueError:
        return None


def _is_off(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False, "")
