"""Extract one step of a training loop: its data, its loss and the model's inputs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from jupyter_ext.recognise.trees import (
    binds,
    called,
    calls,
    changed,
    flat,
    iterated,
    names,
    replaced,
    root,
    without_devices,
)

BATCH = "batch"


class Unreadable(Exception):
    """Raised when a loop cannot be rewritten as functions; the text says why, `instead` suggests an alternative."""

    def __init__(self, text: str, instead: str = "") -> None:
        super().__init__(text)
        self.instead = instead


class Step:
    """Step of a training loop: its data, its loss and the model's inputs."""

    def __init__(self, loop: ast.For | ast.While, model: str) -> None:
        self.wrapped: ast.Lambda | None = None
        self.whole: ast.expr | None = None
        values: dict[str, ast.expr] = {}
        each = batch_of(loop) if isinstance(loop, ast.For) else None
        elements, batch = elements_of(each) if each else [], each.id if isinstance(each, ast.Name) else ""
        given: ast.expr | None = None
        for statement in flat(loop.body):
            parts = unpacked(statement, batch)
            elements = parts or elements
            found = next(calls(statement, "backward"), None)
            if found is not None:
                given = _scalar(found)
                break
            values |= {} if parts else assigned(statement, values)
            for name in _spoilt(statement):
                values[name] = ast.Name(f"{name} (line {statement.lineno})", ast.Load())
        if given is None:
            raise Unreadable("its loss is computed in several places")
        loss = replaced(without_devices(given), values)
        if spoilt := sorted(name for name in names(loss) if " " in name):
            raise Unreadable(f"what its loss is computed from is changed in place, or only perhaps: {spoilt[0]}")
        forwards = {ast.dump(each): each for each in calls(loss, model)}
        if len(forwards) != 1:
            several = f"from {len(forwards)} different calls" if forwards else "not from a plain call"
            raise Unreadable(f"its loss comes {several} of {model}(...)")
        forward = next(iter(forwards.values()))
        over = iterated(loop.iter) if isinstance(loop, ast.For) else ast.Constant(None)
        if not elements and (called(over) == "range" or isinstance(loop, ast.While)):
            self._of_all(loss, forward, model)
            return
        self.data = over
        inputs = elements[:-1]
        if elements and [ast.unparse(each) for each in forward.args] != inputs:
            if not inputs or not set(elements[-1:]).isdisjoint(names(forward)):
                raise Unreadable(f"{model} is called with {ast.unparse(forward)}")
            self.wrapped = ast.Lambda(_arguments(inputs), forward)
        if not elements and not all(
            _is_part(each, batch) for each in [*forward.args, *(each.value for each in forward.keywords if each.arg)]
        ):
            raise Unreadable(f"{model} is called with {ast.unparse(forward)}")
        self.loss = replaced(of_output(loss, model, elements), {batch: ast.Name(BATCH, ast.Load())} if batch else {})

    def _of_all(self, loss: ast.expr, forward: ast.Call, model: str) -> None:
        """Extract a step on the whole data set, without a loader, from the tensors that model and loss take by name."""
        inputs = [each.id for each in forward.args if isinstance(each, ast.Name)]
        others = [name for name in _in_order(loss) if name not in (*inputs, model)]
        arguments = [each for call in ast.walk(loss) if isinstance(call, ast.Call) for each in [*call.args]]
        targets = [each.id for each in arguments if isinstance(each, ast.Name) and each.id in others]
        if len(inputs) != len(forward.args) or len(set(targets)) != 1:
            raise Unreadable("it goes over no loader, and its inputs and targets are not plain names")
        parts = [ast.Name(name, ast.Load()) for name in [*inputs, targets[0]]]
        self.data = ast.parse(f"torch.utils.data.TensorDataset({', '.join(each.id for each in parts)})").body[0].value  # type: ignore[attr-defined]
        self.whole = parts[0]
        self.loss = of_output(loss, model, [*inputs, targets[0]])


