"""Find where a definition takes a number from the clock or from chance that no restart repeats, by its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_backend.definition.script.scopes import own_nodes

_CLOCKS = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow"}
)
_OWNERS = frozenset({"", "time", "datetime", "datetime.datetime"})
_GENERATORS = frozenset({"default_rng", "RandomState", "Random", "PCG64", "MT19937", "Philox", "SFC64"})
_SEEDING = _GENERATORS | {"seed", "manual_seed", "manual_seed_all", "seed_everything", "set_seed", "set_random_seed"}
_OF_THE_SYSTEM = frozenset({"SystemRandom", "urandom", "token_bytes", "randbits"})
_COMPUTING = frozenset({"forward", "call", "__call__", "training_step", "compute_loss", "train_step"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def unrepeatable(source: str | bytes) -> str | None:
    """Return why results of a definition depend on the clock or on chance, as a guarantee; None if nothing is found.

    These are seeds of the clock, loops that the clock ends, generators that a function makes without a seed and uses,
    and those that a model makes and keeps while it computes. A clock that only measures is none.

    >>> unrepeatable("def f(x): return x + default_rng().normal()")
    'not reproducible: f(): default_rng() draws anew in each run: seed it, or draw from torch, numpy or random'
    """
    functions = [each for each in ast.walk(ast.parse(source)) if isinstance(each, Function)]
    found = [(line, f"{each.name}(): {text}") for each in functions for line, text in _in_function(each)]
    return f"not reproducible: {min(found)[1]}" if found else None


def _in_function(function: Function) -> Iterator[tuple[int, str]]:
    """Yield lines of a function, and what it takes there."""
    nodes = [node for statement in function.body for node in (statement, *own_nodes(statement))]
    assigned = [each for each in nodes if isinstance(each, ast.Assign)]
    timed = {name for each in assigned if _asks_clock(each.value, set()) for name in _names(each)}
    made = {name for each in assigned if _is_unseeded(each.value) for name in _names(each)}
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from ((node.lineno, text) for text in _of_call(node, timed, made))
        elif isinstance(node, ast.If | ast.While) and _asks_clock(node.test, timed) and _decides(node):
            yield node.lineno, f"the clock decides how much is trained ({ast.unparse(node.test)}): count steps instead"
        if isinstance(node, ast.If) and function.name in _COMPUTING:
            yield from _kept(node)


def _kept(branch: ast.If) -> Iterator[tuple[int, str]]:
    """Yield generators that a branch makes as attributes, as in the first call only."""
    for node in branch.body:
        if isinstance(node, ast.Assign) and any(map(_makes, ast.walk(node.value))):
            for name in (ast.unparse(each) for each in node.targets if isinstance(each, ast.Attribute)):
                yield node.lineno, f"{name} is a generator that is made while the model computes: make it in __init__()"


def _of_call(call: ast.Call, timed: set[str], made: set[str]) -> Iterator[str]:
    given = [*call.args, *(each.value for each in call.keywords)]
    if _last(call) in _SEEDING and any(_asks_clock(each, timed) for each in given):
        yield f"{ast.unparse(call)} takes its seed from the clock: give it a number"
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    drawn = call if _last(call) in _OF_THE_SYSTEM else owner if owner and _draws_anew(owner, made) else None
    if drawn is not None:
        yield f"{ast.unparse(drawn)} draws anew in each run: seed it, or draw from torch, numpy or random"


def _asks_clock(node: ast.expr, timed: set[str]) -> bool:
    return any(
        (isinstance(each, ast.Call) and _last(each) in _CLOCKS and _owner(each) in _OWNERS)
        or (isinstance(each, ast.Name) and each.id in timed)
        for each in ast.walk(node)
    )


def _draws_anew(owner: ast.expr, made: set[str]) -> bool:
    """Return True for the owner of a method that draws, such as `default_rng()`, or `rng` of the generators `made`."""
    return _is_unseeded(owner) or (isinstance(owner, ast.Name) and owner.id in made)


def _is_unseeded(node: ast.expr) -> bool:
    bare = isinstance(node, ast.Call) and not node.args and not node.keywords
    return bare and isinstance(node, ast.Call) and _last(node) in _GENERATORS


def _makes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last(node) in {*_GENERATORS, "Generator"}


def _decides(node: ast.If | ast.While) -> bool:
    """Return True if a branch ends a loop, or tells the training to stop; False for a loop that waits."""
    inner = [each for statement in node.body for each in (statement, *own_nodes(statement))]
    if isinstance(node, ast.While):
        return not any(isinstance(each, ast.Call) and _last(each) == "sleep" for each in inner)
    stops = [target for each in inner if isinstance(each, ast.Assign) for target in each.targets]
    return any(isinstance(each, ast.Break) for each in inner) or any("stop" in ast.unparse(each) for each in stops)


def _names(node: ast.Assign) -> Iterator[str]:
    yield from (each.id for each in node.targets if isinstance(each, ast.Name))


def _last(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _owner(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[0]
