"""Find a Trainer of transformers, or of a library on top of it, that a cell trains with, by syntax tree alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_backend.errors import InvalidDefinition

_LIBRARIES = frozenset({"transformers", "trl", "sentence_transformers", "setfit"})
_STEPS = (
    "`run.restore(model=model, optimizer=optimizer)`, `for epoch in run.epochs()`, "
    "`for batch in run.loader(train_dataset, batch_size=..., collate_fn=data_collator)`, "
    "`loss = model(**batch).loss`, backward and step, and run.report(loss=...)"
)
_INSTEAD = (
    "its model would be trained on each slot by itself, without checkpoints and curves of the job. "
    f"Write its steps: {_STEPS}"
)


def refuse_trainers(tree: ast.Module) -> None:
    """Raise InvalidDefinition for the call `trainer.train()` of a Trainer: it takes its steps itself."""
    trainers = _classes(tree)
    made = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_made(node.value, trainers)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "train":
            owner = node.func.value
            if (isinstance(owner, ast.Name) and owner.id in made) or _is_made(owner, trainers):
                text = ast.unparse(node)
                raise InvalidDefinition(
                    f"{text} (line {node.lineno}) is a Trainer's loop, which train(run) cannot hold: {_INSTEAD}",
                    line=node.lineno,
                    text=text,
                )


def refuse_built_trainers(tree: ast.Module, roles_from: int) -> None:
    """Raise InvalidDefinition for a Trainer that the cell from line `roles_from` on makes: no form trains with one."""
    trainers = _classes(tree)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_made(node, trainers))
    for node in sorted(calls, key=lambda call: call.lineno):
        if node.lineno >= roles_from:
            text = f"{ast.unparse(node.func)}(...)"
            raise InvalidDefinition(
                f"{text} (line {node.lineno}) makes a Trainer of Hugging Face, and a job cannot train with one. "
                f"Write def train(run) with its steps: {_STEPS}",
                line=node.lineno,
                text=text,
            )


def _classes(tree: ast.Module) -> set[str]:
    """Return the names under which a module has Trainers: imported, within an imported library, or derived from one."""
    found = set(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(each) in found for each in node.bases):
            found.add(node.name)
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _LIBRARIES:
            yield from (each.asname or each.name for each in node.names if each.name.endswith("Trainer"))
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name in _LIBRARIES:
                    yield from (f"{each.asname or each.name}.{kind}" for kind in _KINDS)


_KINDS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "SentenceTransformerTrainer")


def _is_made(node: ast.expr, trainers: set[str]) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in trainers
