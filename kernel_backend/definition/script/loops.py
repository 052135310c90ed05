"""Find the training loops of a program: those whose bodies call `backward`, directly or through user functions."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, takewhile
from types import MappingProxyType

from kernel_backend.definition.script.rounds import Iteration, Part, is_copy, trains_anew
from kernel_backend.definition.script.scopes import Loop, Scope, names_of, own_children, own_nodes, scopes
from kernel_backend.model.syntax import FunctionNode

_BACKWARD = frozenset({"backward", "manual_backward"})
_REPEATING = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


@dataclass(frozen=True)
class TrainingLoop:
    """Loop whose body calls `backward`, directly or through other functions and modules of the user."""

    module: str  # of the project; "" for the program itself
    line: int
    depth: int  # number of enclosing training loops, including those of callers
    function: str  # its qualified name; "" at top level
    saved: bool = True  # False in the body of a class and in a coroutine, which run without checkpoints
    outside: int = 1  # how often it may run outside of other training loops; 2: several times
    rounds: bool = False  # its iterations are trainings of their own: over folds, seeds or hyperparameters


def training_loops(
    tree: ast.Module, modules: Mapping[str, ast.Module] = MappingProxyType({})
) -> tuple[TrainingLoop, ...]:
    """Return the training loops that running the program can reach, in source order.

    Parameters
    ----------
    tree : ast.Module
        The program.
    modules : mapping of str to ast.Module
        Modules of the user's project that it may import, by name.

    Examples
    --------
    >>> program = ast.parse('''for epoch in range(3):
    ...     for x, y in loader:
    ...         criterion(model(x), y).backward()
    ... ''')
    >>> [(each.line, each.depth) for each in training_loops(program)]
    [(1, 0), (2, 1)]
    """
    graph = _Graph(scopes(tree, modules))
    found = [
        TrainingLoop(
            scope.module,
            loop.lineno,
            graph.depth(scope) + depth,
            scope.qualified,
            not isinstance(scope.node, ast.ClassDef | ast.AsyncFunctionDef),
            outside=graph.runs(scope) if depth == 0 else 0,
            rounds=graph.has_rounds(loop),
        )
        for scope in graph.entered()
        for loop, depth in graph.loops(scope)
    ]
    return tuple(sorted(found, key=lambda each: (each.module, each.line)))


def within_training(loops: Sequence[TrainingLoop]) -> list[TrainingLoop]:
    """Return the loops of one training, outermost first: those of running `loops` within loops over folds or seeds."""
    return list(dropwhile(lambda each: each.rounds, loops))


def training_statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements at a program's top level that train, directly or through the functions that they name.

    Examples
    --------
    >>> program = ast.parse("def fit():\\n    loss().backward()\\nnet = Net()\\nhistory = fit()")
    >>> [each.lineno for each in training_statements(program)]
    [4]
    """
    graph = _Graph(scopes(tree, {}))
    return [each for each in tree.body if graph.trains(each)]


def summary(loops: Sequence[TrainingLoop]) -> str:
    """Return a line that says where the loops are, outermost first.

    Examples
    --------
    >>> summary([TrainingLoop("", 14, 0, ""), TrainingLoop("", 16, 1, "")])
    'epochs in line 14, batches in line 16'
    """
    deepest = max((each.depth for each in loops), default=0)
    outside = len(
        list(takewhile(lambda depth: any(each.rounds and each.depth == depth for each in loops), range(deepest)))
    )
    return ", ".join(
        f"{_word(depth, deepest, outside)} in {_places([each for each in loops if each.depth == depth])}"
        for depth in sorted({each.depth for each in loops})
    )


def _word(depth: int, deepest: int, outside: int) -> str:
    """Return what the iterations at a depth are; those of the `outside` outermost loops are trainings."""
    if depth >= outside == deepest:
        return "steps"
    if depth < outside:
        return "rounds"
    return ("batches", "epochs")[deepest - depth] if deepest - depth < 2 else "rounds"


def _places(loops: Sequence[TrainingLoop]) -> str:
    by_module: dict[str, list[str]] = {}
    for each in loops:
        by_module.setdefault(each.module, []).append(str(each.line))
    return " and ".join(
        f"line{'s' * (len(lines) > 1)} {' and '.join(lines)}{f' of {module}' if module else ''}"
        for module, lines in by_module.items()
    )


