"""Find the LightningModule, LightningDataModule, Trainer and `fit` call of a notebook cell in its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_backend.errors import InvalidDefinition

MODULE, DATA = "LightningModule", "LightningDataModule"


@dataclass(frozen=True)
class LightningCell:
    """Syntax nodes of the classes and calls of a Lightning cell; None for those that the cell does not have."""

    module: ast.ClassDef | None  # None: the module passed to `fit` is not created by a visible call
    data: ast.ClassDef | None
    trainer: ast.Call | None
    fit: ast.Call | None
    made: Mapping[str, ast.Call]  # the calls that create `module` and `data`, by class
    after: Sequence[ast.stmt]  # statements after `fit`, which a job does not run


def is_lightning(tree: ast.Module, roles_from: int) -> bool:
    """Return True if the code from line `roles_from` on defines a LightningModule, or trains one with a Trainer."""
    own = [each for each in tree.body if each.lineno >= roles_from]
    defines = any(derives(each, MODULE, _classes(tree)) for each in own if isinstance(each, ast.ClassDef))
    return defines or (_imports_lightning(tree) and any(_fits(each, tree) for each in own))


def lightning_cell(tree: ast.Module, roles_from: int) -> LightningCell:
    """Return the Lightning classes and calls in the code from line `roles_from` on.

    Raises InvalidDefinition for several modules none of which is passed to `fit`, for several `fit` calls, and for a
    `fit` call within a function.
    """
    classes, statements = _classes(tree), _statements(tree.body)
    own = [each for each in statements if each.lineno >= roles_from]
    fits = [(place, call) for place, each in enumerate(own) if (call := _fit_of(each, tree)) is not None]
    _check_fits(own, [call for _, call in fits], tree)
    place, fit = fits[0] if fits else (len(own), None)
    before = [each for each in statements if each.lineno < roles_from] + own[:place]
    made = {name: call for call in _assigned(before).values() if (name := called(call)) in classes}
    made |= {called(call): call for call in (fit.args if fit else ()) if isinstance(call, ast.Call)}
    given = _given(fit, _assigned(before)) if fit else {}
    return LightningCell(
        module=_class(given.get("model"), MODULE, own, classes, fit is not None and "model" in given),
        data=_class(
            given.get("datamodule") or given.get("train"), DATA, own, classes, "datamodule" in given or "train" in given
        ),
        trainer=_trainer(fit, own[:place], tree),
        fit=fit,
        made=made,
        after=own[place + 1 :],
    )


def derives(node: ast.ClassDef, base: str, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Return True if a class inherits from a class named like `base`, directly or through `classes`."""
    for each in node.bases:
        name = ast.unparse(each).rpartition(".")[2]
        if name == base:
            return True
        if name in classes and classes[name] is not node and derives(classes[name], base, classes):
            return True
    return False


def called(call: ast.Call) -> str:
    """Return the last part of the name that is called, such as `Trainer` of `L.Trainer(...)`; "" if it has no name."""
    return ast.unparse(call.func).rpartition(".")[2] if isinstance(call.func, ast.Name | ast.Attribute) else ""


def initializer(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> ast.FunctionDef | None:
    """Return the `__init__` of a class, or the one it inherits from a base in `classes`."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return each
    for base in node.bases:
        name = ast.unparse(base).rpartition(".")[2]
        if name in classes and classes[name] is not node and (found := initializer(classes[name], classes)):
            return found
    return None


def methods(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> dict[str, ast.FunctionDef]:
    """Return a class's methods by name, including those of bases in `classes`."""
    found: dict[str, ast.FunctionDef] = {}
    for base in node.bases:
        name = ast.unparse(base).rpartition(".")[2]
        if name in classes and classes[name] is not node:
            found |= methods(classes[name], classes)
    return found | {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}


def classes_of(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name."""
    return _classes(tree)


def is_main(node: ast.stmt) -> bool:
    """Return True if a statement is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) and "__main__" in ast.unparse(node.test)


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}


def _statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a module, including those within `if __name__ == "__main__":`."""
    found: list[ast.stmt] = []
    for each in body:
        found += _statements(each.body) if isinstance(each, ast.If) and is_main(each) else [each]
    return found


def _imports_lightning(tree: ast.Module) -> bool:
    for each in tree.body:
        names = [each.module or ""] if isinstance(each, ast.ImportFrom) else []
        names += [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
        if any(name.partition(".")[0] in ("lightning", "pytorch_lightning") for name in names):
            return True
    return False


def _assigned(statements: Sequence[ast.stmt]) -> dict[str, ast.Call]:
    """Return, by variable name, the calls whose results are assigned; the last call if there are several."""
    found: dict[str, ast.Call] = {}
    for each in statements:
        targets = each.targets if isinstance(each, ast.Assign) else []
        targets = [each.target] if isinstance(each, ast.AnnAssign) else targets
        value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name):
                found.pop(target.id, None)
                if isinstance(value, ast.Call):
                    found[target.id] = value
    return found


def _fits(node: ast.AST, tree: ast.Module) -> bool:
    return next(_fit_calls(node, tree), None) is not None


def _fit_calls(node: ast.AST, tree: ast.Module) -> Iterator[ast.Call]:
    """Yield all calls of a Trainer's `fit` within a syntax node."""
    trainers = {
        target.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call) and called(each.value).endswith("Trainer")
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "fit":
            owner = each.func.value
            named = isinstance(owner, ast.Name) and owner.id in trainers
            if named or (isinstance(owner, ast.Call) and called(owner).endswith("Trainer")):
                yield each


