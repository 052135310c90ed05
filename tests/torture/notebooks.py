"""Random notebooks in a real IPython: a job sees the values that the kernel saw.

python -m tests.torture.notebooks --count 10000
"""

# ruff: noqa: E501 - a form reads best on one line
from __future__ import annotations

import argparse
import itertools
import random
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_ext.capture import Capture, capture_cell
from tests.notebooks.kernel import execute, load, shell

NAMES = tuple("abcdefgh")
VALUES = ("int", "list", "nested", "dict", "array", "object", "object_or_list", "other", "iterator", "maybe")


@dataclass(frozen=True)
class Result:
    """Result of one random notebook: its cells, and whether the job computed the same values."""

    seed: int
    cells: tuple[str, ...]
    target: str
    capture: Capture
    differing: tuple[str, ...]

    @property
    def flagged(self) -> bool:
        """Return True if the comparison of captured values reports the difference."""
        return bool(set(self.differing) & set(self.capture.compared))

    def __str__(self) -> str:
        cells = "\n# ---\n".join([*self.cells, self.target])
        return f"seed {self.seed}: {', '.join(self.differing)} differ\n{cells}\n# === the job\n{self.capture.source}"


class Writer:
    """Random writer of cells; it records the type of each name's value, so that most cells run."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.kinds: dict[str, str] = {}
        self.count = 0

    def notebook(self) -> tuple[list[str], tuple[str, ...]]:
        """Return the cells, and the names that the submitted cell uses."""
        cells = [self.cell() for _ in range(self.draw.randint(6, 22))]
        for _ in range(self.draw.choice((0, 0, 1, 2))):  # a person goes back, and perhaps edits first
            cell = self.draw.choice(cells)
            if self.draw.random() < 0.3 and "while" not in cell:
                cell = cell.replace("1", "4")
            cells.insert(self.draw.randint(len(cells) // 2, len(cells)), cell)
        wanted = sorted(name for name, kind in self.kinds.items() if kind in VALUES)
        return cells, tuple(self.draw.sample(wanted, min(len(wanted), self.draw.choice((1, 1, 2, 3)))))

    def cell(self) -> str:
        lines = [self.statement() for _ in range(self.draw.choice((1, 1, 1, 2, 3)))]
        if self.draw.random() < 0.05:
            lines.insert(self.draw.randint(0, len(lines)), "undefined_name.boom()")
        if self.draw.random() < 0.06:
            lines.append(self.draw.choice([f"print({self.any()})", f"{self.any()}", f"len(str({self.any()}))"]))
        if self.draw.random() < 0.03:
            lines.insert(0, "%%time")
        return "\n".join(lines)

    def of(self, *kinds: str) -> str | None:
        found = [name for name, kind in self.kinds.items() if kind in kinds]
        return self.draw.choice(found) if found else None

    def any(self) -> str:
        return self.of("int", "list", "nested", "dict", "array", "object") or "1"

    def fresh(self) -> str:
        return self.draw.choice(NAMES)

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def number(self) -> str:
        choices = [str(self.draw.randint(0, 9))]
        if name := self.of("int"):
            choices += [name, f"{name} + {self.draw.randint(1, 5)}"]
        if name := self.of("list"):
            choices += [f"len({name})", f"sum({name})"]
        return self.draw.choice(choices)

    def make(self, kind: str, text: str) -> str:
        name = self.fresh()
        self.kinds[name] = kind
        return f"{name} = {text}"

    def statement(self) -> str:
        for _ in range(40):
            form = self.draw.choice(FORMS)
            if text := form(self):
                return text
        return self.make("int", self.number())

    def simple(self) -> str:
        """Return a random statement without a block."""
        for _ in range(40):
            text = self.draw.choice(CHANGES)(self)
            if text and "\n" not in text:
                return text
        return "pass"


Form = Callable[[Writer], "str | None"]
FORMS: list[Form] = []
CHANGES: list[Form] = []


def form(weight: int = 1, *, change: bool = False) -> Callable[[Form], Form]:
    def register(function: Form) -> Form:
        FORMS.extend([function] * weight)
        if change:
            CHANGES.append(function)
        return function

    return register


@form(3)
def a_number(w: Writer) -> str:
    return w.make("int", w.number())


@form(3)
def a_list(w: Writer) -> str:
    other = w.of("list")
    texts = [f"[{w.number()}]", f"[{w.number()}, {w.number()}]", "list(range(3))", "[i * 2 for i in range(3)]"]
    texts += [f"list({other})", f"{other} + [{w.number()}]", f"sorted({other})", f"{other}[:2]"] if other else []
    texts += [f"[x + {w.number()} for x in {other}]", f"[x for x in {other} if x > 2]"] if other else []
    return w.make("list", w.draw.choice(texts))


@form(2)
def a_nested(w: Writer) -> str | None:
    one, two = w.of("list"), w.of("list")
    if not one:
        return None
    texts = [f"[{one}, {two}]", f"[{one}]", f"[[1], {one}]", "[[1]] * 2", f"[x for x in ({one}, {two})]"]
    if nest := w.of("nested"):
        texts += [f"list({nest})", f"{nest} + [{one}]", f"{nest}.copy()", f"[x for x in {nest}]"]
    return w.make("nested", w.draw.choice(texts))


@form(2)
def a_dict(w: Writer) -> str | None:
    one, nest = w.of("list") or "[0]", w.of("dict")
    texts = [f"{{'k': {one}, 'n': {w.number()}}}", f"dict(k={one}, n=1)", f"{{key: {one} for key in ('k', 'n')}}"]
    texts += [f"{{**{nest}, 'k': {one}}}", f"dict({nest})", f"{nest}.copy()"] if nest else []
    text = w.draw.choice(texts)
    return w.make("dict", text)


@form(2)
def an_array(w: Writer) -> str:
    other = w.of("array")
    texts = ["np.arange(4)", f"np.ones(4, int) * {w.draw.randint(1, 5)}", "np.zeros((4,), int)"]
    texts += (
        [f"{other} * 2", f"{other}.copy()", f"{other}[:]", f"{other}.reshape(-1)", f"{other}.view()"] if other else []
    )
    return f"import numpy as np\n{w.make('array', w.draw.choice(texts))}"


@form(4)
def an_alias(w: Writer) -> str | None:
    kind = w.draw.choice(("list", "dict", "nested", "array", "object", "function"))
    other = w.of(kind)
    return w.make(kind, other) if other else None


@form(2)
def an_alias_of_a_part(w: Writer) -> str | None:
    if name := w.of("nested"):
        return w.make(
            "list", w.draw.choice([f"{name}[0]", f"{name}[-1]", f"next(iter({name}))", f"max({name}, key=len)"])
        )
    return None


@form(2)
def an_alias_of_a_value(w: Writer) -> str | None:
    if name := w.of("dict"):
        texts = [f"{name}['k']", f"{name}.get('k')", f"list({name}.values())[0]", f"{name}.setdefault('k', [])"]
        return w.make("object_or_list", w.draw.choice(texts))
    return None


@form(2)
def an_attribute(w: Writer) -> str | None:
    name = w.of("object")
    return w.make("list", f"{name}.{w.draw.choice(('items', 'items'))}") if name else None


@form(5, change=True)
def change_a_list(w: Writer) -> str | None:
    name = w.of("list", "object_or_list")
    if not name:
        return None
    n = w.number()
    texts = [
        f"{name}.append({n})",
        f"{name} += [{n}]",
        f"{name}.extend([{n}, 1])",
        f"{name}[0:1] = [{n}]",
        f"{name}.insert(0, {n})",
    ]
    texts += [
        f"list.append({name}, {n})",
        f"{name}.sort()",
        f"{name}.reverse()",
        f"_ = {name}.append({n})",
        f"{name}[:0] = [{n}]",
    ]
    texts += [
        f"[{name}.append(i) for i in range(2)]",
        f"any({name}.append(i) for i in range(2))",
        f"list(map({name}.append, [1, 2]))",
    ]
    texts += [
        f"add = {name}.append\nadd({n})",
        f"{name}.__setitem__(slice(0, 0), [{n}])",
        f"operator.iadd({name}, [{n}])",
    ]
    text = w.draw.choice(texts)
    return f"import operator\n{text}" if "operator" in text else text


@form(3, change=True)
def change_a_nested(w: Writer) -> str | None:
    name, other = w.of("nested"), w.of("list")
    if not name:
        return None
    n = w.number()
    texts = [
        f"{name}[0].append({n})",
        f"{name}[-1] += [{n}]",
        f"{name}.append([{n}])",
        f"for x in {name}:\n    x.append({n})",
    ]
    texts += [f"for i, x in enumerate({name}):\n    x.insert(0, i)", f"{name}[0], {name}[-1] = {name}[-1], {name}[0]"]
    texts += (
        [f"{name}.append({other})", f"{name}[0] = {other}", f"first, *rest = {name}\nfirst.append({n})"]
        if other
        else []
    )
    return w.draw.choice(texts)


@form(3, change=True)
def change_a_dict(w: Writer) -> str | None:
    name, other = w.of("dict"), w.of("list")
    if not name:
        return None
    n = w.number()
    texts = [
        f"{name}['n'] = {n}",
        f"{name}.update(n={n})",
        f"{name}['z{n[0]}'] = [{n}]",
        f"{name}.setdefault('m', {n})",
        f"{name}.pop('n', None)",
    ]
    texts += [
        f"for value in {name}.values():\n    if isinstance(value, list): value.append({n})",
        f"{name} |= {{'o': {n}}}",
    ]
    texts += (
        [f"{name}['k'] = {other}", f"{name}.update({{'k': {other}}})", f"dict.update({name}, n={n})"] if other else []
    )
    return w.draw.choice(texts)


@form(2, change=True)
def change_an_array(w: Writer) -> str | None:
    name = w.of("array")
    if not name:
        return None
    n = w.draw.randint(1, 5)
    texts = [
        f"{name} += {n}",
        f"{name}[0] = {n}",
        f"{name}[...] = {name} * 2",
        f"np.add({name}, {n}, out={name})",
        f"{name}.sort()",
    ]
    texts += [
        f"{name}[{name} > 2] = 0",
        f"{name}.fill({n})",
        f"np.copyto({name}, {n})",
        f"{name}[1:3] *= {n}",
        f"np.random.seed({n}); np.random.shuffle({name})",
    ]
    return f"import numpy as np\n{w.draw.choice(texts)}"


@form(2, change=True)
def change_an_object(w: Writer) -> str | None:
    name, other = w.of("object"), w.of("list")
    if not name:
        return None
    n = w.number()
    texts = [
        f"{name}.n = {n}",
        f"{name}.n += {n}",
        f"{name}.add({n})",
        f"{name}.items.append({n})",
        f"setattr({name}, 'n', {n})",
        f"vars({name})['n'] = {n}",
    ]
    texts += [f"{name}.items = {other}", f"{name}.__dict__.update(n={n})"] if other else []
    return w.draw.choice(texts)


@form(2)
def a_class(w: Writer) -> str:
    held, used = w.of("list") or "[]", w.of("int") or "1"
    name = w.draw.choice(("K", "L"))
    shared = w.draw.choice([f"    items = {held}\n    n = 0", "    n = 0"])
    start = w.draw.choice(["        self.items = items", f"        self.items = list(items)\n        self.n = {used}"])
    add = w.draw.choice(
        [
            "        self.items.append(x)",
            f"        self.items.append(x + {used})\n        return self",
            "        type(self).n += x\n        self.items.append(x)",
        ]
    )
    base = "(K)" if name == "L" and w.kinds.get("K") == "class" else ""
    w.kinds[name] = "class"
    return f"class {name}{base}:\n{shared}\n    def __init__(self, items=()):\n        items = [] if items == () else items\n{start}\n    def add(self, x):\n{add}"


@form(2)
def an_object(w: Writer) -> str | None:
    cls, held = w.of("class"), w.of("list")
    return w.make("object", f"{cls}({w.draw.choice([held or '[1]', '[1]', 'items=[2]'])})") if cls else None


@form(1)
def patch_a_class(w: Writer) -> str | None:
    cls = w.of("class")
    n = w.number()
    return (
        w.draw.choice([f"{cls}.n = {n}", f"{cls}.add = lambda self, x: self.items.append(-x - {n})"]) if cls else None
    )


@form(3)
def a_function(w: Writer) -> str:
    name = w.draw.choice(("f1", "f2", "f3"))
    one, two, n = w.of("list") or "[1]", w.of("list") or "[2]", w.of("int") or "2"
    body = w.draw.choice(
        [
            f"    {one}.append(v)\n    return {two}",
            f"    return [v, {n}]",
            f"    return {one}",
            f"    {two}.extend([v, {n}])",
            "    into.append(v)\n    return into",
            f"    x = {one}\n    x.append(v)\n    return [v]",
            "    global g_count\n    g_count = globals().get('g_count', 0) + v\n    return [g_count]",
            f"    def inner():\n        {one}.append(v)\n    inner()\n    return [v]",
            "    for i in range(2):\n        into = into + [i]\n    return into",
            "    y = helper(v) if 'helper' in globals() else [v]\n    return y",
        ]
    )
    default = w.draw.choice(["()", "()", one])
    w.kinds[name] = "function"
    if "g_count" in body:
        w.kinds.setdefault("g_count", "maybe")
    guard = "    into = [] if into == () else into\n"
    return f"def {name}(v=0, into={default}):\n{guard}{body}"


@form(1)
def a_helper(w: Writer) -> str:
    one = w.of("list") or "[1]"
    return w.draw.choice(
        [
            f"def helper(v):\n    return [v, {w.number()}]",
            f"def helper(v):\n    {one}.append(v)\n    return {one}",
            f"helper = lambda v: {one} + [v]",
        ]
    )


@form(4, change=True)
def a_call(w: Writer) -> str | None:
    name, held = w.of("function"), w.of("list") or "[3]"
    if not name:
        return None
    n = w.draw.randint(0, 9)
    return w.draw.choice(
        [
            f"{name}({n})",
            f"{name}({n}, {held})",
            f"{name}(v={n}, into={held})",
            f"{name}(*[{n}, {held}])",
            f"{name}(**{{'v': {n}, 'into': {held}}})",
        ]
    )


@form(3)
def a_result(w: Writer) -> str | None:
    name, held = w.of("function"), w.of("list") or "[3]"
    return w.make("object_or_list", f"{name}({w.draw.randint(0, 9)}, {held}) or [0]") if name else None


@form(1)
def a_closure(w: Writer) -> str:
    held = w.of("list") or "[5]"
    made = w.new("put")
    text = w.draw.choice(
        [
            f"def maker(xs):\n    def put(v=1):\n        xs.append(v)\n        return xs\n    return put\n{made} = maker({held})",
            f"{made} = lambda v=1: {held}.append(v)",
            f"def counter():\n    n = 0\n    def up(v=1, into=None):\n        nonlocal n\n        n += v\n        return [n]\n    return up\n{made} = counter()",
            f"from functools import partial\n{made} = partial(lambda xs, v=1: xs.append(v), {held})",
        ]
    )
    w.kinds[made] = "callable"
    return text


@form(2, change=True)
def call_a_closure(w: Writer) -> str | None:
    name = w.of("callable")
    return w.draw.choice([f"{name}()", f"{name}({w.draw.randint(1, 9)})", f"_ = {name}(2)"]) if name else None


@form(1)
def a_decorated(w: Writer) -> str:
    log = w.of("list") or "[0]"
    name = w.draw.choice(("f1", "f2"))
    w.kinds[name] = "function"
    return f"def noted(f):\n    {log}.append(7)\n    def inner(*args, **more):\n        {log}.append(8)\n        return f(*args, **more)\n    return inner\n\n@noted\ndef {name}(v=0, into=None):\n    return [v]"


@form(1)
def a_registry(w: Writer) -> str:
    w.kinds["REG"] = "registry"
    n = w.draw.randint(0, 9)
    return f"if 'REG' not in globals():\n    REG = {{}}\ndef register(f):\n    REG[f.__name__] = f(1)\n    return f\n@register\ndef r{n}(v):\n    return v + {w.of('int') or '1'}"


@form(2)
def a_branch(w: Writer) -> str:
    test = w.draw.choice([f"{w.number()} > 2", "False", f"len({w.of('list') or '[]'}) > 2"])
    first, second = w.simple(), w.simple()
    return f"if {test}:\n    {first}\nelse:\n    {second}"


@form(2)
def a_loop(w: Writer) -> str:
    head = w.draw.choice(
        ["for i in range(2):", f"for i in {w.of('list') or '[1]'}[:2]:", "n_left = 2\nwhile n_left:\n    n_left -= 1"]
    )
    return f"{head}\n    {w.simple()}"


@form(1)
def a_loop_over_names(w: Writer) -> str | None:
    one, two = w.of("list"), w.of("list")
    return f"for xs in ({one}, {two}):\n    xs.append({w.number()})" if one else None


@form(1)
def a_try(w: Writer) -> str:
    bad = w.draw.choice(["1 / 0", "int('x')", w.simple()])
    return f"try:\n    {w.simple()}\n    {bad}\nexcept (ZeroDivisionError, ValueError, TypeError, AttributeError):\n    {w.simple()}\nfinally:\n    {w.simple()}"


@form(1)
def a_with(w: Writer) -> str:
    held = w.of("list") or "[]"
    return f"import contextlib\n@contextlib.contextmanager\ndef noted_in(xs):\n    xs.append(1)\n    yield xs\n    xs.append(2)\nwith noted_in({held}) as ys:\n    ys.append(3)"


@form(1)
def a_deletion(w: Writer) -> str | None:
    name = w.of("int", "list", "dict", "array")
    if not name:
        return None
    w.kinds[name] = "gone"
    return f"del {name}"


@form(1)
def a_deleted_item(w: Writer) -> str | None:
    name = w.of("list", "dict")
    return (f"{name}.pop('n', None)" if w.kinds[name] == "dict" else f"del {name}[:1]") if name else None


@form(2)
def a_swap(w: Writer) -> str | None:
    kind = w.draw.choice(("list", "dict", "array"))
    one, two = w.of(kind), w.of(kind)
    return f"{one}, {two} = {two}, {one}" if one and one != two else None


@form(1)
def a_chain(w: Writer) -> str:
    one, two = w.fresh(), w.fresh()
    w.kinds[one] = w.kinds[two] = "list"
    return f"{one} = {two} = [{w.number()}]"


@form(1)
def a_walrus(w: Writer) -> str:
    name = w.fresh()
    w.kinds[name] = "list"
    return f"if len({name} := [{w.number()}]) > 0:\n    {name}.append(1)"


@form(1)
def a_match(w: Writer) -> str | None:
    name, got = w.of("dict"), w.fresh()
    if not name or name == got:
        return None
    w.kinds[got] = "object_or_list"
    return f"{got} = [0]\nmatch {name}:\n    case {{'k': list() as {got}}}:\n        {got}.append(6)"


@form(1)
def an_iterator(w: Writer) -> str:
    held = w.of("list") or "[1, 2, 3]"
    name = w.new("it")
    w.kinds[name] = "iterator"
    return w.draw.choice(
        [
            f"{name} = iter(list({held}) + [1, 2, 3])",
            f"{name} = (x + 1 for x in list({held}) + [4, 5])",
            f"{name} = map(lambda x: x * 2, list({held}) + [4, 5])",
            f"{name} = enumerate(list({held}))",
        ]
    )


@form(1)
def take_from_an_iterator(w: Writer) -> str | None:
    name = w.of("iterator")
    got = w.fresh()
    if not name:
        return None
    w.kinds[got] = "other"
    return w.draw.choice(
        [
            f"{got} = next({name}, 0)",
            f"{got} = [x for x in {name}]",
            f"for {got} in {name}:\n    break",
            f"{got} = 2 in {name}",
        ]
    )


@form(1)
def a_draw(w: Writer) -> str:
    seed = "random.seed(3)\n" if not w.kinds.get("random") or w.draw.random() < 0.3 else ""
    w.kinds["random"] = "module"
    return f"import random\n{seed}{w.make('int', w.draw.choice(['random.randint(0, 99)', 'random.choice([1, 2, 3])']))}"


@form(1)
def through_globals(w: Writer) -> str:
    name = w.fresh()
    w.kinds[name] = "list"
    return w.draw.choice(
        [f"globals()['{name}'] = [{w.number()}]", f"exec('{name} = [4]')", f"globals().update({name}=[5])"]
    )


def describe(value: object, seen: tuple[int, ...] = ()) -> object:
    """Return a description of a value that is equal for equal contents, whatever the object's identity."""
    if id(value) in seen:
        return "again"
    seen = (*seen, id(value))
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(describe(each, seen) for each in value)]
    if isinstance(value, dict):
        return {repr(key): describe(each, seen) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, int | float | str | bytes | bool | None):
        return value
    if hasattr(value, "__next__"):
        return list(_taken(value, seen))  # type: ignore[arg-type]
    own = getattr(type(value), "__module__", "") in ("__main__", "definition") and not callable(value)
    return [type(value).__name__, describe(vars(value), seen) if own else ""]


