"""Extract the parts of a training loop: data, model, optimizer, loss and epochs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jupyter_ext.recognise.inline import inlined
from jupyter_ext.recognise.step import BATCH, Step, Unreadable, assigned, batch_of, elements_of, of_output, unpacked
from jupyter_ext.recognise.trees import (
    binds,
    called,
    calls,
    flat,
    has_backward,
    iterated,
    names,
    replaced,
    root,
    without_devices,
)


@dataclass(frozen=True)
class Loop:
    """Training loop, in expressions of the program's own names."""

    statement: ast.For | ast.While  # of the program, as it is written
    setup: tuple[ast.stmt, ...]  # what runs before it
    model: str
    optimizer: ast.Call
    optimizer_name: str
    data: ast.expr
    loss: ast.expr  # of output, target, input or batch
    epochs: ast.expr | None
    wrapped: ast.Lambda | None = None  # what the model is called with, where that is not the batch's own inputs
    schedule: ast.Call | None = None
    per_epoch: bool = False
    validation: ast.expr | None = None
    accuracy: ast.expr | None = None
    clip: ast.expr | None = None
    whole: ast.expr | None = None  # the inputs, where each step takes all of them


def program(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a module with functions that train or loop inlined."""
    return inlined(body, {each.name: each for each in body if isinstance(each, ast.FunctionDef)})


def first_loop(statements: Sequence[ast.stmt]) -> int | None:
    """Return the index of the first loop that trains."""
    loops = (index for index, each in enumerate(statements) if isinstance(each, ast.For | ast.While))
    return next((index for index in loops if has_backward(statements[index])), None)


def read_loop(statements: Sequence[ast.stmt]) -> Loop:
    """Extract the parts of the first loop that trains among these statements; raises Unreadable."""
    place = first_loop(statements)
    assert place is not None
    outer, setup = statements[place], tuple(statements[:place])
    assert isinstance(outer, ast.For | ast.While)
    inner = _innermost(outer)
    optimizer, name = _optimizer(outer, setup)
    model = _model(optimizer)
    _check_plain(statements[place:], inner)
    reader = Step(inner, model)
    _check_own(reader, outer, model)
    if outer is not inner and _epochs(outer) is None:
        raise Unreadable(f"it is not seen how often it runs (line {outer.lineno}): for epoch in range(...)")
    return Loop(
        statement=outer,
        setup=setup,
        model=model,
        optimizer=optimizer,
        optimizer_name=name,
        data=reader.data,
        loss=reader.loss,
        epochs=_epochs(outer) if outer is not inner or reader.whole is not None else None,
        wrapped=reader.wrapped,
        schedule=_schedule(outer, setup, name),
        per_epoch=not any(calls(inner, "step")) or _steps_outside(outer, inner, name),
        validation=_validation(outer, inner, statements[place + 1 :], reader.data, model),
        accuracy=_accuracy([outer, *statements[place + 1 :]], model),
        clip=next((each.args[1] for each in calls(inner, "clip_grad_norm_") if len(each.args) > 1), None),
        whole=reader.whole,
    )


def _check_plain(statements: Sequence[ast.stmt], inner: ast.For | ast.While) -> None:
    """Raise Unreadable unless each step has one loss and one update, and nothing a definition would omit."""
    outer, after = statements[0], statements[1:]
    if other := next((each for each in after if has_backward(each)), None):
        raise Unreadable(f"another one trains behind it (line {other.lineno})")
    backwards = list(calls(outer, "backward"))
    if len(backwards) > 1:
        raise Unreadable(f"a step has several losses (line {backwards[1].lineno}: {ast.unparse(backwards[1])})")
    for statement in flat(inner.body):
        if isinstance(statement, ast.If) and has_backward(statement):
            raise Unreadable(
                f"one loop trains and does else (line {statement.lineno}: if {ast.unparse(statement.test)})"
            )
        if isinstance(statement, ast.If) and any(calls(statement, "step")):
            raise Unreadable(
                f"not every batch has a step (line {statement.lineno}: if {ast.unparse(statement.test)}): give the "
                "DataLoader the size of as many batches together"
            )
    groups = (each for each in ast.walk(outer) if isinstance(each, ast.Attribute) and each.attr == "param_groups")
    if changed_here := next(groups, None):
        raise Unreadable(f"it changes the optimizer itself (line {changed_here.lineno}), for which there is schedule")


def _check_own(step: Step, outer: ast.For | ast.While, model: str) -> None:
    """Raise Unreadable where the data or the loss read names that are bound only within the loop."""
    bound = binds(outer) - {"output", "target", "input", BATCH}
    counted = outer.target.id if isinstance(outer, ast.For) and isinstance(outer.target, ast.Name) else ""
    over = iterated(outer.iter) if isinstance(outer, ast.For) else ast.Constant(None)
    if counted == "epoch" and called(over) in ("range", "trange") and len(getattr(over, "args", ())) == 1:
        bound.remove(counted)  # as ours: from 0 on
    if lacking := sorted(names(step.data) & bound):
        raise Unreadable(f"its data need {', '.join(lacking)} of the loop")
    if lacking := sorted(names(step.loss) & {*bound, model}):
        raise Unreadable(f"its loss needs {', '.join(lacking)} of the loop")


def _innermost(loop: ast.For | ast.While) -> ast.For | ast.While:
    for each in flat(loop.body):
        if isinstance(each, ast.For | ast.While) and has_backward(each):
            return _innermost(each)
    return loop


def _made(name: str, setup: Sequence[ast.stmt]) -> ast.Call | None:
    for statement in reversed(setup):
        if isinstance(statement, ast.Assign) and name in binds(statement) and isinstance(statement.value, ast.Call):
            return statement.value
    return None


def _stepped(call: ast.Call) -> str:
    """Return the name of the object whose `step` is called."""
    return root(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _steppers(loop: ast.AST) -> list[str]:
    found = [_stepped(call) for call in calls(loop, "step")]
    scaled = [root(call.args[0]) for call in calls(loop, "step") if call.args]
    return list(dict.fromkeys(each for each in [*found, *scaled] if each))


def _optimizer(loop: ast.AST, setup: Sequence[ast.stmt]) -> tuple[ast.Call, str]:
    found = {name: made for name in _steppers(loop) if (made := _made(name, setup)) and any(calls(made, "parameters"))}
    if len(found) > 1:
        lines = [f"{name} (line {call.lineno})" for call in calls(loop, "step") if (name := _stepped(call)) in found]
        raise Unreadable(f"it steps {len(found)} optimizers: {', '.join(lines)}, as a GAN does", _steps_of(found))
    if not found:
        raise Unreadable("it is not seen where its optimizer is made: name = torch.optim.Adam(model.parameters(), ...)")
    ((name, made),) = found.items()
    return made, name


def _steps_of(optimizers: Mapping[str, ast.Call]) -> str:
    """Return advice, with the loop's own names, on writing a loop with several optimizers as training steps."""
    models = {name: _model(made) for name, made in optimizers.items()}
    arguments = ", ".join(dict.fromkeys(models.values()))
    made = ", ".join(f'"{models[name]}": {ast.unparse(call)}' for name, call in optimizers.items())
    dictionary = ", ".join(f'"{each}": ...' for each in dict.fromkeys(models.values()))
    return "\n".join(
        [
            "Write what each optimizer minimises as a step, without backward and zero_grad:",
            f"def model(): return {{{dictionary}}}",
            f"def optimizer({arguments}): return {{{made}}}",
            *(f'def step_{model}({arguments}, batch): return {{"loss": ...}}' for model in models.values()),
        ]
    )


def _model(optimizer: ast.Call) -> str:
    found = {root(call.func.value) for call in calls(optimizer, "parameters") if isinstance(call.func, ast.Attribute)}
    if len(found) != 1 or "" in found:
        raise Unreadable("its optimizer has the parameters of several models: make them parts of one nn.Module")
    return found.pop()


def _schedule(loop: ast.AST, setup: Sequence[ast.stmt], optimizer: str) -> ast.Call | None:
    made = (_made(name, setup) for name in _steppers(loop) if name != optimizer)
    return next((call for call in made if call is not None and optimizer in names(call)), None)


def _steps_outside(outer: ast.stmt, inner: ast.stmt, optimizer: str) -> bool:
    within = {name for name in _steppers(inner) if name != optimizer}
    return not any(name not in (optimizer, "scaler") for name in within)


def _epochs(loop: ast.For | ast.While) -> ast.expr | None:
    """Return the number of iterations of a loop over `range`; None for other loops."""
    over = iterated(loop.iter) if isinstance(loop, ast.For) else None
    if not isinstance(over, ast.Call) or called(over) not in ("range", "trange") or not over.args:
        return None
    if len(over.args) == 1:
        return over.args[0]
    first, last = over.args[:2]
    if isinstance(first, ast.Constant) and first.value == 1 and isinstance(last, ast.BinOp):
        return last.left
    return ast.BinOp(last, ast.Sub(), first)


def _validation(
    outer: ast.stmt, inner: ast.stmt, after: Sequence[ast.stmt], data: ast.expr, model: str
) -> ast.expr | None:
    """Return the iterable of a validation loop (one that calls the model), inside the epoch loop or else after it."""
    for body in ([outer] if outer is not inner else [], after):
        for each in (found for one in body for found in ast.walk(one) if isinstance(found, ast.For)):
            over = iterated(each.iter)
            if has_backward(each) or called(over) in ("range", "zip") or not any(calls(each, model)):
                continue
            if isinstance(over, ast.Name | ast.Attribute) and ast.dump(over) != ast.dump(data):
                return over
    return None


def _accuracy(statements: Sequence[ast.stmt], model: str) -> ast.expr | None:
    """Return the comparison whose true elements a validation loop counts, such as `(output.argmax(1) == target)`."""
    loops = [each for one in statements for each in ast.walk(one) if isinstance(each, ast.For)]
    for loop in reversed(loops):
        batch = batch_of(loop)
        name = batch.id if isinstance(batch, ast.Name) else ""
        elements = next(filter(None, (unpacked(each, name) for each in flat(loop.body))), elements_of(batch))
        for values, expression in _computed(loop, name):
            found = [each for each in ast.walk(replaced(expression, values)) if isinstance(each, ast.Compare)]
            hits = [of_output(each, model, elements) for each in found if isinstance(each.ops[0], ast.Eq)]
            for hit in hits:
                if names(hit) >= {"output", "target"}:
                    return hit
    return None


def _computed(loop: ast.For, batch: str) -> Iterator[tuple[Mapping[str, ast.expr], ast.expr]]:
    """Yield the operands of augmented assignments (`+=`) in a loop, with the values of local names at that point."""
    values: dict[str, ast.expr] = {}
    for statement in flat(loop.body):
        if isinstance(statement, ast.AugAssign):
            yield dict(values), without_devices(statement.value)
        values |= {} if unpacked(statement, batch) else assigned(statement, values)