def _fit_of(statement: ast.stmt, tree: ast.Module) -> ast.Call | None:
    """Return the `fit` call of a statement that only calls it, or assigns its result; None for other statements."""
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    return next((each for each in _fit_calls(statement, tree) if each is value), None)


def _check_fits(own: Sequence[ast.stmt], fits: Sequence[ast.Call], tree: ast.Module) -> None:
    if len(fits) > 1:
        first, second = fits[:2]
        raise InvalidDefinition(
            f"the cell fits twice (line {first.lineno}: {ast.unparse(first)}, line {second.lineno}: "
            f"{ast.unparse(second)}): submit one cell for each",
            line=second.lineno,
        )
    hidden = [call for each in own for call in _fit_calls(each, tree) if call not in fits]
    if hidden:
        raise InvalidDefinition(
            f"{ast.unparse(hidden[0])} (line {hidden[0].lineno}) stands in a function, a loop or a condition: write it "
            "as a line of its own at the top level of the cell, with the lines that make the Trainer and the module",
            line=hidden[0].lineno,
        )


def _given(fit: ast.Call, assigned: Mapping[str, ast.Call]) -> dict[str, ast.Call | None]:
    """Return the calls that created the arguments of `fit`, by argument; None for arguments that no call created.

    `assigned` has the calls whose results are assigned to variables, by variable.
    """
    names = ("model", "train", "val", "datamodule")
    words = {"train_dataloaders": "train", "val_dataloaders": "val"}
    found: dict[str, ast.expr] = dict(zip(names, fit.args, strict=False))
    found |= {words.get(each.arg, each.arg): each.value for each in fit.keywords if each.arg}
    return {name: _call_of(value, assigned) for name, value in found.items()}


def _call_of(value: ast.expr, assigned: Mapping[str, ast.Call]) -> ast.Call | None:
    if isinstance(value, ast.Name):
        return assigned.get(value.id)
    return value if isinstance(value, ast.Call) else None


def _class(
    call: ast.Call | None,
    base: str,
    own: Sequence[ast.stmt],
    classes: Mapping[str, ast.ClassDef],
    given: bool,
) -> ast.ClassDef | None:
    """Return the class that `call` instantiates, else the only subclass of `base` in the cell; None if there is none.

    `own` are the statements of the cell, and `classes` the classes of the module by name. If `given`, `fit` receives an
    object of this kind, and only the class that `call` instantiates is considered. Raises InvalidDefinition if the cell
    has several subclasses.
    """
    if call is not None and called(call) in classes and derives(classes[called(call)], base, classes):
        return classes[called(call)]
    if given:
        return None
    found = [each for each in own if isinstance(each, ast.ClassDef) and derives(each, base, classes)]
    bases = {ast.unparse(each).rpartition(".")[2] for node in found for each in node.bases}
    found = [each for each in found if each.name not in bases]
    if len(found) > 1:
        names = ", ".join(f"{each.name} (line {each.lineno})" for each in found)
        raise InvalidDefinition(
            f"the cell has several classes of {base}: {names}. Say which one is trained by a last line such as "
            f"trainer.fit({found[0].name}())" + (f", datamodule={found[0].name}()" if base == DATA else ""),
            line=found[1].lineno,
        )
    return found[0] if found else None


def _trainer(fit: ast.Call | None, before: Sequence[ast.stmt], tree: ast.Module) -> ast.Call | None:
    """Return the call that creates the Trainer: the one whose `fit` is called, else the last one in the code.

    `before` are the statements before the call of `fit`; `tree` is the whole module. Returns None if no call creates
    one.
    """
    owner = fit.func.value if fit is not None and isinstance(fit.func, ast.Attribute) else None
    if isinstance(owner, ast.Call):
        return owner
    trainers = {name: call for name, call in _assigned(tree.body).items() if called(call).endswith("Trainer")}
    trainers |= {name: call for name, call in _assigned(before).items() if called(call).endswith("Trainer")}
    if isinstance(owner, ast.Name):
        return trainers.get(owner.id)
    return next(reversed(trainers.values()), None)
