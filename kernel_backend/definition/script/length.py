"""Find the number of epochs of a program's training loop, and the literal that sets it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.written import Place, Put
from kernel_backend.definition.trainer.cell import statements
from kernel_backend.model.syntax import FunctionNode

_RANGES = frozenset({"range", "trange", "prange"})
_WRAPPERS = frozenset({"tqdm", "progress_bar", "track", "enumerate", "notebook_tqdm"})
_DEEPEST = 8  # limit of calls and names to follow


@dataclass(frozen=True)
class Length:
    """Number of iterations of a program's outermost training loop, if the source shows it, and how to change it."""

    count: int | None = None  # None: the source does not show it, or the line must give it
    name: str = ""  # the hyperparameter that holds it; empty if it is a literal
    put: Put | None = None  # writes another number into the program
    why: str = ""  # the reason why it cannot be changed
    rounds: int | None = None  # iterations of that loop if they are trainings of their own, and the source shows it

    @property
    def settings(self) -> dict[str, int | bool]:
        """Return the fields of Config that follow from the length: `epochs`, or `epochs_unknown`.

        Empty if the length is a hyperparameter without a default, which the command line must give.
        """
        if self.why:
            return {"epochs_unknown": True}
        return {} if self.count is None else {"epochs": self.count}


def length(tree: ast.Module, loops: Sequence[TrainingLoop], places: Mapping[str, Place]) -> Length:
    """Return how many iterations a program's outermost training loop has.

    The user can change the number if there is only one such loop, over a `range` whose end is a literal, a name or an
    argument. `places` are the program's hyperparameters by name.
    """
    outer = [each for each in loops if each.depth == 0]
    if len(outer) != 1:
        lines = " and ".join(f"line {each.line}" for each in outer)
        return Length(why=f"there is no one loop of epochs ({lines})" if outer else "the loop is not seen")
    (loop,) = outer
    where = f"{loop.module} line {loop.line}" if loop.module else f"line {loop.line}"
    found = _of_loop(tree, loop, places, where)
    if loop.rounds:
        return Length(why=f"each iteration of {where} is a training with its own epochs", rounds=found.count)
    return found


def _of_loop(tree: ast.Module, loop: TrainingLoop, places: Mapping[str, Place], where: str) -> Length:
    at = [
        (node, function, owner)
        for node, function, owner in _within(tree)
        if isinstance(node, ast.For | ast.While) and node.lineno == loop.line and not loop.module
    ]
    if not at:
        return Length(why=f"the loop of epochs is in {where}")
    node, function, owner = at[0]
    if isinstance(node, ast.While):
        return Length(why=f"{where} loops while {ast.unparse(node.test)}, without a number of epochs")
    end = _end(node.iter)
    if end is None:
        return Length(why=f"{where} loops over {ast.unparse(node.iter)}, which is no range of epochs")
    tracer = _Tracer(tree, places)
    traced = tracer.trace(end, lambda value: _put_end(node, end, value), function, owner, _DEEPEST)
    return traced or Length(why=f"{where} loops over {ast.unparse(node.iter)}: {ast.unparse(end)} is computed")


def _end(over: ast.expr) -> ast.expr | None:
    """Return the end X of `range(X)`, `range(0, X)` or `range(1, X + 1)`, also within `tqdm`.

    None for other iterables.
    """
    while isinstance(over, ast.Call) and ast.unparse(over.func).rpartition(".")[2] in _WRAPPERS and over.args:
        over = over.args[0]
    if not isinstance(over, ast.Call) or ast.unparse(over.func).rpartition(".")[2] not in _RANGES:
        return None
    if len(over.args) == 1:
        return over.args[0]
    first = over.args[0].value if len(over.args) == 2 and isinstance(over.args[0], ast.Constant) else None
    last = over.args[1] if len(over.args) == 2 else None
    if first == 0:
        return last
    one = isinstance(last, ast.BinOp) and isinstance(last.op, ast.Add) and ast.unparse(last.right) == "1"
    return last.left if first == 1 and one and isinstance(last, ast.BinOp) else None


def _put_end(loop: ast.For, end: ast.expr, value: ast.expr) -> None:
    """Replace the expression `end` in the loop's iterable by `value`, the number of epochs."""

    class _Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return value if node is end else self.generic_visit(node)

    changed = _Replace().visit(loop.iter)
    assert isinstance(changed, ast.expr)
    loop.iter = changed


