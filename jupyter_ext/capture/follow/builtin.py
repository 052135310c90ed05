"""Interpret builtins that look up names or create classes: `getattr`, `setattr`, `exec`, `type`, `super`."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import ELEMENTS, NOTHING, AbstractObject, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.mutations import change, change_root, need_gradients
from jupyter_ext.capture.follow.objects import attribute, attribute_value
from jupyter_ext.capture.names import root, scan


def call_builtin(state: AbstractState, name: str, arguments: list[Value], node: ast.Call) -> set[AbstractObject]:
    """Apply the effects of calling the builtin `name`, such as `setattr`, and return the call's possible values."""
    if name in ("setattr", "delattr") and arguments:
        key = node.args[1] if len(node.args) > 1 else None
        under = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ELEMENTS
        change(state, arguments[0])
        if under in (*libraries.GRADIENTS, ELEMENTS):
            need_gradients(arguments[0].union(*arguments[2:]))
        for each in arguments[0]:
            each.hold(arguments[-1] if name == "setattr" else NOTHING, under)
        first, path = root(node.args[0])
        if first is not None and state.owner(first) is None:
            change_root(state, first, path)
    elif name == "getattr" and len(node.args) > 1:
        key = node.args[1]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return set(attribute_value(state, arguments[0], key.value, node))
        return set(parts_of(arguments[0]))
    elif name in ("exec", "eval") and node.args:
        text = node.args[0]
        if isinstance(text, ast.Constant) and len(node.args) == 1:
            return set(_run_text(state, str(text.value)))
        state.out.unseen = True
    elif name == "hasattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        attribute(state, arguments[0], str(node.args[1].value), node)
    elif name == "input" and "input" not in state.globals:
        state.out.prompts = True
    elif name == "type" and len(node.args) == 1:
        return {cls for each in arguments[0] for cls in each.classes}
    elif name == "type" and len(node.args) == 3:
        made = state.make(node, is_class=True, opaque=True)
        made.classes += [each for each in parts_of(arguments[1]) if each.is_class]
        made.hold(parts_of(arguments[2]))
        if isinstance(node.args[2], ast.Dict):
            for key, value in zip(node.args[2].keys, node.args[2].values, strict=True):
                made.hold(state.visit(value), str(getattr(key, "value", ELEMENTS)))
        return {made}
    elif name == "super":
        frame = state.frame
        while frame is not None and not frame.local & {"self", "cls"}:
            frame = frame.outer
        if frame is not None:
            return set(frame.values.get("self", NOTHING) | frame.values.get("cls", NOTHING))
    return set()


def _run_text(state: AbstractState, text: str) -> Value:
    """Interpret a constant string that is run as code, as in `exec("x = 1")`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return NOTHING
    state.out.bound |= scan(tree.body).names
    state.out.read |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    state.trees.append(tree)  # keeps the nodes alive, which are identified by `id()`
    state.branches += 1
    value = NOTHING
    for node in tree.body:
        value = state.visit(node.value if isinstance(node, ast.Expr) else node)
    state.branches -= 1
    return value
