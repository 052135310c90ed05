"""Build the definition of a Lightning cell: classes are the roles, arguments of `__init__` the hyperparameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_backend.definition.contract import Definition, Function, Parameter
from kernel_backend.definition.lightning.cell import (
    LightningCell,
    classes_of,
    initializer,
    lightning_cell,
    methods,
)
from kernel_backend.definition.lightning.trainer import hints_of, metric_of, settings_of
from kernel_backend.definition.merge import merged, with_default
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.values import as_value, literal


def lightning_definition(tree: ast.Module, roles_from: int, data: Mapping[str, Function]) -> Definition:
    """Return the training definition of a Lightning cell; `data` are the cell's functions that return data.

    Raises InvalidDefinition for a cell without training data or training step, and for arguments of the Trainer that a
    job does not support.
    """
    cell, classes = lightning_cell(tree, roles_from), classes_of(tree)
    _check(cell, classes, data)
    functions: dict[str, Function] = {}
    for role, node in (("module", cell.module), ("datamodule", cell.data)):
        if node is not None:
            functions[role] = _class(role, node, classes, cell.made.get(node.name))
    functions |= data
    metric = metric_of(tree, _logged(cell, classes))
    settings = settings_of(cell.trainer) | ({"metric": metric} if metric else {})
    roles = [role for role in functions if role in ("module", "datamodule", "train_data", "validation_data")]
    return Definition(
        form="lightning",
        roles=tuple(roles),
        functions=functions,
        hyperparameters=merged(functions),
        settings=settings,
        hints=(*hints_of(cell.trainer), *_not_run(cell)),
    )


def _class(role: str, node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], made: ast.Call | None) -> Function:
    """Describe a class as a `Function` record whose hyperparameters are the arguments of `__init__`.

    `role` is the name of the record, and `classes` are those of the module, from which `__init__` may be inherited. A
    literal in the call `made`, which instantiates the class, is the default of its argument.
    """
    init = initializer(node, classes)
    parameters = tuple(_parameters(init, made)) if init is not None else ()
    return Function(name=role, written=node.name, line=node.lineno, parameters=parameters)


def _parameters(init: ast.FunctionDef, made: ast.Call | None) -> Iterator[Parameter]:
    arguments = init.args
    named = [*arguments.posonlyargs, *arguments.args][1:]
    defaults: list[ast.expr | None] = [*[None] * (len(named) - len(arguments.defaults)), *arguments.defaults]
    pairs = [*zip(named, defaults[-len(named) :] if named else [], strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    given = _given(made, [each.arg for each in named]) if made is not None else {}
    for argument, default in pairs:
        value = given.get(argument.arg, default)
        if value is None and made is not None:
            continue  # the call passes it by `**config`
        try:
            found: Any = literal(value) if value is not None else None
        except ValueError:
            continue  # computed by other code, so that it cannot be given at submit
        parameter = Parameter(
            name=argument.arg,
            kind="hyperparameter",
            required=value is None,
            annotation=ast.unparse(argument.annotation) if argument.annotation else None,
            line=value.lineno if argument.arg in given and value is not None else argument.lineno,
            is_tuple=isinstance(found, tuple),
        )
        yield parameter if parameter.required else with_default(parameter, as_value(found))


def _given(made: ast.Call, names: list[str]) -> dict[str, ast.expr]:
    found = dict(zip(names, made.args, strict=False))
    return found | {each.arg: each.value for each in made.keywords if each.arg}


def _check(cell: LightningCell, classes: Mapping[str, ast.ClassDef], data: Mapping[str, Function]) -> None:
    if cell.module is None:
        return
    own = methods(cell.module, classes)
    name, line = cell.module.name, cell.module.lineno
    if _only_known_bases(cell.module, classes):
        lacking = [each for each in ("training_step", "configure_optimizers") if each not in own]
        if lacking:
            raise InvalidDefinition(f"class {name} (line {line}) has no {' and no '.join(lacking)}", line=line)
        given = cell.fit is not None and (
            len(cell.fit.args) > 1
            or any(each.arg in ("train_dataloaders", "datamodule", None) for each in cell.fit.keywords)
        )
        if not (given or cell.data or data or "train_dataloader" in own):
            raise InvalidDefinition(
                f"nothing gives {name} (line {line}) its training data: write a train_dataloader(self) into it, a "
                "LightningDataModule into the cell, def train_data() beside it, or trainer.fit(model, train_loader)",
                line=line,
            )
    if cell.fit is not None and any(each.arg == "ckpt_path" for each in cell.fit.keywords):
        raise InvalidDefinition(
            f"ckpt_path of fit (line {cell.fit.lineno}) is not possible in a job: leave it out; the job resumes by "
            "itself",
            line=cell.fit.lineno,
        )


def _only_known_bases(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Return True if every base class but LightningModule is in the cell, so that all methods can be read."""
    for base in node.bases:
        name = ast.unparse(base).rpartition(".")[2]
        if name != "LightningModule" and (name not in classes or not _only_known_bases(classes[name], classes)):
            return False
    return True


def _logged(cell: LightningCell, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return the names under which the module's validation logs metrics, as far as they are literals in its code."""
    own = methods(cell.module, classes) if cell.module is not None else {}
    found: set[str] = set()
    for name, method in own.items():
        if name in ("training_step", "on_train_epoch_end", "test_step"):
            continue
        for node in ast.walk(method):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                if node.func.attr == "log":
                    found |= _names(node.args[0])
                if node.func.attr == "log_dict" and isinstance(node.args[0], ast.Dict):
                    found |= {name for key in node.args[0].keys for name in _names(key)}
    return found


def _names(node: ast.expr | None) -> set[str]:
    """Return the metric names that an expression may be: that of a literal, or `val_loss` for `f"{stage}_loss"`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.Constant) else "val" for each in node.values]
        return {"".join(map(str, parts))}
    return set()


def _not_run(cell: LightningCell) -> Iterator[str]:
    calls = [each for each in cell.after if isinstance(each, ast.Expr | ast.Assign)]
    if calls:
        lines = f"line {calls[0].lineno}" if len(calls) == 1 else f"lines {calls[0].lineno} to {calls[-1].lineno}"
        yield (
            f"what follows trainer.fit ({lines}) is not run in the job: write it in a cell of its own, which waits for "
            "this job"
        )