class _Tracer:
    """Search for the literal that gives an expression its value, through names, arguments and `self`."""

    def __init__(self, tree: ast.Module, places: Mapping[str, Place]) -> None:
        self._tree, self._places = tree, places
        self._written = {each.written: each for each in places.values()}

    def trace(
        self, node: ast.expr, put: Put, function: FunctionNode | None, owner: ast.ClassDef | None, left: int
    ) -> Length | None:
        """Return the number of iterations for which an expression stands; None if the source does not show it.

        `put` replaces the expression in the program. `function` is the function that contains it, and `owner` the class
        if that is a method. `left` is the number of steps that the search may still take, such as from a name to the
        statement that assigns it.
        """
        if isinstance(node, ast.Constant):
            return Length(node.value, put=put) if type(node.value) is int and node.value > 0 else None
        if not left:
            return None
        if isinstance(node, ast.Name):
            return self._name(node.id, function, owner, left - 1)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "self" and owner is not None:
                return self._of_self(node.attr, owner, left - 1)
            return self._config(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self._config(str(node.slice.value))
        return None

    def _config(self, name: str) -> Length | None:
        place = self._places.get(name)
        if place is None or place.written == name:  # a variable of this name, not an entry of a config
            return None
        return self._held(place)

    def _held(self, place: Place) -> Length | None:
        count = place.default
        if place.required:
            return Length(None, place.name, place.put)
        return Length(count, place.name, place.put) if type(count) is int and count > 0 else None

    def _name(self, name: str, function: FunctionNode | None, owner: ast.ClassDef | None, left: int) -> Length | None:
        if function is not None and name in (each.arg for each in (*function.args.args, *function.args.kwonlyargs)):
            return self._argument(name, function, owner, left)
        own = list(_assignments(function.body, name)) if function is not None else []
        place = self._places.get(name)
        if place is not None and place.written == name and (not own or place.line == own[0].lineno):
            return self._held(place)
        bound = own or list(_assignments(statements(self._tree.body), name))
        if len(bound) != 1:
            return None
        put = Place.attribute(bound[0], "value")
        return self.trace(bound[0].value, put, function if own else None, owner if own else None, left)

    def _argument(self, name: str, function: FunctionNode, owner: ast.ClassDef | None, left: int) -> Length | None:
        """Follow an argument of `function` to the only call of that function, or to its default if omitted there.

        `owner` is the class of a method, and `left` is the number of steps that the search may still take.
        """
        called = owner.name if owner is not None and function.name == "__init__" else function.name
        calls = [
            each
            for each in _within(self._tree)
            if isinstance(each[0], ast.Call) and ast.unparse(each[0].func).rpartition(".")[2] == called
        ]
        if len(calls) != 1:
            return None
        ((call, caller, callers_owner),) = calls
        assert isinstance(call, ast.Call)
        names = [each.arg for each in function.args.args]
        if owner is not None:
            names = names[1:]
        for number, each in enumerate(call.args):
            if number < len(names) and names[number] == name:
                return self.trace(each, Place.item(call.args, number), caller, callers_owner, left)
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.trace(keyword.value, Place.attribute(keyword, "value"), caller, callers_owner, left)
        if any(each.arg is None for each in call.keywords) or any(isinstance(each, ast.Starred) for each in call.args):
            return None
        named = function.args.args
        defaults = function.args.defaults
        index = [each.arg for each in named].index(name) - (len(named) - len(defaults)) if name in names else -1
        if index < 0:
            return None
        return self.trace(defaults[index], Place.item(defaults, index), None, None, left)

    def _of_self(self, name: str, owner: ast.ClassDef, left: int) -> Length | None:
        """Follow the attribute `self.name` to the only statement in its class that assigns it.

        `left` is the number of steps that the search may still take.
        """
        found = [
            (each, method)
            for method in owner.body
            if isinstance(method, FunctionNode)
            for each in ast.walk(method)
            if isinstance(each, ast.Assign) and any(ast.unparse(target) == f"self.{name}" for target in each.targets)
        ]
        if len(found) != 1:
            return None
        ((assignment, method),) = found
        return self.trace(assignment.value, Place.attribute(assignment, "value"), method, owner, left)


def _assignments(body: Sequence[ast.stmt], name: str) -> Iterator[ast.Assign]:
    for each in body:
        if isinstance(each, ast.Assign) and name in (ast.unparse(target) for target in each.targets):
            yield each


def _within(
    tree: ast.AST,
) -> Iterator[tuple[ast.AST, FunctionNode | None, ast.ClassDef | None]]:
    """Yield each node of a tree with its innermost function and class; None where there is none."""
    queue: list[tuple[ast.AST, FunctionNode | None, ast.ClassDef | None]] = [(tree, None, None)]
    while queue:
        node, function, owner = queue.pop()
        yield node, function, owner
        inner = node if isinstance(node, FunctionNode) else function
        around = node if isinstance(node, ast.ClassDef) else owner
        queue += [(each, inner, around) for each in ast.iter_child_nodes(node)]
