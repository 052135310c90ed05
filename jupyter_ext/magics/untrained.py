"""Tell the user which values a job trains or fills while the notebook's values of these names stay as they are."""

from __future__ import annotations

import ast
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_ext.capture import Capture
from jupyter_ext.capture.cells import parse_cell
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.keras.fit import keras_fit
from kernel_backend.definition.lightning.cell import lightning_cell
from kernel_backend.definition.script.bindings import changed_by, mutated_roots
from kernel_backend.definition.script.defined import left_out
from kernel_backend.definition.trainer.cell import trainer_cell
from kernel_backend.model.syntax import FunctionNode, module_tree

_FILLED = (list, dict, set, deque, bool, int, float)
_FIRST = frozenset({"Counter", "OrderedDict", "defaultdict", "deque", "dict", "float", "int", "list", "set"})
_LISTED = 6  # names that a note lists
_LOADED = 2  # modules for which a note shows how to load them
_PARAMETERS = frozenset({"parameters", "named_parameters"})


class Untrained(NamedTuple):
    """Names of values that the job alone trains or fills, and the calls that load what it has trained."""

    names: Sequence[str]
    loads: Sequence[str]


class LeftBehind:
    """Modules of the notebook that an experiment trains, and that have not changed in the notebook since."""

    def __init__(self) -> None:
        self._modules: dict[str, _Left] = {}

    def add(self, found: Untrained, held: Mapping[str, Any], number: int) -> None:
        """Add the modules of the notebook that experiment `number` trains."""
        by_name = any('"' in each for each in found.loads)
        for name in found.names:
            if _is_trained(held.get(name), "Module"):
                load = f'daylight.job({number}).load("{name}")' if by_name else f"daylight.job({number}).load()"
                self._modules[name] = _Left(number, load, weakref.ref(held[name]), _version(held[name]))

    def within(self, names: Iterable[str], held: Mapping[str, Any]) -> Iterator[str]:
        """Yield a note for each of the names whose module is still without what an experiment has trained."""
        for name in names:
            left = self._modules.get(name)
            if left is not None and left.module() is held.get(name) and _version(held[name]) == left.version:
                yield (
                    f"{name} begins without what #{left.number} trains: to go on from there, run {name} = {left.load} "
                    "in a cell before this one"
                )


class _Left(NamedTuple):
    number: int  # of the experiment
    load: str  # call that loads what it has trained
    module: weakref.ref[Any]
    version: int  # of the module's weights when the experiment was submitted


def _version(module: Any) -> int:
    """Return a number that grows with each change of a module's weights in place."""
    torch = sys.modules["torch"]
    return sum(int(each._version) for each in torch.nn.Module.parameters(module))


def untrained_values(running: str, definition: Definition, capture: Capture, held: Mapping[str, Any]) -> Untrained:
    """Return the values that a job trains or fills, and the notebook does not.

    Parameters
    ----------
    running : str
        The whole text of the running cell, of which the notebook has executed its part.
    definition : Definition
        The definition that was submitted.
    capture : Capture
        The captured module.
    held : mapping of str to object
        The notebook's values.
    """
    if definition.form == "script":
        return _of_loop(left_out(parse_cell(running).tree), module_tree(capture.source), held)
    return _of_framework(definition, capture)


def untrained_note(found: Untrained, held: Mapping[str, Any], job: str = "job") -> str | None:
    """Return a note on the values that a job trains or fills, and the notebook does not; None if there are none.

    `job` is how the notebook gets at the job: a variable, or a call such as `daylight.job(12)`.
    """
    old = [each for each in found.names if each in held]
    unset = [each for each in found.names if each not in held]
    parts = []
    if old:
        parts.append(f"the notebook's {_listed(old)} {'stay as they were' if len(old) > 1 else 'stays as it was'}")
    if unset:
        where = "there" if old else "in the notebook"
        parts.append(f"{_listed(unset)} {'are' if len(unset) > 1 else 'is'} not set {where}")
    if parts and found.loads:
        given = "gives the trained model" if len(found.loads) == 1 else "give the trained models"
        loads = [each.replace("job", job, 1) for each in found.loads]
        first = " after import daylight" if job.startswith("daylight.") and "daylight" not in held else ""
        return f"{', and '.join(parts)}: {_listed(loads)} {given}{first}"
    return ", and ".join(parts) or None


