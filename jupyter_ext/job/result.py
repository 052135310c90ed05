"""Read the values that a job of `%%dlrun` has returned."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

from kernel_backend.errors import NotFound
from kernel_backend.model.snapshot import MODULE, OTHER_MODULE


def result(data: bytes, name: str | None = None) -> Any:
    """Return the value of the cell's last expression, or of variable `name`; raises NotFound if it was not returned.

    `data` is the content of the artifact with the returned values.
    """
    kept = pickle.loads(data)
    if name is not None and name not in kept["names"]:
        there = ", ".join(kept["names"]) or "none"
        raise NotFound(f"{name} was not brought back; there are: {there}. Write --back {name} on the line of %%dlrun")
    pickled, text = kept["value"] if name is None else kept["names"][name]
    if pickled is None:
        raise NotFound(f"{name or 'the last value'} cannot be brought back, see the notes of the job; its text: {text}")
    return _OfNotebook(io.BytesIO(pickled)).load()


class _OfNotebook(pickle.Unpickler):
    """Unpickler that loads instances of the submitted cell's classes with the notebook's classes of the same names."""

    def find_class(self, module: str, name: str) -> Any:
        if module not in (MODULE, OTHER_MODULE):
            return super().find_class(module, name)
        found = getattr(sys.modules["__main__"], name.partition(".")[0], None)
        if found is None:
            raise NotFound(f"the value is of {name}, which the notebook lacks: define it in a cell of its own")
        return super().find_class("__main__", name)