class _Graph:
    """Graph of scopes (functions, module) that refer to each other by name, to find those that call `backward`.

    A scope that refers to a function which calls `backward`, directly or through others, counts as calling it.
    """

    def __init__(self, found: list[Scope]) -> None:
        self._scopes = found
        self._by_name: dict[str, list[Scope]] = {}
        for each in found:
            if each.name:
                self._by_name.setdefault(each.name, []).append(each)
        self._names = {each: each.names & self._by_name.keys() for each in found}
        self._reaching = self._reach()
        self._depths: dict[Scope, int] = {}
        self._runs: dict[Scope, int] = {}

    def trains(self, node: ast.AST) -> bool:
        """Return True if the code in this node calls `backward`, directly or through functions of the program."""
        nodes = [node, *own_nodes(node)]
        return any(map(_is_backward, nodes)) or self._refers(names_of(nodes))

    def loops(self, scope: Scope) -> Iterator[tuple[Loop, int]]:
        """Yield the training loops of a scope, each with its nesting depth there."""
        yield from self._nested(scope.node, 0) if scope in self._reaching else ()

    def has_rounds(self, loop: Loop) -> bool:
        """Return True if each iteration of a training loop makes a model that an inner loop trains."""
        parts = [Part(list(self._outside(_repeated(loop))))]
        seen: set[Scope] = set()
        for part in parts:
            called = {each for name in names_of(part.nodes) & self._by_name.keys() for each in self._by_name[name]}
            for each in sorted(called - seen, key=lambda scope: (scope.module, scope.qualified)):
                function = each.node if isinstance(each.node, FunctionNode) else None
                parts.append(Part(list(self._outside(each.node.body)), each.name, function))
            seen |= called
        targets = names_of(ast.walk(loop.target)) if isinstance(loop, ast.For) else frozenset[str]()
        return trains_anew(Iteration(parts, targets, self._used))

    @cached_property
    def _used(self) -> Counter[str]:
        """Count how often the program uses each name within training loops, other than to copy what it names."""
        ahead: list[ast.AST] = [
            node
            for scope in self.entered()
            for node in (scope.node.body if self.depth(scope) else (loop for loop, _ in self.loops(scope)))
        ]
        seen: set[ast.AST] = set()
        while ahead:
            node = ahead.pop()
            if node not in seen and not is_copy(node):
                seen.add(node)
                ahead += own_children(node)
        return Counter(name for node in seen for name in names_of([node]))

    def _outside(self, nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
        """Yield these nodes and those below that run in the same scope, without the training loops among them."""
        ahead = list(nodes)[::-1]
        while ahead:
            node = ahead.pop()
            if not (isinstance(node, Loop) and any(map(self.trains, _repeated(node)))):
                yield node
                ahead += own_children(node)[::-1]

    def entered(self) -> list[Scope]:
        """Return the scopes that running the program can reach: the top level, and all that it refers to."""
        found = [each for each in self._scopes if each.qualified == ""]
        for scope in found:
            inner = [other for name in sorted(self._names[scope]) for other in self._by_name[name]]
            found += [each for each in inner if each not in found]
        return found

    def depth(self, scope: Scope) -> int:
        """Return the largest number of nested training loops within which a scope is called; 0 for the top level."""
        if scope.qualified == "":
            return 0
        if scope not in self._depths:
            self._depths[scope] = 0  # used if the scope calls itself
            self._depths[scope] = max(
                (
                    self.depth(other) + around
                    for other in self.entered()
                    if other is not scope and scope.name in self._names[other]
                    for around in self._around(other, scope.name)
                ),
                default=0,
            )
        return self._depths[scope]

    def runs(self, scope: Scope) -> int:
        """Return how often a scope may run outside of training loops: not at all, once, or (2) several times."""
        if scope.qualified == "":
            return 1
        if scope not in self._runs:
            self._runs[scope] = 2  # used if the scope calls itself
            callers = (other for other in self.entered() if scope.name in self._names[other])
            self._runs[scope] = min(2, sum(self.runs(other) * self._uses(other, scope.name) for other in callers))
        return self._runs[scope]

    def _uses(self, scope: Scope, name: str) -> int:
        """Return how often a scope may call a name outside of training loops; a name that is no plain call counts 2."""
        inside = {id(each) for loop, _ in self.loops(scope) for each in _body(loop)}
        repeated = {id(inner) for each in scope.nodes if isinstance(each, _REPEATING) for inner in ast.walk(each)}
        called = {id(each.func) for each in scope.nodes if isinstance(each, ast.Call)} - repeated
        uses = [each for each in scope.nodes if names_of([each]) == {name} and id(each) not in inside]
        return sum(1 if id(each) in called else 2 for each in uses)

    def _around(self, scope: Scope, name: str) -> Iterator[int]:
        """Yield 0, and for each training loop of a scope whose body refers to a name, its nesting depth plus 1.

        These are the numbers of training loops within which the scope may use the name.
        """
        inside = list(self.loops(scope))
        yield 0
        for loop, depth in inside:
            if name in names_of(_body(loop)):
                yield depth + 1

    def _nested(self, node: ast.AST, depth: int) -> Iterator[tuple[Loop, int]]:
        body = node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else None
        for child in body if body is not None else ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
                continue
            trains = isinstance(child, Loop) and any(map(self.trains, _repeated(child)))
            if trains and isinstance(child, Loop):
                yield child, depth
            yield from self._nested(child, depth + trains)

    def _reach(self) -> set[Scope]:
        reaching = {each for each in self._scopes if any(map(_is_backward, each.nodes))}
        grown = True
        while grown:
            names = {each.name for each in reaching if each.name}
            more = {each for each in self._scopes if each not in reaching and self._names[each] & names}
            reaching |= more
            grown = bool(more)
        return reaching

    def _refers(self, names: frozenset[str]) -> bool:
        return any(each in self._reaching for name in names & self._by_name.keys() for each in self._by_name[name])


def _repeated(loop: Loop) -> list[ast.AST]:
    """Return the nodes that a loop runs in each iteration: its body, and the test of a `while`."""
    return [*loop.body, loop.test] if isinstance(loop, ast.While) else list(loop.body)


def _body(loop: Loop) -> list[ast.AST]:
    return [inner for each in _repeated(loop) for inner in (each, *own_nodes(each))]


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _BACKWARD