def assigned(statement: ast.stmt, values: Mapping[str, ast.expr]) -> dict[str, ast.expr]:
    """Return the names that a statement assigns, with the values substituted by `values` of earlier assignments."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        name = statement.target.id
        plain = ast.BinOp(ast.Name(name, ast.Load()), statement.op, statement.value)
        return {name: replaced(without_devices(plain), values)}
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return {}
    target, value = statement.targets[0], replaced(without_devices(statement.value), values)
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return {name.id: each for name, each in pairs if isinstance(name, ast.Name)}
    if isinstance(target, ast.Tuple):
        return {
            name.id: ast.Subscript(value, ast.Constant(index), ast.Load())
            for index, name in enumerate(target.elts)
            if isinstance(name, ast.Name)
        }
    return {}


def batch_of(loop: ast.For) -> ast.expr:
    """Return the target that holds a batch: of `for i, batch in enumerate(loader)` the second."""
    target = loop.target
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        counted = any(called(each) == "enumerate" for each in ast.walk(loop.iter) if isinstance(each, ast.Call))
        if counted or isinstance(target.elts[1], ast.Tuple):
            return target.elts[1]
    return target


def elements_of(target: ast.expr) -> list[str]:
    """Return the names of a batch's parts, as in `x, y`."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else ()
    return [each.id for each in parts if isinstance(each, ast.Name)]


def of_output(expression: ast.expr, model: str, elements: Sequence[str]) -> ast.expr:
    """Replace model calls by `output`, and the parts of a batch by `input` and `target`."""

    def value(each: ast.expr) -> ast.expr | None:
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == model:
            return ast.Name("output", ast.Load())
        return None

    found = changed(expression, value)
    parts: dict[str, ast.expr] = {}
    if len(elements) > 1:
        inputs: list[ast.expr] = [ast.Name("input", ast.Load())]
        if len(elements) > 2:
            inputs = [
                ast.Subscript(ast.Name("input", ast.Load()), ast.Constant(at), ast.Load())
                for at in range(len(elements) - 1)
            ]
        parts = dict(zip(elements, [*inputs, ast.Name("target", ast.Load())], strict=True))
    return replaced(found, parts)


def _is_part(given: ast.expr, batch: str) -> bool:
    """Return whether a model input is a constant item of the batch, such as `batch[0]` or `batch["x"]`."""
    return isinstance(given, ast.Subscript) and root(given) == batch and isinstance(given.slice, ast.Constant)


def _spoilt(statement: ast.stmt) -> set[str]:
    """Return names whose values are unknown after a statement, since it may change or conditionally rebind them."""
    if isinstance(statement, ast.Assign):
        return {root(each) for each in statement.targets if isinstance(each, ast.Attribute | ast.Subscript)}
    if isinstance(statement, ast.AugAssign):
        return set() if isinstance(statement.target, ast.Name) else {root(statement.target)}
    if isinstance(statement, ast.Expr):
        function = statement.value.func if isinstance(statement.value, ast.Call) else None
        return {root(function.value)} if isinstance(function, ast.Attribute) and function.attr.endswith("_") else set()
    return binds(statement)


def _arguments(given: Sequence[str]) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[ast.arg(each) for each in given], kwonlyargs=[], kw_defaults=[], defaults=[]
    )


def _in_order(node: ast.AST) -> list[str]:
    return list(dict.fromkeys(each.id for each in ast.walk(node) if isinstance(each, ast.Name)))


def unpacked(statement: ast.stmt, batch: str) -> list[str]:
    """Return the parts of a batch in `x, y = batch`; none for `x, y = x.to(device), y.to(device)`."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        value = without_devices(statement.value)
        if isinstance(value, ast.Name) and value.id == batch:
            return elements_of(statement.targets[0])
    return []


def _scalar(backward: ast.Call) -> ast.expr:
    """Return the loss of `loss.backward()`, `scaler.scale(loss).backward()` or `accelerator.backward(loss)`."""
    if backward.args:
        return backward.args[0]
    assert isinstance(backward.func, ast.Attribute)
    value = backward.func.value
    return value.args[0] if isinstance(value, ast.Call) and called(value) == "scale" and value.args else value
