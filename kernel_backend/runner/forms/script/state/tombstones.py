"""Replace objects that a checkpoint could not hold by placeholders: any use raises an error with the object's name."""

from __future__ import annotations

from typing import Any, NoReturn

from kernel_backend.errors import DaylightError


class NotSaved(DaylightError):
    """Error: a restarted program cannot continue as before, for example as it uses an object that was not saved."""


class BeginAnew(BaseException):
    """Exception that ends an attempt which cannot go on from its checkpoint; the next one uses another, or none.

    It is not a subclass of Exception, as a program may catch those. `only_this` means that other checkpoints may serve.
    """

    def __init__(self, reason: str, only_this: bool = False) -> None:
        super().__init__(reason)
        self.only_this = only_this


def unreadable(error: Exception) -> BeginAnew:
    """Return the exception for a checkpoint that cannot be read because of `error`; an older one may serve."""
    return BeginAnew(f"its checkpoint cannot be read, {type(error).__name__}: {error}", only_this=True)


class Tombstone:
    """Placeholder for an object that was not saved; any use of it raises NotSaved."""

    def __init__(self, name: str, kind: str) -> None:
        object.__setattr__(self, "_told", (name, kind))

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Tombstone
        return _raise(self)

    def _use(self, *_: Any, **__: Any) -> NoReturn:
        _raise(self)

    __setattr__ = __delattr__ = __call__ = __iter__ = __next__ = __len__ = __bool__ = _use
    __getitem__ = __setitem__ = __delitem__ = __contains__ = __enter__ = __exit__ = _use
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _use
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = __index__ = _use
    __hash__ = object.__hash__


def told_of(stone: Tombstone) -> tuple[str, str]:
    """Return name and class name of the object that a placeholder replaces."""
    found: tuple[str, str] = object.__getattribute__(stone, "_told")
    return found


def _raise(stone: Tombstone) -> NoReturn:
    name, kind = told_of(stone)
    raise NotSaved(
        f"{name} ({kind}) could not be saved, and the program uses it after a restart: make it before the training "
        "loop, or anew in each epoch"
    )
