"""Write a cell of functions from the parts of a training loop."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from jupyter_ext.recognise.loop import Loop
from jupyter_ext.recognise.trees import binds, called, changed, names, replaced, root, without_devices
from kernel_backend.definition.contract import ROLES

_PLATFORM = {"manual_seed", "seed", "print", "train", "eval", "to", "cuda", "summary", "zero_grad"}
_INDENT = "    "
_WRAPPED = """\
class Wrapped(torch.nn.Module):
    def __init__(self, {name}):
        super().__init__()
        self.{name} = {name}
    def forward(self, {arguments}):
        return {output}"""


def options(loop: Loop) -> list[str]:
    """Return the options that reproduce the settings of the loop."""
    found: list[tuple[str, str]] = []
    if loop.epochs is not None:
        found.append(("--epochs", _number(loop.epochs, loop.setup)))
    if loop.whole is not None:
        found.append(("--batch-size", f"{{len({ast.unparse(loop.whole)})}}"))
    if loop.schedule is not None and loop.per_epoch:
        found.append(("--schedule-per", "epoch"))
    if loop.clip is not None:
        found.append(("--clip", _number(loop.clip, loop.setup)))
    return [word for flag, value in found for word in (flag, value)]


def cell(loop: Loop, own: Sequence[ast.stmt], source: str) -> str:
    """Return the text of a cell with the loop's parts as functions, below the statements of `own` that they need."""
    functions = list(_functions(loop))
    needed = _needed(loop, own, names(ast.parse("\n".join(functions))) - set(ROLES))
    kept = [statement_text(each, source) for each in own if each in needed]
    if "torch." in "".join(functions) and "torch" not in {name for each in loop.setup for name in binds(each)}:
        kept.insert(0, "import torch")
    return "\n".join([*kept, *([""] if kept else []), *functions]) + "\n"


def statement_text(statement: ast.stmt, source: str) -> str:
    """Return a statement's source with its comments; unparsed without them if it was indented or names a device."""
    plain = without_devices(statement)
    decorators = getattr(statement, "decorator_list", [])
    lines = source.splitlines()[min(each.lineno for each in [statement, *decorators]) - 1 : statement.end_lineno]
    alone = statement.col_offset == 0 and ast.dump(plain) == ast.dump(statement) and _is_whole(lines)
    return "\n".join(lines) if alone else ast.unparse(plain)


def _is_whole(lines: Sequence[str]) -> bool:
    """Return whether the lines hold exactly one statement."""
    try:
        return len(ast.parse("\n".join(lines)).body) == 1
    except SyntaxError:
        return False


def _number(value: ast.expr, setup: Sequence[ast.stmt]) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.Name):
        for each in reversed(setup):
            if isinstance(each, ast.Assign) and value.id in binds(each) and isinstance(each.value, ast.Constant):
                return str(each.value.value)
    return f"{{{ast.unparse(value)}}}"


def _functions(loop: Loop) -> Iterator[str]:
    yield from _model(loop)
    yield from _optimizer(loop)
    if loop.schedule is not None:
        made = replaced(loop.schedule, {loop.optimizer_name: ast.Name("optimizer", ast.Load())})
        yield _function("schedule", ["optimizer"], made, loop)
    yield _function("train_data", [], loop.data, loop)
    if loop.validation is not None:
        yield _function("validation_data", [], loop.validation, loop)
    yield _function("loss", _asked(loop.loss), loop.loss, loop)
    if loop.validation is not None and loop.accuracy is not None:
        value = ast.parse(f"{{'accuracy': ({ast.unparse(loop.accuracy)}).float()}}", mode="eval").body
        yield _function("metrics", _asked(loop.accuracy), value, loop)


def _asked(expression: ast.expr) -> list[str]:
    used = names(expression)
    return [each for each in ("output", "target", "input", "batch", "epoch") if each in used]


def _model(loop: Loop) -> Iterator[str]:
    found = [each for each in map(without_devices, about(loop.model, loop.setup)) if not _is_nothing(each)]
    if not found:
        return
    first = found[-1]
    made = first.value if len(found) == 1 and isinstance(first, ast.Assign) else ast.Name(loop.model, ast.Load())
    local = [] if len(found) == 1 and isinstance(first, ast.Assign) else [ast.unparse(each) for each in found]
    if loop.wrapped is not None:
        arguments = ", ".join(each.arg for each in loop.wrapped.args.args)
        inner = replaced(loop.wrapped.body, {loop.model: ast.parse(f"self.{loop.model}", mode="eval").body})
        yield _WRAPPED.format(name=loop.model, arguments=arguments, output=ast.unparse(inner))
        made = ast.Call(ast.Name("Wrapped", ast.Load()), [made], [])
    yield function("model", [*local, f"return {ast.unparse(made)}"])


