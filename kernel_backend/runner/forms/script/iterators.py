"""Replace iterators of Python, DataLoader and tqdm by iterators that can be saved after any item and restored."""

from __future__ import annotations

import builtins
import functools
import operator
import random
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from types import GeneratorType
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.script.open_files import Lines
from kernel_backend.runner.forms.script.state import reading
from kernel_backend.runner.forms.script.state.graph import REDUCERS, GraphWriter
from kernel_backend.runner.forms.script.state.paths import Path, told
from kernel_backend.runner.forms.script.state.tombstones import NotSaved, Tombstone

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

MOST_DRAWS = 5000  # limit of random states in a generator's position
_iter_of_loader: Callable[[Any], Any] = DataLoader.__iter__


class Enumerate:
    """Substitute for `enumerate` that can be saved after any item."""

    def __init__(self, iterable: Iterable[Any], start: int = 0) -> None:
        self.items, self.count = tracked(iterable), start

    def __iter__(self) -> Enumerate:
        return self

    def __next__(self) -> tuple[int, Any]:
        item = next(self.items)
        self.count += 1
        return self.count - 1, item


class Zip:
    """Substitute for `zip` that can be saved after any item."""

    def __init__(self, *iterables: Iterable[Any], strict: bool = False) -> None:
        self.items, self.strict = [tracked(each) for each in iterables], strict

    def __iter__(self) -> Zip:
        return self

    def __next__(self) -> tuple[Any, ...]:
        if not self.items:
            raise StopIteration
        found = []
        for number, each in builtins.enumerate(self.items):
            try:
                found.append(next(each))
            except StopIteration:
                if self.strict:
                    self._check(number)
                raise
        return tuple(found)

    def _check(self, ended: int) -> None:
        """Raise ValueError, as `zip(strict=True)` does, unless all iterators end together.

        `ended` is the index of the first iterator that had no further item.
        """
        if ended:
            raise ValueError(f"zip() argument {ended + 1} is shorter than argument{'s 1-' * (ended > 1) or ' '}{ended}")
        for number, each in builtins.enumerate(self.items[1:], 2):
            try:
                next(each)
            except StopIteration:
                continue
            raise ValueError(
                f"zip() argument {number} is longer than argument{'s 1-' * (number > 2) or ' '}{number - 1}"
            )


class Map:
    """Substitute for `map` that can be saved after any item."""

    def __init__(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> None:
        self.function, self.items = function, [tracked(each) for each in iterables]

    def __iter__(self) -> Map:
        return self

    def __next__(self) -> Any:
        return self.function(*[next(each) for each in self.items])


class LoaderItems:
    """Iterator over a DataLoader that can be saved after any batch, and restored there in another process.

    Its saved state has the number of batches, and the random states when the iterator was created and before the first
    batch. When it is restored, only the sampler is advanced, without reading samples. With worker processes, or for an
    IterableDataset, the samples of earlier batches are read again.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader, self.count = loader, 0
        self.at_iter = _states(loader)
        self.at_next: dict[str, Any] | None = None
        self._batches = _iter_of_loader(loader)

    def __iter__(self) -> LoaderItems:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        if self.at_next is None:
            self.at_next = _states(self.loader)
        batch = next(self._batches)
        self.count += 1
        return batch

    def __getattr__(self, name: str) -> Any:
        if "_batches" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._batches, name)

    def begin_anew(self, state: dict[str, Any]) -> None:
        """Create the DataLoader's own iterator again, and advance it to the position in `state`."""
        self.__dict__.update(state)
        _set_states(self.loader, self.at_iter)
        batches = _iter_of_loader(self.loader)
        if self.at_next is not None:
            _set_states(self.loader, self.at_next)
        alone = isinstance(batches, _SingleProcessDataLoaderIter) and not isinstance(
            self.loader.dataset, torch.utils.data.IterableDataset
        )
        for _ in range(self.count):
            next(batches._sampler_iter if alone else batches)
        if alone:
            batches._num_yielded = self.count
        self._batches = batches


class ForwardItems:
    """Iterator over a generator's items that is restored by running the generator again from its start.

    Random numbers that the generator draws are repeated: its state has the random states at the start, and those that
    other code has set or advanced between two items.
    """

    def __init__(self, source: Any, items: Any) -> None:
        self.source = None if items is source else source  # None: only the program itself can recreate it
        self.count, self.sent = 0, False
        self.at_iter: Any = RandomStates().state_dict()
        self.draws: dict[int, dict[str, Any]] = {}  # random states to set before an item, by its index
        self.items = items
        self._after: dict[str, Any] = {}  # random states after the newest item

    def __iter__(self) -> ForwardItems:
        return self

    def __next__(self) -> Any:
        return self._taken(next, self.items)

    def __getattr__(self, name: str) -> Any:
        if "items" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.items, name)

    def send(self, value: Any) -> Any:
        """Send a value into the generator. If it is not None, a checkpoint can no longer hold the generator."""
        self.sent = self.sent or value is not None
        return self._taken(self.items.send, value)

    def _taken(self, take: Callable[..., Any], *arguments: Any) -> Any:
        before = _random_states()
        try:
            return take(*arguments)
        finally:
            after = _random_states()
            foreign = {
                name: state
                for name, state in before.items()
                if not _same(state, after[name]) and not _same(state, self._after.get(name))
            }
            if foreign:
                self.draws[self.count] = foreign
            self._after = after
            self.count += 1

    def run_forward(self, state: dict[str, Any], source: Any) -> None:
        """Advance a new generator, `source`, to the position in `state`: a number of items, and random states.

        If `source` is None, the generator of the program is advanced instead, which may have yielded some items
        already. Raises NotSaved if it has yielded more than at the checkpoint.
        """
        ahead = self.__dict__.get("count", 0)
        self.__dict__.update(state, source=source, _after={})
        if ahead > self.count:
            raise NotSaved("a generator is further ahead than at the checkpoint, and cannot go back")
        if source is not None:
            RandomStates().load_state_dict(self.at_iter)
            self.items, ahead = iter(source), 0
        for number in range(ahead, self.count):
            if number in self.draws:
                _set_random_states(self.draws[number])
            next(self.items, None)
        self._after = _random_states()


