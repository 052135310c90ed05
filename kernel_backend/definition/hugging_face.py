"""Find Trainers of transformers, or of a library based on it, in the syntax tree of a notebook cell."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from kernel_backend.errors import InvalidDefinition

_LIBRARIES = frozenset({"transformers", "trl", "sentence_transformers", "setfit"})
# Trainers that train on what their model generates, in buffers of their own.
_GENERATING = frozenset({"DistillationTrainer", "GRPOTrainer", "OnlineDPOTrainer", "PPOTrainer", "RLOOTrainer"})
_KINDS = (
    "Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "RewardTrainer", "SentenceTransformerTrainer",
    *sorted(_GENERATING),
)  # fmt: skip


def classes(tree: ast.Module) -> dict[str, str]:
    """Return the Trainer classes that a module imports or derives, each with the name of the library's class."""
    found = dict(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in (found.get(ast.unparse(each)) for each in node.bases):
                if base is not None:
                    found[node.name] = base
    return found


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _LIBRARIES:
            yield from ((each.asname or each.name, each.name) for each in node.names if each.name.endswith("Trainer"))
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name in _LIBRARIES:
                    yield from ((f"{each.asname or each.name}.{kind}", kind) for kind in _KINDS)


def is_made(node: ast.AST, trainers: Collection[str]) -> bool:
    """Return True if a node is a call of one of the classes `trainers`, which creates a Trainer."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in trainers


def check_kind(call: ast.Call, trainers: dict[str, str]) -> None:
    """Raise InvalidDefinition if a call creates a Trainer of a kind that a job cannot train.

    `trainers` has the Trainer classes by name, each with the name of the library's class.
    """
    kind = trainers[ast.unparse(call.func)]
    if kind in _GENERATING:
        text = f"{ast.unparse(call.func)}(...)"
        raise InvalidDefinition(
            f"{text} (line {call.lineno}) trains on what its model generates, in buffers that no checkpoint here holds "
            f"and no slots share: run the cell with %%dlrun, where {kind} trains as it does by itself, on one slot",
            line=call.lineno,
            text=text,
        )