def about(name: str, setup: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the setup statements that compute the value of `name`, and those that change that value in place."""
    found: list[ast.stmt] = []
    for each in setup:
        if isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            if any(root(target) == name for target in targets):
                found = (
                    [each]
                    if any(_is(target, name) for target in targets) and not _reads(each, name)
                    else [*found, each]
                )
        elif _changes(each, name):
            found.append(each)
    return found


def _changes(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement may change the value of `name` in place: a loop over it, or a call of its method."""
    if isinstance(statement, ast.For):
        return name in names(statement.iter)
    if isinstance(statement, ast.Expr) and called(statement.value).endswith("_"):  # nn.init.zeros_(net.fc.bias)
        return name in names(statement)
    return isinstance(statement, ast.Expr) and _receiver(statement) == name and called(statement.value) not in _PLATFORM


def _is_nothing(statement: ast.stmt) -> bool:
    """Return whether a statement assigns a name to itself, as `net = net.to(device)` without the device."""
    if not isinstance(statement, ast.Assign):
        return False
    return ast.unparse(statement.targets[0]) == ast.unparse(statement.value)


def _is(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _reads(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    """Return whether an assignment to `name` reads its old value; a move to a device does not count."""
    value = without_devices(statement.value) if statement.value is not None else ast.Constant(None)
    return name in names(value)


def _optimizer(loop: Loop) -> Iterator[str]:
    def params(each: ast.expr) -> ast.expr | None:
        mine = isinstance(each, ast.Call) and ast.unparse(each) == f"{loop.model}.parameters()"
        return ast.Name("params", ast.Load()) if mine else None

    made = changed(loop.optimizer, params)
    asked = ["params"]
    if loop.model in names(made):
        made, asked = replaced(loop.optimizer, {loop.model: ast.Name("model", ast.Load())}), ["model"]
    for keyword in made.keywords:
        if keyword.arg == "lr" and isinstance(keyword.value, ast.Constant):
            asked.append(f"lr={ast.unparse(keyword.value)}")
            keyword.value = ast.Name("lr", ast.Load())
    yield _function("optimizer", asked, made, loop)


def _function(role: str, arguments: Sequence[str], value: ast.expr, loop: Loop) -> str:
    """Return the source of a role function; it computes itself those needed values whose names now denote roles."""
    own = {each.partition("=")[0] for each in arguments}
    taken = sorted((names(value) - own) & {*ROLES, loop.optimizer_name, loop.model})
    local = [ast.unparse(without_devices(each)) for name in taken for each in about(name, loop.setup)]
    return function(role, [*local, f"return {ast.unparse(value)}"], arguments)


def function(name: str, lines: Sequence[str], arguments: Iterable[str] = ()) -> str:
    """Return the source of a function with these lines."""
    body = "\n".join(lines).replace("\n", f"\n{_INDENT}")
    return f"def {name}({', '.join(arguments)}):\n{_INDENT}{body}"


def _needed(loop: Loop, own: Sequence[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    """Return the statements of `own` that compute or change the values which the functions read."""
    needed: list[ast.stmt] = []
    without = {loop.model, loop.optimizer_name, *ROLES}
    for each in reversed(own):
        if isinstance(each, ast.For | ast.While) and each.lineno == loop.statement.lineno:
            continue
        if not isinstance(each, ast.FunctionDef | ast.ClassDef) and names(each) & {loop.model, loop.optimizer_name}:
            continue
        about = binds(each) if not isinstance(each, ast.Expr) else {_receiver(each)}
        if isinstance(each, ast.Assign):
            about |= {root(target) for target in each.targets}
        if about & (wanted - without) and not (isinstance(each, ast.Expr) and called(each.value) in _PLATFORM):
            needed.append(each)
            wanted = wanted | names(each)
    return needed


def _receiver(statement: ast.Expr) -> str:
    call = statement.value
    return root(call.func.value) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
