"""Build two experiments that are compared; a test names only the fields in which they differ."""

from __future__ import annotations

from typing import Any

from kernel_backend.differences.side import Side
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.model.states import ExperimentState
from kernel_backend.spec.assignments import parse_line

SOURCE = "# cell [1]\nscale = 2\n\n# cell [2]\ndef model(width=8):\n    return width * scale\n"
PIECES = (Piece(cell=1, line=2, count=1, cell_line=1), Piece(cell=2, line=5, count=2, cell_line=2))
PACKAGES = {"torch": "2.12.0", "numpy": "2.1.0", "six": "1.16.0"}
PARAMS = {"lr": 0.1, "width": 8}


def side(
    source: str = SOURCE,
    *,
    files: dict[str, bytes] | None = None,
    params: dict[str, Any] | None = None,
    space: str = "",
    config: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    snapshot: dict[str, Any] | None = None,
    number: int = 41,
    cwd: str = "/home/dave/net",
    **known: Any,
) -> Side:
    recorded: dict[str, Any] = {
        "python": "3.11.7",
        "implementation": "CPython",
        "platform": "Linux",
        "cpu": "Xeon",
        "cores": 2,
    }
    described: dict[str, Any] = {"version": "0.1.0", "numerics": 3, "pieces": PIECES, "roles_from": 5}
    about = Environment(**{**recorded, "distributions": PACKAGES, **(environment or {})})
    experiment = Experiment(
        number=number,
        name="digits",
        state=ExperimentState.COMPLETED,
        owner="dave",
        group="dave",
        snapshot="0" * 64,
        config=Config(**{"threads": 1, **(config or {})}),
        params=params or PARAMS,
        space=parse_line(space.split()).space,
        python="python",
        cwd=cwd,
        notebook=None,
        created_at=0.0,
    )
    kept = Snapshot(**{**described, "environment": about, **(snapshot or {})})
    return Side(experiment, kept, {"definition.py": source.encode(), **(files or {})}, **known)
