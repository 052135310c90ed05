"""Estimate from a program's source how exactly it can resume after a restart, before anything has run.

There are four grades (`Rung`), best first: `step` (a restart costs seconds, same bits), `epoch` (back to the start of
an iteration of the outermost loop, same bits), `start` (from the beginning, same bits) and `anew` (from the beginning,
other bits). A rehearsal of the first checkpoint confirms one of them; until then each sign in the source lowers the
estimate.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.scopes import own_nodes, scopes

Rung = Literal["step", "epoch", "start", "anew"]
RUNGS: tuple[Rung, ...] = ("step", "epoch", "start", "anew")
PROMISES: Mapping[Rung, str] = {
    "step": "exact to the step",
    "epoch": "exact to the epoch",
    "start": "from the start, with the same bits",
    "anew": "from the start, with other bits",
}
# Classes and functions that run concurrently with the loop, with a position that no checkpoint holds.
_RUNS = {
    "threading.Thread": "a thread",
    "threading.Timer": "a timer",
    "concurrent.futures.ThreadPoolExecutor": "a pool of threads",
    "concurrent.futures.ProcessPoolExecutor": "a pool of processes",
    "multiprocessing.Process": "a process",
    "multiprocessing.get_context.Process": "a process",
    "multiprocessing.Pool": "a pool of processes",
    "torch.multiprocessing.Process": "a process",
    "torch.multiprocessing.spawn": "a process",
    "subprocess.Popen": "a process",
    "socket.socket": "a socket",
    "asyncio.run": "an event loop",
}
# Random generators that the operating system seeds if they get no seed.
_SEEDABLE = {"numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.SeedSequence", "random.Random"}
_RESEEDING = {"numpy.random.seed", "random.seed"}
_ENTROPY = {"random.SystemRandom", "torch.seed", "torch.random.seed"}
_CHANGING = {"time", "uuid", "secrets", "os.urandom", "os.getpid", "datetime"}  # another value in each process


@dataclass(frozen=True)
class Sign:
    """Piece of code in a program that limits how exactly the program can resume after a restart.

    `rung` is the best grade that it allows: `step`, `epoch`, `start` or `anew`, as defined above in this module. `what`
    describes the code.
    """

    rung: Rung
    line: int
    what: str
    module: str = ""

    @property
    def text(self) -> str:
        """Return a description of this code, with its line.

        Examples
        --------
        >>> Sign("anew", 3, "rng = default_rng() has no seed").text
        'rng = default_rng() has no seed, line 3'
        """
        return f"{self.what}, line {self.line}" + (f" of {self.module}" if self.module else "")


def signs(
    tree: ast.Module,
    loops: Sequence[TrainingLoop],
    modules: Mapping[str, ast.Module] = MappingProxyType({}),
) -> tuple[Sign, ...]:
    """Return the code in a program that prevents an exact resume after a restart, the worst first.

    Examples
    --------
    >>> from kernel_backend.definition.script.loops import training_loops
    >>> program = ast.parse('''from numpy.random import default_rng
    ... rng = default_rng()
    ... while True: loss(rng.normal()).backward()''')
    >>> [each.text for each in signs(program, training_loops(program))]
    ['rng = default_rng() has no seed, line 2']
    """
    found = [
        Sign("start", each.line, "a training loop in the body of a class or a coroutine is not saved", each.module)
        for each in loops
        if not each.saved
    ]
    for name, one in {"": tree, **modules}.items():
        found += _Reading(name, one, [each for each in loops if each.module == name]).signs()
    return tuple(sorted(found, key=lambda each: (-RUNGS.index(each.rung), each.module, each.line)))


def binding(found: Sequence[Sign], same_bits: bool) -> tuple[Sign, ...]:
    """Return the signs that restarts are to heed: without `same_bits`, other bits in each run are none.

    Examples
    --------
    >>> binding([Sign("anew", 3, "rng = default_rng() has no seed")], same_bits=False)
    ()
    """
    return tuple(each for each in found if same_bits or each.rung != "anew")


def presumed_rung(found: Sequence[Sign]) -> Rung:
    """Return the grade estimated from the source: the worst that `found` allows of those at which a restart goes on.

    A program that has other bits in each run goes on from its checkpoints, too: they hold the state of its generators.

    Examples
    --------
    >>> presumed_rung([]), presumed_rung([Sign("start", 7, "worker = Thread(...) runs next to the loop")])
    ('step', 'start')
    >>> presumed_rung([Sign("anew", 3, "rng = default_rng() has no seed")])
    'step'
    """
    return max((each.rung for each in found if each.rung != "anew"), key=RUNGS.index, default="step")


def presumed(found: Sequence[Sign]) -> str:
    """Return the text of the guarantee estimated from the source, with the reason why it is not stronger.

    Examples
    --------
    >>> presumed([])
    'presumed exact to the step'
    >>> presumed([Sign("epoch", 7, "worker = Thread(...) runs next to the loop")])
    'presumed exact to the epoch: worker = Thread(...) runs next to the loop, line 7'
    >>> presumed([Sign("anew", 3, "rng = default_rng() has no seed")])
    'presumed exact to the step, with other bits in each run: rng = default_rng() has no seed, line 3'
    """
    rung = presumed_rung(found)
    if not found:
        return f"presumed {PROMISES[rung]}"
    if found[0].rung == "anew":
        promise = PROMISES["anew"] if rung == "start" else f"{PROMISES[rung]}, with other bits in each run"
        return f"presumed {promise}: {found[0].text}"
    return f"presumed {PROMISES[rung]}: {found[0].text}"


def by_the_clock(tree: ast.Module, modules: Mapping[str, ast.Module] = MappingProxyType({})) -> frozenset[str]:
    """Return the names and attributes whose values come from the clock, and so differ in each run.

    Examples
    --------
    >>> sorted(by_the_clock(ast.parse("import time; start = time.time(); spent = time.time() - start; n = 1")))
    ['spent', 'start']
    """
    found: set[str] = set()
    for name, one in {"": tree, **modules}.items():
        found |= _Reading(name, one, ()).by_the_clock()
    return frozenset(found)


class _Reading:
    """Search of one module for code that prevents an exact resume after a restart."""

    def __init__(self, name: str, tree: ast.Module, loops: Sequence[TrainingLoop]) -> None:
        self._module, self._tree = name, tree
        self._full = dict(_imports(tree))  # full names of imported objects, by local name
        self._scopes = scopes(tree, {})
        lines = {each.line for each in loops if each.depth == 0}
        outermost = [each for each in ast.walk(tree) if isinstance(each, ast.For | ast.While) and each.lineno in lines]
        self._repeated = {id(each) for loop in outermost for each in own_nodes(loop)}
        self._tests = [each.test for each in outermost if isinstance(each, ast.While)]

    def signs(self) -> Iterator[Sign]:
        for scope in self._scopes:
            changing: set[str] = set()  # names whose values differ in each process
            names: dict[int, str] = {}  # assigned names, by `id()` of the assigned call
            for node in scope.nodes:
                if isinstance(node, ast.Assign):
                    targets = [each.id for each in node.targets if isinstance(each, ast.Name)]
                    names |= {id(node.value): f"{each} = " for each in targets}
                    changing |= {each for each in targets if self._changes(node.value, changing)}
                elif isinstance(node, ast.Call):
                    yield from self._of_call(node, names.get(id(node), ""), changing)
        for test in self._tests:
            if any(self._name(each).startswith("time.") for each in ast.walk(test)):
                yield self._sign("anew", test, f"while {ast.unparse(test)} ends by the clock")

    def by_the_clock(self) -> set[str]:
        changing: set[str] = set()
        assigned = [each for each in ast.walk(self._tree) if isinstance(each, ast.Assign | ast.AugAssign)]
        for _ in range(2):  # twice, as an earlier line may use names of a later one
            for each in assigned:
                if self._changes(each.value, changing):
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    changing |= {one.id for one in targets if isinstance(one, ast.Name)}
                    changing |= {one.attr for one in targets if isinstance(one, ast.Attribute)}
        return changing

    def _of_call(self, call: ast.Call, prefix: str, changing: set[str]) -> Iterator[Sign]:
        name, short = self._name(call.func), ast.unparse(call.func).rpartition(".")[2]
        given = [*call.args, *(each.value for each in call.keywords)]
        unseeded = not given or (isinstance(given[0], ast.Constant) and given[0].value is None)
        if (name in _SEEDABLE | _RESEEDING and unseeded) or name in _ENTROPY:
            yield self._sign("anew", call, f"{prefix}{short}() has no seed")
        elif _seeds(short) and any(self._changes(each, changing) for each in given):
            yield self._sign("anew", call, f"{prefix}{ast.unparse(call)} has another seed each time")
        elif name in _RUNS:
            begins: Rung = "epoch" if id(call) in self._repeated else "start"
            yield self._sign(begins, call, f"{prefix}{short}(...) is {_RUNS[name]} next to the loop")
        elif isinstance(call.func, ast.Name) and call.func.id == "id" and len(call.args) == 1:
            yield self._sign("start", call, f"{ast.unparse(call)} is another number after a restart")

    def _changes(self, node: ast.AST, changing: set[str]) -> bool:
        """Return True if an expression's value differs in each run, as it comes from the clock or from entropy.

        `changing` has the names and attributes that are known to have such values.
        """
        for each in ast.walk(node):
            name = self._name(each)
            if (isinstance(each, ast.Name) and each.id in changing) or (
                isinstance(each, ast.Attribute) and each.attr in changing
            ):
                return True
            if any(name == one or name.startswith(f"{one}.") for one in _CHANGING):
                return True
        return False

    def _name(self, node: ast.AST) -> str:
        """Return the dotted name in an imported module to which an expression refers; "" for other expressions."""
        if isinstance(node, ast.Name):
            return self._full.get(node.id, "")
        if isinstance(node, ast.Call):
            return self._name(node.func)
        if isinstance(node, ast.Attribute):
            base = self._name(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def _sign(self, rung: Rung, node: ast.expr, what: str) -> Sign:
        return Sign(rung, node.lineno, what, self._module)


def _seeds(name: str) -> bool:
    return "seed" in name.lower() or name in ("default_rng", "RandomState", "Random")


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (each.asname, each.name) if each.asname else (each.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"
