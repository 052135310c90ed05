"""Derive settings from the arguments of a Lightning Trainer, and reject arguments that a job does not support."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.values import literal

_AMP: dict[Any, str] = {"bf16": "bf16", "bf16-mixed": "bf16", "16": "fp16", "16-mixed": "fp16", 16: "fp16"}
_PLAIN = ("32", "32-true", 32, "64", "64-true", 64, "bf16-true", "16-true", None)
_LOCAL = ("auto", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook", "ddp_find_unused_parameters_true", "dp")
# Arguments that Daylight decides in a job, and the user's alternative for each.
_OURS = {
    "devices": "--slots says how many",
    "num_nodes": "--slots says how many processes there are, wherever there is room",
    "accelerator": "the slots are of the kind that the pool has; --device cpu takes the CPU",
    "strategy": "Daylight sums the gradients over the slots",
    "logger": "what is logged becomes curves of the experiment",
    "deterministic": "--reproducible decides",
    "benchmark": "--reproducible decides",
    "default_root_dir": "files of the job belong to its artifacts",
    "use_distributed_sampler": "each global batch is shared out to the slots",
}
# Arguments for display, or for a Trainer on one device: they do not change results.
_QUIET = frozenset(
    {
        *("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "num_sanity_val_steps"),
        *("log_every_n_steps", "barebones", "enable_autolog_hparams"),
    }
)
_INSTEAD = {
    "max_time": "write --max-time",
    "fast_dev_run": "take it out, and write --steps 1 for one step",
    "plugins": "take it out; precision is an argument of its own",
    "sync_batchnorm": "take it out: BatchNorm's statistics are those of each slot's share",
    "overfit_batches": "take it out, or give the Trainer limit_train_batches",
}
KEPT = frozenset(
    {
        *("accumulate_grad_batches", "callbacks", "check_val_every_n_epoch", "detect_anomaly", "inference_mode"),
        *("gradient_clip_algorithm", "gradient_clip_val", "limit_train_batches", "limit_val_batches", "min_epochs"),
        *("min_steps", "precision", "profiler", "reload_dataloaders_every_n_epochs", "val_check_interval"),
        *("limit_test_batches", "limit_predict_batches", "model_registry"),
    }
)
TAKEN = frozenset({"max_epochs", "max_steps"})
_RANKS = {"ModelCheckpoint": 0, "EarlyStopping": 1}  # priority if several callbacks monitor a metric
_LOSSES = ("loss", "val_loss", "valid_loss", "validation_loss", "val/loss")


def settings_of(trainer: ast.Call | None) -> dict[str, Any]:
    """Return the configuration fields that a Trainer's arguments set; options of the user later replace them.

    Raises InvalidDefinition for arguments that a job does not support.
    """
    if trainer is None:
        return {}
    given = _given(trainer)
    _check(trainer, given)
    found: dict[str, Any] = {}
    epochs, steps = given.get("max_epochs"), given.get("max_steps")
    if type(steps) is int and steps > 0:
        found["steps"] = steps
    elif type(epochs) is int and epochs > 0:
        found["epochs"] = epochs
    clip = given.get("gradient_clip_val")
    if isinstance(clip, int | float) and clip > 0 and given.get("gradient_clip_algorithm", "norm") == "norm":
        found["clip"] = float(clip)
    if given.get("precision") in _AMP:
        found["amp"] = _AMP[given["precision"]]
    return found


def hints_of(trainer: ast.Call | None) -> Iterator[str]:
    """Yield a hint for each argument of a Trainer that a job ignores."""
    for each in trainer.keywords if trainer else ():
        if each.arg in _OURS and not _is_default(each.value):
            yield f"{ast.unparse(each)} of Trainer (line {each.value.lineno}) is not used: {_OURS[each.arg]}"


def metric_of(tree: ast.AST, logged: set[str]) -> dict[str, str] | None:
    """Return the metric that selects the best checkpoint: one that a callback monitors, else a logged validation loss.

    Returns None if there is neither.
    """
    found = [
        (_RANKS.get(name, len(_RANKS)), str(words["monitor"].value), _mode(words.get("mode")))
        for name, words in _words(tree)
        if isinstance(words.get("monitor"), ast.Constant)
    ]
    if found:
        _, name, mode = min(found)
        return {"name": name, "mode": mode}
    loss = next((name for name in _LOSSES if name in logged), None)
    return {"name": loss, "mode": "min"} if loss else None


def _words(tree: ast.AST) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (called name, expressions of its arguments by name) for each call, and ("", items by key) for each dict."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield (
                ast.unparse(node.func).rpartition(".")[2],
                {each.arg: each.value for each in node.keywords if each.arg},
            )
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield "", {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _mode(node: ast.expr | None) -> str:
    return "max" if isinstance(node, ast.Constant) and node.value == "max" else "min"


def _given(trainer: ast.Call) -> dict[str, Any]:
    """Return the arguments of a Trainer by name: the values of literals, and syntax nodes of other expressions."""
    found: dict[str, Any] = {}
    for each in trainer.keywords:
        if each.arg is None:
            continue
        try:
            found[each.arg] = literal(each.value)
        except ValueError:
            found[each.arg] = each.value
    return found


def _check(trainer: ast.Call, given: Mapping[str, Any]) -> None:
    if trainer.args:
        _refuse(trainer, ast.unparse(trainer.args[0]), "give the Trainer its arguments by name")
    lines = {each.arg: each.value for each in trainer.keywords if each.arg}
    for name, value in given.items():
        node = lines[name]
        if name in _INSTEAD and value not in (None, False, 0, 0.0):
            _refuse(node, f"{name}={ast.unparse(node)}", _INSTEAD[name])
        if name == "accelerator" and value in ("tpu", "hpu", "ipu", "mps"):
            _refuse(node, f"accelerator={value!r}", "slots are CPUs or GPUs: take it out")
        if name == "strategy" and value not in _LOCAL and "ddp" not in str(_shown(value)).lower():
            _refuse(
                node, f"strategy={ast.unparse(node)}", "Daylight sums the gradients of whole models itself: take it out"
            )
        if name == "precision" and isinstance(value, str) and value not in (*_AMP, *_PLAIN):
            _refuse(node, f"precision={value!r}", "take bf16-mixed, 16-mixed, 32-true or 64-true")
        known = name in KEPT or name in TAKEN or name in _OURS or name in _QUIET or name in _INSTEAD
        if not known:
            _refuse(node, f"{name}={ast.unparse(node)}", "Trainer of Lightning 2 has no such argument: take it out")


def _shown(value: Any) -> str:
    return ast.unparse(value) if isinstance(value, ast.AST) else str(value)


def _is_default(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("auto", None, 1, True, False)


def _refuse(node: ast.expr, what: str, instead: str) -> None:
    raise InvalidDefinition(
        f"{what} of Trainer (line {node.lineno}) is not possible in a job: {instead}", line=node.lineno, text=what
    )