def generator_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a user's generator function so that the generators which it returns can be saved after any item."""

    @functools.wraps(function)
    def made(*args: Any, **named: Any) -> ForwardItems:
        items = function(*args, **named)
        return ForwardItems(items, items)

    return made


class TqdmItems:
    """Iterator of a tqdm progress bar that can be saved after any item."""

    def __init__(self, bar: Any) -> None:
        self.bar, self.items, self.shown = bar, tracked(bar.iterable), False

    def __iter__(self) -> TqdmItems:
        return self

    def __next__(self) -> Any:
        if self.shown:
            self.bar.update()
        try:
            item = next(self.items)
        except BaseException:
            self.bar.close()
            raise
        self.shown = True
        return item


def tracked(items: Any, *sentinel: Any) -> Any:
    """Return `iter(items)` or `iter(items, sentinel)`, which replaces Python's `iter` in the program.

    For generators and text files, return an iterator that can be saved after any item.
    """
    found = iter(items, *sentinel)
    if type(found) is TextIOWrapper:
        return Lines(found)
    return ForwardItems(items, found) if type(found) is GeneratorType else found


def length(items: Any) -> int | None:
    """Return the number of items of an iterator that has yielded none yet; None if it is unknown.

    Examples
    --------
    >>> length(Enumerate([3, 4])), length(iter(range(5))), length(each for each in "ab")
    (2, 5, None)
    """
    if isinstance(items, Enumerate | TqdmItems):
        return length(items.items)
    if isinstance(items, LoaderItems):
        try:
            return len(items)
        except TypeError:  # of a stream
            return None
    # No method of the user's is called.
    known = type(items).__module__ == "builtins" and type(items) is not GeneratorType
    return operator.length_hint(items) or None if known else None


def over(items: Any) -> range | None:
    """Return the range that an iterator runs over, directly or within `enumerate` or tqdm; None for other iterators."""
    found = _innermost(items)
    if type(found) is not _RANGE:
        return None
    numbers: Any = found.__reduce__()[1][0]
    return range(numbers.start, numbers.stop, numbers.step)


def left(items: Any) -> int | None:
    """Return how many numbers of its range an iterator has not yielded yet; None if it is not over a range."""
    found = _innermost(items)
    return operator.length_hint(found) if type(found) is _RANGE else None


def moved(items: Any, numbers: range) -> Any:
    """Return an iterator like `items` (over a range, also within `enumerate` or tqdm), but over `numbers`."""
    if not isinstance(items, Enumerate | TqdmItems):
        return iter(numbers)
    items.items = moved(items.items, numbers)
    return items


def _innermost(items: Any) -> Any:
    while isinstance(items, Enumerate | TqdmItems):
        items = items.items
    return items


_RANGE = type(iter(range(0)))
_SETTERS: dict[str, Callable[[Any], Any]] = {"python": random.setstate, "torch": torch.set_rng_state}
if np is not None:
    _SETTERS["numpy"] = np.random.set_state