def _taken(iterator: Iterator[object], seen: tuple[int, ...]) -> Iterator[object]:
    """Return a description of an iterator's first values, or of the error that it raises."""
    try:
        for each in itertools.islice(iterator, 20):
            yield describe(each, seen)
    except Exception as error:
        yield type(error).__name__


def differing(cells: Sequence[str], wanted: Sequence[str]) -> tuple[Capture, tuple[str, ...]]:
    """Return the names whose values differ between job and kernel."""
    target = f"def result(): return {', '.join(wanted)},"
    random.seed(0)
    np.random.seed(0)
    kernel = shell()
    recorder = execute(kernel, cells)
    there = [name for name in wanted if name in kernel.user_ns]
    if not there:
        return capture_cell([], "pass"), ()
    target = f"def result(): return {', '.join(there)},"
    capture = capture_cell(recorder.cells, target)
    seen = [describe(kernel.user_ns[name]) for name in there]
    random.seed(0)
    np.random.seed(0)
    try:
        module = load(capture.source)
        found = [describe(value) for value in module["result"]()]  # type: ignore[operator]
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"] * len(there)
    return capture, tuple(name for name, one, two in zip(there, seen, found, strict=True) if one != two)


def shrunk(cells: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the smallest notebook, of fewer cells and lines, that still shows the difference."""
    kept = list(cells)
    for index in reversed(range(len(cells))):
        fewer = kept[:index] + kept[index + 1 :]
        if differing(fewer, wanted)[1]:
            kept = fewer
    return kept


def run(count: int, seed: int) -> Iterator[Result]:
    """Run this many random notebooks; return those with wrong values, each reduced to a minimum."""
    for each in range(seed, seed + count):
        cells, wanted = Writer(each).notebook()
        capture, wrong = differing(cells, wanted)
        if wrong:
            cells = shrunk(cells, wanted)
            capture, wrong = differing(cells, wanted)
            yield Result(each, tuple(cells), f"# uses {', '.join(wanted)}", capture, wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    asked = parser.parse_args()
    wrong = []
    for each in run(asked.count, asked.seed):
        wrong.append(each)
        print(textwrap.indent(str(each), "  "), end="\n\n", flush=True)
    flagged = sum(each.flagged for each in wrong)
    print(f"{asked.count:,} random notebooks from seed {asked.seed}: {len(wrong)} wrong, {flagged} of them flagged")
    sys.exit(len(wrong) > 2)
