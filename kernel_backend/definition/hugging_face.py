"""Find a Trainer of transformers, or of a library based on it, in the syntax tree of a notebook cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_backend.errors import InvalidDefinition

_LIBRARIES = frozenset({"transformers", "trl", "sentence_transformers", "setfit"})
_INSTEAD = (
    "its model would be trained on each slot by itself, without checkpoints and curves of the job. Write the lines of "
    "train(run) at the top level of the cell, where a job trains the Trainer as it is; or write its steps: "
    "`run.restore(model=model, optimizer=optimizer)`, `for epoch in run.epochs()`, "
    "`for batch in run.loader(train_dataset, batch_size=..., collate_fn=data_collator)`, "
    "`loss = model(**batch).loss`, backward and step, and run.report(loss=...)"
)


def refuse_trainers(tree: ast.Module) -> None:
    """Raise InvalidDefinition if the code calls a Trainer's `train()`, which runs a loop of its own."""
    trainers = classes(tree)
    made = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_made(node.value, trainers)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "train":
            owner = node.func.value
            if (isinstance(owner, ast.Name) and owner.id in made) or is_made(owner, trainers):
                text = ast.unparse(node)
                raise InvalidDefinition(
                    f"{text} (line {node.lineno}) is a Trainer's loop, which train(run) cannot hold: {_INSTEAD}",
                    line=node.lineno,
                    text=text,
                )


def classes(tree: ast.Module) -> set[str]:
    """Return the names of a module's Trainer classes: imported ones, attributes of a library, and subclasses."""
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


def is_made(node: ast.AST, trainers: set[str]) -> bool:
    """Return True if a node is a call of one of these classes."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in trainers