def _listed(names: Sequence[str]) -> str:
    shown = list(names) if len(names) <= _LISTED else [*names[: _LISTED - 1], f"{len(names) - _LISTED + 1} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _of_framework(definition: Definition, capture: Capture) -> Untrained:
    """Return the model of a cell for a framework, and its Trainer or history, which only the job trains or fills.

    For a definition that consists of functions it is the model, if that is given as a value and not by a function.
    """
    loads = ["job.load()"]
    if definition.form == "lightning":
        found = lightning_cell(module_tree(capture.source), capture.roles_from)
        fit = found.fit
        owner = fit.func.value if fit is not None and isinstance(fit.func, ast.Attribute) else None
        trainers = [owner.id] if isinstance(owner, ast.Name) else []
        return Untrained([*(_model(fit) if fit is not None else []), *trainers, *_callbacks(found.trainer)], loads)
    if definition.form == "trainer":
        cell = trainer_cell(module_tree(capture.source), capture.roles_from)
        return Untrained([*_model(cell.trainer), cell.name, *_callbacks(cell.trainer)], loads)
    if definition.form == "keras" and (call := keras_fit(module_tree(capture.source), capture.roles_from)) is not None:
        history = [call.target] if call.target else []
        return Untrained([*history, call.model, *_callbacks(call.call)], loads)
    model = definition.functions.get("model")
    return Untrained([model.attribute] if model is not None and model.value else [], loads)


def _model(call: ast.Call) -> list[str]:
    """Return the variable that a Trainer call gets as its model: `["net"]` for `Trainer(net)` or `fit(model=net)`.

    The list is empty if the model is another expression, as in `Trainer(Net())`.
    """
    given = next((each.value for each in call.keywords if each.arg == "model"), None)
    given = call.args[0] if given is None and call.args else given
    return [given.id] if isinstance(given, ast.Name) else []


def _callbacks(trainer: ast.Call | None) -> list[str]:
    """Return the variables that a Trainer gets as callbacks: what they record of the training, the job alone has."""
    given = trainer.keywords if trainer is not None else []
    value = next((each.value for each in given if each.arg == "callbacks"), None)
    return [each.id for each in getattr(value, "elts", [value]) if isinstance(each, ast.Name)]


def _of_loop(dropped: Sequence[ast.stmt], module: ast.Module, held: Mapping[str, Any]) -> Untrained:
    """Return the modules and tensors that a training loop trains, and the other values that it fills or counts.

    `dropped` are the statements that the notebook leaves to the job, `module` is the captured module, and `held` has
    the notebook's values.
    """
    nodes = sorted((node for each in dropped for node in ast.walk(each) if isinstance(node, ast.Name)), key=_position)
    order = dict.fromkeys(node.id for node in nodes)
    bound = {node.id for node in nodes if not isinstance(node.ctx, ast.Load)}
    scopes = _scopes(module)
    reached = _reached(order, scopes, held)
    modules = {name for name in reached if _is_trained(held.get(name), "Module")}
    modules |= {name for each in dropped for name in _optimised(each) if name in bound}
    tensors = {name for name in reached if _is_trained(held.get(name), "Tensor")}
    found = modules | tensors | _started(dropped)
    changed = {name for each in dropped for name in (*mutated_roots(each), *_counted(each))}
    changed |= {name for scope in scopes.values() if scope.name in reached for name in _changed_globals(scope)}
    found |= {name for name in changed if _is_filled(held.get(name))}
    names = [name for name in (*order, *sorted(found - order.keys())) if name in found]
    loaded = modules - _aliases(dropped, modules, held)
    loads = [f'job.load("{name}")' for name in names if name in loaded]
    if len(loads) > _LOADED:
        loads[_LOADED:] = ["so on"]
    others = _assigned(dropped) - found
    read = {node.id for node in nodes if isinstance(node.ctx, ast.Load)}
    # What the cell itself reads comes last, where a long list is cut: the rest is for later cells.
    names += sorted((name for name in order if name in others), key=lambda name: name in read)
    return Untrained(names, loads or ([] if tensors else ["job.load()"]))


def _is_filled(value: object) -> bool:
    """Return True for a container or number, and for an array, tensor or table, in which a loop sets items."""
    return isinstance(value, _FILLED) or (hasattr(type(value), "__array__") and not _is_trained(value, "Tensor"))


def _assigned(dropped: Sequence[ast.stmt]) -> set[str]:
    """Return the variables that the job alone sets outside of its loops, such as a Trainer or what `main()` returns."""
    found: set[str] = set()
    queue = list(dropped)
    while queue:
        each = queue.pop()
        if isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            stored = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            found |= {node.id for node in stored if isinstance(node.ctx, ast.Store) and not node.id.startswith("_")}
        elif isinstance(each, ast.If | ast.With | ast.Try):
            queue += [inner for inner in ast.iter_child_nodes(each) if isinstance(inner, ast.stmt)]
    return found


def _position(node: ast.Name) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _scopes(module: ast.Module) -> dict[str, FunctionNode | ast.ClassDef]:
    return {each.name: each for each in module.body if isinstance(each, FunctionNode | ast.ClassDef)}


def _reached(
    names: Iterable[str], scopes: Mapping[str, FunctionNode | ast.ClassDef], held: Mapping[str, Any]
) -> set[str]:
    """Return these names, and all names to which the functions and classes that they denote refer, directly or not.

    `scopes` has the module's functions and classes by name, and `held` the notebook's values. An instance refers to
    what its class refers to.
    """
    found = set(names)
    queue = list(found)
    while queue:
        name = queue.pop()
        scope = scopes.get(name) or scopes.get(type(held.get(name)).__name__)
        new = {scope.name, *_free(scope)} - found if scope is not None else set()
        found |= new
        queue += new
    return found


def _free(scope: FunctionNode | ast.ClassDef) -> set[str]:
    """Return the module-level names to which a function or class refers.

    This is an approximation: nested functions count as part of one scope, so that a local name of one hides a
    module-level name that another uses.
    """
    names = [node for node in ast.walk(scope) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    local = stored | {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)}
    return {node.id for node in names} - (local - _globals(scope))


def _globals(scope: ast.AST) -> set[str]:
    return {name for node in ast.walk(scope) if isinstance(node, ast.Global) for name in node.names}


def _changed_globals(scope: FunctionNode | ast.ClassDef) -> set[str]:
    return _globals(scope) | (set(mutated_roots(scope)) & _free(scope))


def _started(dropped: Sequence[ast.stmt]) -> set[str]:
    """Return the variables that a cell sets to a first value, such as 0, [] or infinity, and then changes.

    `dropped` are the statements of the cell that the notebook leaves to the job.
    """
    found: set[str] = set()
    for each in dropped:
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None and _is_first(each.value):
            others = {name for other in dropped if other is not each for name in changed_by(other)}
            found |= changed_by(each) & others
    return found


def _is_first(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return all(map(_is_first, value.elts))
    if isinstance(value, ast.UnaryOp):
        return _is_first(value.operand)
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in _FIRST
    is_inf = isinstance(value, ast.Attribute) and value.attr == "inf"
    return is_inf or isinstance(value, ast.Constant | ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)


def _counted(statement: ast.stmt) -> Iterator[str]:
    """Yield the variables that a statement changes only by `+=` and the like, such as counters."""
    plain = {
        target.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.For)
        for each in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for target in ast.walk(each)
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(statement):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id not in plain:
            yield node.target.id


def _optimised(statement: ast.stmt) -> Iterator[str]:
    """Yield the variables whose parameters a statement passes on, as `Adam(model.parameters())` does."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr in _PARAMETERS and isinstance(node.value, ast.Name):
            yield node.value.id


def _aliases(dropped: Sequence[ast.stmt], modules: set[str], held: Mapping[str, Any]) -> set[str]:
    """Return the variables of `modules` that refer to the same module as another variable.

    An example is `m` after `m = model.to(device)`. A checkpoint has each module under one name only. `dropped` are the
    statements that the notebook leaves to the job, `modules` has variables of torch modules, and `held` the notebook's
    values.
    """
    first: dict[int, str] = {}
    for name, value in held.items():
        if name in modules:
            first.setdefault(id(value), name)
    found = {name for name in modules if name in held and first[id(held[name])] != name}
    for each in dropped:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):  # m = model.to(device)
            name = each.targets[0].id
            used = {node.id for node in ast.walk(each.value) if isinstance(node, ast.Name)}
            found |= {name} if used & modules - {name} else set()
    return found


def _is_trained(value: object, kind: str) -> bool:
    """Return True if a value is a torch object of this kind that training would change.

    With `kind` "Module" it must be a module with a parameter that requires gradients, with "Tensor" a leaf tensor that
    does.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if kind == "Tensor":
        return isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf
    return isinstance(value, torch.nn.Module) and any(each.requires_grad for each in torch.nn.Module.parameters(value))
