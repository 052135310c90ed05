"""Recognise other common names of functions (`criterion` for `loss`) and of arguments (`y_pred` for `output`)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence

from kernel_backend.definition.contract import LOOP_VALUES, ROLES, Parameter, is_step

_DATA = r"_?(data|dataset|set|loader|dataloader|data_loader|ds|dl)"
_MAKES = r"(make|get|build|create|setup)_"
_OTHER_NAMES = {
    "model": rf"net|network|{_MAKES}(model|net|network)",
    "train_data": rf"({_MAKES}|load_)?(train|training){_DATA}",
    "validation_data": rf"({_MAKES}|load_)?(val|valid|validation|validate|dev|eval|evaluation){_DATA}",
    "optimizer": rf"optim|optimiser|configure_optimizers?|{_MAKES}(optimizer|optimiser|optim)",
    "loss": r"criterion|loss_fn|loss_func|loss_function|compute_loss|calc_loss",
    "metrics": r"metric|metric_fn|metrics_fn",
    "test_data": rf"({_MAKES}|load_)?test(ing)?{_DATA}",
    "collate": r"collate_fn|collate_batch",
    "schedule": rf"lr_schedule|(lr_)?scheduler|({_MAKES})(lr_)?(schedule|scheduler)",
}
# Less certain aliases, which are suggested but not accepted.
_NEARLY = {
    "metrics": r"compute_metrics|calc_metrics|accuracy",
    "prepare": r"prepare_data|setup|download|download_data",
    "step": r"(training|train|validation)_step",
}
# Arguments of an optimizer or a schedule that must be hyperparameters.
_NUMBER = re.compile(
    r"(base_|max_|min_|init_)?lr|learning_rate|weight_decay|wd|momentum|betas?|beta\d|eps|alpha|gamma|name"
)
_NUMBERS = ("float", "int", "bool", "str")  # annotations
_CLOSE = 0.8  # similarity of a misspelled name
_OUTPUT = re.compile(
    r"(y_?)?(pred|preds|prediction|predictions|predicted|hat|score|scores|prob|probs)|logits?|outputs?|out"
)
_TARGET = re.compile(r"y|y_?true|true|truth|gt|ground_truth|labels?|targets?|tgt|actual|expected|answers?")
_INPUT = re.compile(
    r"x|xb|xs|inputs?|(input_)?ids|images?|imgs?|features?|feats?|tokens?|texts?|src|seqs?|sequences?|signals?|graphs?"
)
_BATCH = re.compile(r"(mini_?)?batch(_data)?|data|samples?")
_INDEX = re.compile(r"(batch_)?(idx|index)")


def role_of(name: str) -> str | None:
    """Return the role, such as `loss`, of a function whose name is a known alias of it; None for other names."""
    return next((role for role, names in _OTHER_NAMES.items() if re.fullmatch(names, name)), None)


def is_target(name: str) -> bool:
    """Return True if an argument or an item of a batch of this name is the target, as `y` and `labels` are."""
    return _TARGET.fullmatch(name) is not None


def looks_like(name: str) -> str | None:
    """Return the role, such as `loss`, that a function's name resembles, for a hint; None for other names."""
    certain = role_of(name) or next((role for role, names in _NEARLY.items() if re.fullmatch(names, name)), None)
    close = difflib.get_close_matches(name, ROLES, n=1, cutoff=_CLOSE)
    return certain or (close[0] if close else None)


def by_place(role: str, parameters: Sequence[Parameter]) -> Mapping[str, str]:
    """Return which loop values the arguments of a role's function receive, by position where their names do not say it.

    Arguments with a default, or with a name or type that means something else, are left out. Keys are names of
    arguments, in source order; values are names of loop values, such as `output`.
    """
    free = [
        each.name
        for each in parameters
        if each.required and each.kind == "hyperparameter" and each.annotation not in _NUMBERS
    ]
    asked = {each.value_of for each in parameters if each.kind != "hyperparameter"}
    if role in ("loss", "metrics"):
        if parameters and parameters[0].name == "input" and "output" not in asked:
            free.insert(0, "input")  # torch's name of the output, which a loss must take
        return _of_a_step(free, asked)
    if is_step(role):
        return _of_a_training_step(free, asked)
    if any(each.kind == "loop" and each.value_of not in LOOP_VALUES for each in parameters):
        return {}  # it takes models by name instead of parameters
    free = [each for each in free if not _NUMBER.fullmatch(each)]
    if role == "optimizer" and not asked & {"params", "named_params", "model"}:
        return dict(zip(free[:1], ["params"], strict=False))
    if role == "schedule" and "optimizer" not in asked:
        return dict(zip(free[:1], ["optimizer"], strict=False))
    if role in ("collate", "augment") and "batch" not in asked:
        return dict(zip(free[:1], ["batch"], strict=False))
    return {}


def takes_model(names: Sequence[str], models: Collection[str]) -> bool:
    """Return True if a loss with these arguments runs the model itself, as `loss(model, batch)` and `loss(net, x, y)`.

    `models` are the keys of the dict that the function `model` returns. Other losses get the model's output.
    """
    if any(name == "output" or _OUTPUT.fullmatch(name) for name in names):
        return False
    own = [name for name in names if name == "model" or role_of(name) == "model" or name in models]
    return bool(own) and (own[0] == names[0] or set(names) - set(own) == {"batch"})


def takes_target_first(names: Sequence[str]) -> bool:
    """Return True if these argument names begin with the target, (y_true, y_pred), as in scikit-learn and Keras."""
    return len(names) > 1 and _of_a_step(names[:2], set())[names[0]] == "target"


def _of_a_step(free: Sequence[str], asked: set[str]) -> Mapping[str, str]:
    if "output" in asked and "target" in asked:
        return {}
    outputs = [name for name in free if _OUTPUT.fullmatch(name)]
    targets = [name for name in free if _TARGET.fullmatch(name)]
    if "output" in asked:  # the author uses Daylight's names, so that any other may be a hyperparameter
        return dict.fromkeys(targets[:1], "target")
    if "target" in asked:
        return dict.fromkeys((outputs or free)[:1], "output")
    if len(outputs) == 1 and len(targets) == 1:  # (y_true, y_pred), as Keras and scikit-learn have it
        return {outputs[0]: "output", targets[0]: "target"}
    return dict(zip(free[:2], ["output", "target"], strict=False))


def _of_a_training_step(free: Sequence[str], asked: set[str]) -> Mapping[str, str]:
    """Return what the arguments of a training step mean, by their names alone, as a step need not take any data."""
    found: dict[str, str] = {}
    for value, names in {"batch": _BATCH, "input": _INPUT, "target": _TARGET, "index": _INDEX}.items():
        meant = [name for name in free if names.fullmatch(name)]
        if len(meant) == 1 and value not in asked:
            found[meant[0]] = value
    return found