BUILTINS: dict[str, Any] = {"enumerate": Enumerate, "zip": Zip, "map": Map, "iter": tracked}


def track_libraries() -> Callable[[], None]:
    """Patch DataLoader and tqdm so that their iterators can be saved; return a function that removes the patches."""
    undo: list[Callable[[], None]] = [_replace(DataLoader, LoaderItems)]
    try:
        from tqdm.std import tqdm  # type: ignore[import-untyped]
    except ImportError:
        pass
    else:
        undo.append(_replace(tqdm, TqdmItems))

    def end() -> None:
        for each in undo:
            each()

    return end


def _loader_items(writer: GraphWriter, items: LoaderItems, path: Path | None) -> Any:
    """Return how to pickle a DataLoader's iterator, as from `__reduce__`: without batches that were read ahead."""
    state = {name: value for name, value in items.__dict__.items() if name != "_batches"}
    writer.at(items.loader, path, "loader")
    return reading.new, (path, LoaderItems), (state, {}), None, None, fill_loader_items


def fill_loader_items(items: LoaderItems, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Have a DataLoader's iterator advanced to its saved position once all other objects have been restored."""
    reading.late(lambda: items.begin_anew(state[0]))


def _forward_items(writer: GraphWriter, items: ForwardItems, path: Path | None) -> Any:
    """Return how to pickle a generator, as from `__reduce__`: by the number of its items and its random states."""
    if items.sent or len(items.draws) > MOST_DRAWS:
        return reading.tombstone, (told(path), "generator")
    writer.at(items.source, path, "source")
    state = {"count": items.count, "at_iter": items.at_iter, "draws": items.draws}
    return reading.forward, (path, ForwardItems, items.source is None), (state, items.source), None, None, fill_forward


def fill_forward(items: Any, state: tuple[dict[str, Any], Any]) -> None:
    """Schedule that a generator is advanced to its saved position after all other objects have been restored.

    The generator's code runs up to that position, and may use any of these objects. `items` is the iterator that wraps
    the generator; does nothing for other iterators. `state` has the arguments of `ForwardItems.run_forward`.
    """
    if type(items) is ForwardItems:
        reading.late(lambda: items.run_forward(*state))


def _tqdm_items(writer: GraphWriter, items: TqdmItems, path: Path | None) -> Any:
    """Return how to pickle a progress bar's iterator, as from `__reduce__`: with the bar's count, not the bar."""
    for name, value in items.__dict__.items():
        writer.at(value, path, name)
    state: tuple[dict[str, Any], dict[str, Any]] = ({**items.__dict__, "bar": None}, {})
    made = writer.live(items.bar, (path, "attribute", "bar") if path else None)
    return reading.new, (path, TqdmItems), (state, made[1], items.bar.n), None, None, fill_tqdm_items


def fill_tqdm_items(items: TqdmItems, state: Any) -> None:
    """Restore a progress bar's iterator and the bar's count."""
    held, (path, kind), count = state
    held[0]["bar"] = bar = reading.live(path, kind)
    reading.fill(items, held)
    if type(bar) is not Tombstone:
        reading.late(lambda: bar.__dict__.update(n=count, last_print_n=count))


REDUCERS[ForwardItems] = _forward_items
REDUCERS[LoaderItems] = _loader_items
REDUCERS[TqdmItems] = _tqdm_items


def _random_states() -> dict[str, Any]:
    """Return the states of the global random generators of Python, torch and numpy, in each library's own form."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if np is not None:
        states["numpy"] = np.random.get_state()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    for name, state in states.items():
        _SETTERS[name](state)


def _same(one: Any, other: Any) -> bool:
    """Return True if two states of a random generator are equal."""
    if other is None:
        return False
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if np is not None and isinstance(one[1], np.ndarray):
        return one[2:] == other[2:] and np.array_equal(one[1], other[1])
    return bool(one == other)


def _replace(kind: Any, items: Callable[[Any], Any]) -> Callable[[], None]:
    before = kind.__iter__
    kind.__iter__ = lambda self: items(self)
    return lambda: setattr(kind, "__iter__", before)


def _generators(loader: Any) -> list[torch.Generator]:
    holders = (loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))
    held = [getattr(each, "generator", None) for each in holders]
    return list({id(each): each for each in held if isinstance(each, torch.Generator)}.values())


def _states(loader: Any) -> dict[str, Any]:
    return {"main": RandomStates().state_dict(), "own": [each.get_state() for each in _generators(loader)]}


def _set_states(loader: Any, states: dict[str, Any]) -> None:
    RandomStates().load_state_dict(states["main"])
    for generator, state in zip(_generators(loader), states["own"], strict=True):
        generator.set_state(state)
