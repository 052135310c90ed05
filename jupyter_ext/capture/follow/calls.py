"""Interpret calls of notebook functions, library functions and builtins."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractObject, Value
from jupyter_ext.capture.follow.abstract_state import AbstractState, Visits
from jupyter_ext.capture.follow.builtin import call_builtin
from jupyter_ext.capture.follow.external_calls import call_external
from jupyter_ext.capture.follow.mutations import change, contain
from jupyter_ext.capture.follow.objects import apply, attribute, methods_of_bases
from jupyter_ext.capture.follow.syntax import is_globals, is_super
from jupyter_ext.capture.follow.targets import bind_globals

_SPREAD = 8  # number of arguments assumed for `*xs`
_ORDERLESS = frozenset({"frozenset", "len", "set", "sorted"})  # builtins whose result no order of their values changes
_COPIES = frozenset({"list", "tuple"})


def call(state: AbstractState, node: ast.expr, *, dropped: bool) -> Value:
    """Interpret an expression, usually a call, and return its possible values.

    `dropped` is True if the statement discards the value of the expression, so that it was evaluated for its effect.
    """
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call):
        return state.visit(node)
    func = node.func
    receiver = state.visit(func.value) if isinstance(func, ast.Attribute) else NOTHING
    if isinstance(func, ast.Attribute):
        callee = attribute(state, receiver, func.attr, func)
        if is_super(func.value):
            callee |= methods_of_bases(state, receiver, func.attr, func)
    else:
        callee = state.visit(func)
    if isinstance(func, ast.Attribute) and func.attr == "update" and is_globals(func.value):
        bind_globals(state, node)
    arguments: list[Value] = []
    for argument in _without_copy(node):  # unpacked arguments may go to any parameter
        arguments += [state.visit(argument)] * (_SPREAD if isinstance(argument, ast.Starred) else 1)
    keywords = {each.arg: state.visit(each.value) for each in node.keywords}
    found: set[AbstractObject] = set()
    if dropped and isinstance(func, ast.Attribute) and func.attr in libraries.CHANGING:
        change(state, [each for each in receiver if (each.opaque or each.classes) and not each.data])
    unknown = not callee
    for each in callee:
        if each in receiver:  # a method whose source is not analysed
            unknown = True
        elif each.path and each.bound:  # `xs.append` under another name
            contain(state, each.path, each.bound, arguments)
        elif each.package is None and (each.function or each.is_class or each.is_callable()):
            found |= apply(state, each, arguments, {k or "**": v for k, v in keywords.items()}, node)
        else:
            unknown = True
    if isinstance(func, ast.Name) and state.owner(func.id) is None:
        found |= call_builtin(state, func.id, arguments, node)
    if unknown:
        found |= call_external(state, node, receiver, callee, arguments, keywords, dropped=dropped)
    return frozenset(found)


def _without_copy(node: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call; of `sorted(list(values))` and the like the values, whose order does not count."""
    args = list(node.args)
    if isinstance(node.func, ast.Name) and node.func.id in _ORDERLESS:
        while len(args) == 1 and isinstance(args[0], ast.Call) and len(args[0].args) == 1 and not args[0].keywords:
            copied = args[0].func
            if not (isinstance(copied, ast.Name) and copied.id in _COPIES):
                break
            args = list(args[0].args)
    return args


def _call(state: AbstractState, node: ast.Call) -> Value:
    return call(state, node, dropped=False)


VISITS: Visits = {ast.Call: _call}
