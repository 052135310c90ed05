"""Compute the possible values of each kind of expression."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractObject, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState, Visits
from jupyter_ext.capture.follow.functions import function
from jupyter_ext.capture.follow.iteration import iterate
from jupyter_ext.capture.follow.mutations import change, use
from jupyter_ext.capture.follow.objects import TRUTH, attribute_value, branch_on, call_methods
from jupyter_ext.capture.follow.syntax import as_function
from jupyter_ext.capture.follow.targets import store

_OPERATORS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("__add__", "__radd__"),
    ast.Sub: ("__sub__", "__rsub__"),
    ast.Mult: ("__mul__", "__rmul__"),
    ast.Div: ("__truediv__", "__rtruediv__"),
    ast.BitOr: ("__or__", "__ror__"),
    ast.BitAnd: ("__and__", "__rand__"),
    ast.LShift: ("__lshift__", "__rlshift__"),
    ast.RShift: ("__rshift__", "__rrshift__"),
    ast.MatMult: ("__matmul__", "__rmatmul__"),
    ast.Pow: ("__pow__", "__rpow__"),
    ast.Mod: ("__mod__", "__rmod__"),
    ast.FloorDiv: ("__floordiv__", "__rfloordiv__"),
    ast.BitXor: ("__xor__", "__rxor__"),
}
_UNARY: dict[type[ast.unaryop], tuple[str, ...]] = {
    ast.USub: ("__neg__",),
    ast.UAdd: ("__pos__",),
    ast.Invert: ("__invert__",),
    ast.Not: TRUTH,
}
_ORDER = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_SHOWN = ("__format__", "__str__", "__repr__")


def _constant(state: AbstractState, node: ast.Constant) -> Value:
    return NOTHING


def _name(state: AbstractState, node: ast.Name) -> Value:
    return state.lookup(node.id) if isinstance(node.ctx, ast.Load) else NOTHING


def _attribute(state: AbstractState, node: ast.Attribute) -> Value:
    return attribute_value(state, state.visit(node.value), node.attr, node)


def _subscript(state: AbstractState, node: ast.Subscript) -> Value:
    holder = state.visit(node.value)
    call_methods(state, state.visit(node.slice), ("__index__", "__hash__", "__eq__"), [NOTHING], node)
    change(state, [each for each in holder if each.grows])
    found = call_methods(state, holder, ("__getitem__", "__class_getitem__", "__missing__"), [NOTHING], node)
    parts = holder if isinstance(node.slice, ast.Slice) else NOTHING  # a slice of an array is a view
    return frozenset(found | parts_of(holder) | parts)


def _starred(state: AbstractState, node: ast.Starred) -> Value:
    return iterate(state, state.visit(node.value))


def _dict(state: AbstractState, node: ast.Dict) -> Value:
    inside: set[AbstractObject] = set()
    for key, value in zip(node.keys, node.values, strict=True):
        found = state.visit(value)
        inside |= found if key is not None else parts_of(found)
        if key is not None:
            keys = state.visit(key)
            call_methods(state, keys, ("__hash__", "__eq__"), [keys], node)
            inside |= keys
    return state.holding(node, inside)


def _display(state: AbstractState, node: ast.List | ast.Set | ast.Tuple) -> Value:
    inside: set[AbstractObject] = set()
    for each in node.elts:
        inside |= state.visit(each)
    if not inside and isinstance(node, ast.Tuple):
        return NOTHING
    if isinstance(node, ast.Set):
        call_methods(state, frozenset(inside), ("__hash__", "__eq__"), [frozenset(inside)], node)
    return state.holding(node, inside, unordered=isinstance(node, ast.Set))


def _text(state: AbstractState, node: ast.AST) -> Value:
    state.visit_parts(node)
    return NOTHING


def _formatted(state: AbstractState, node: ast.FormattedValue) -> Value:
    call_methods(state, state.visit(node.value), _SHOWN, [NOTHING], node)
    if node.format_spec is not None:
        state.visit(node.format_spec)
    return NOTHING


def _compare(state: AbstractState, node: ast.Compare) -> Value:
    left = state.visit(node.left)
    inside: set[AbstractObject] = set(left)
    found: set[AbstractObject] = set()
    for operator, comparator in zip(node.ops, node.comparators, strict=True):
        right = state.visit(comparator)
        if isinstance(operator, ast.In | ast.NotIn):
            use(state, right)  # an iterator
            found |= call_methods(state, right, ("__contains__", "__iter__"), [left], node)
            call_methods(state, left | parts_of(right), ("__eq__", "__hash__"), [NOTHING], node)
        elif not isinstance(operator, ast.Is | ast.IsNot):
            found |= call_methods(state, left, _ORDER, [right], node) | call_methods(state, right, _ORDER, [left], node)
        inside |= right
        left = right
    return frozenset(found | state.holding(node, inside, data=True)) if inside else frozenset(found)


def _choice(state: AbstractState, node: ast.IfExp) -> Value:
    branch_on(state, node.test)
    return state.visit(node.body) | state.visit(node.orelse)


def _either(state: AbstractState, node: ast.BoolOp) -> Value:
    return NOTHING.union(*[branch_on(state, each) for each in node.values])


def _unary(state: AbstractState, node: ast.UnaryOp) -> Value:
    value = state.visit(node.operand)
    found = call_methods(state, value, _UNARY[type(node.op)], [], node)
    if isinstance(node.op, ast.Not):
        return NOTHING
    return frozenset(found | state.holding(node, value, opaque=True, data=True))


def _await(state: AbstractState, node: ast.Await) -> Value:
    return state.visit(node.value)


def _operator(state: AbstractState, node: ast.BinOp) -> Value:
    left, right = state.visit(node.left), state.visit(node.right)
    if not left and not right:
        return NOTHING
    names = _OPERATORS.get(type(node.op), ())
    found = call_methods(state, left, names, [right], node) | call_methods(state, right, names, [left], node)
    if isinstance(node.op, ast.Mod) and not left:  # string formatting
        call_methods(state, right | parts_of(right), _SHOWN, [NOTHING], node)
    unordered = any(each.unordered for each in left | right)
    inside = parts_of(left) | parts_of(right)
    return frozenset(found | state.holding(node, inside, opaque=True, data=True, unordered=unordered))


def _walrus(state: AbstractState, node: ast.NamedExpr) -> Value:
    value = state.visit(node.value)
    store(state, node.target, value)
    return value


def _lambda(state: AbstractState, node: ast.Lambda) -> Value:
    return frozenset([function(state, node)])


def _comprehension(state: AbstractState, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Value:
    targets = [each for generator in node.generators for each in ast.walk(generator.target)]
    before = state.frame
    inner = state.open(frozenset(each.id for each in targets if isinstance(each, ast.Name)), before)
    inside: set[AbstractObject] = set()
    by_hash = state.out.by_hash
    for generator in node.generators:
        found = iterate(state, state.visit(generator.iter))
        state.frame = inner
        store(state, generator.target, found)
        for condition in generator.ifs:
            branch_on(state, condition)
    state.frame = inner
    for each in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
        inside |= state.visit(each)
    state.frame = before
    if isinstance(node, ast.SetComp):  # a set has no order itself
        state.out.by_hash = by_hash
    return state.holding(node, inside, unordered=isinstance(node, ast.SetComp))


def _generator(state: AbstractState, node: ast.GeneratorExp) -> Value:
    """Return an iterator for a generator expression; the expression's parts run when it is iterated."""
    iterator = state.make(node, stateful=True)
    iterator.hold(state.visit(node.generators[0].iter))
    iterator.call = (function(state, as_function(node)), [], {})
    return frozenset([iterator])


def _yield(state: AbstractState, node: ast.Yield) -> Value:
    if node.value is not None and state.frame is not None:
        state.frame.results |= state.visit(node.value)
    return NOTHING


def _yield_from(state: AbstractState, node: ast.YieldFrom) -> Value:
    if state.frame is not None:
        state.frame.results |= iterate(state, state.visit(node.value))
    return NOTHING


VISITS: Visits = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Starred: _starred,
    ast.Dict: _dict,
    **dict.fromkeys((ast.List, ast.Set, ast.Tuple), _display),
    ast.JoinedStr: _text,
    ast.FormattedValue: _formatted,
    ast.Compare: _compare,
    ast.UnaryOp: _unary,
    ast.IfExp: _choice,
    ast.BoolOp: _either,
    ast.Await: _await,
    ast.BinOp: _operator,
    ast.NamedExpr: _walrus,
    ast.Lambda: _lambda,
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp), _comprehension),
    ast.GeneratorExp: _generator,
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
}
