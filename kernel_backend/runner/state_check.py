"""Whether the definition makes the values that the notebook had: looked at on rank 0, before the first step.

Where one differs, the definition is imported once more, in another process, with other seeds, threads and hashes. What
differs between the two is made by chance, which the person is told; the rest is what the cells do not make.

    python -m kernel_backend.runner.state_check CODE CWD SEED ANSWER
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.snapshot import DEFINITION, Snapshot
from kernel_backend.runner.load import Loaded, load
from kernel_backend.snapshots.state import digest_of, shown

AGAIN_S = 600.0  # for the second import
_NOTHING = "nothing"


def check_state(loaded: Loaded, code: Path, cwd: Path, seed: int, note: Callable[[str], None]) -> None:
    """Compare the module with the notebook's values; says a note about those that chance makes.

    Raises InvalidDefinition with all the others.
    """
    snapshot = loaded.snapshot
    if snapshot is None or not snapshot.state:
        return
    here = digests(vars(loaded.module), snapshot.state)
    differing = [name for name, was in snapshot.state.items() if here.get(name) != was.digest]
    if not differing:
        return
    again = _imported_again(code, cwd, seed)
    made_in = cells_of((code / DEFINITION).read_text(), snapshot)
    by_chance = [name for name in differing if name in again and again[name] != here.get(name)]
    if by_chance:
        note(_by_chance([f"{name}{made_in.get(name, '')}" for name in by_chance]))
    lines = []
    for name in differing:
        if name not in by_chance:
            job = shown(vars(loaded.module)[name], here[name] or "") if here.get(name) else _NOTHING
            lines.append(f"{name} differs: notebook {snapshot.state[name].shown}, job {job}{made_in.get(name, '')}")
    if lines:
        raise InvalidDefinition("\n".join([*lines, _way_out(lines, differing, by_chance)]))


def digests(namespace: Mapping[str, object], names: Iterable[str]) -> dict[str, str | None]:
    """The digests of these names' values, of those that there are."""
    return {name: digest_of(namespace[name]) for name in names if name in namespace}


def cells_of(source: str, snapshot: Snapshot) -> dict[str, str]:
    """` (cell [3])` for each name that the definition binds at its top level: where it does so last."""
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        origin = snapshot.locate(node.lineno)
        place = "" if origin is None else f" (cell [{origin.cell}])" if origin.cell is not None else f" ({origin.file})"
        found |= {each.id: place for each in ast.walk(node) if isinstance(each, ast.Name) and _binds(each)}
    return found


def _binds(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _by_chance(names: list[str]) -> str:
    verb = "differs" if len(names) == 1 else "differ"
    return (
        f"{', '.join(names)} {verb} from the notebook's, and from one run to the next: made by chance. "
        "Seed what it is drawn from, or add --capture to take the notebook's"
    )


def _way_out(lines: list[str], differing: list[str], by_chance: list[str]) -> str:
    names = ",".join(name for name in differing if name not in by_chance)
    what = "this value is" if len(lines) == 1 else "these values are"
    return (
        f"{what} not what the submitted cells make: run those cells again, or add --capture {names} to take the "
        "notebook's, or --no-state-check to go on with the job's"
    )


def _imported_again(code: Path, cwd: Path, seed: int) -> dict[str, str | None]:
    """The digests after a second import; empty where it failed."""
    with tempfile.TemporaryDirectory(prefix="daylight-") as folder:
        answer = Path(folder) / "digests.json"
        command = [
            sys.executable,
            "-m",
            "kernel_backend.runner.state_check",
            str(code),
            str(cwd),
            str(seed),
            str(answer),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": "1"}
        try:
            subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=AGAIN_S, check=True)
            found: dict[str, str | None] = json.loads(answer.read_text())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"the definition could not be imported a second time: {error}", file=sys.stderr)
            return {}
    return found


def main(code: Path, cwd: Path, seed: int, answer: Path) -> None:
    """Import the definition as no rank does, and write the digests of the values that the notebook told of."""
    import torch

    from kernel_backend.orphans import die_with
    from kernel_backend.runner import seeds

    die_with(os.getppid())
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    seeds.reseed(seeds.mix(seed, "init", "another"))
    loaded = load(code, cwd)
    names = loaded.snapshot.state if loaded.snapshot else {}
    answer.write_text(json.dumps(digests(vars(loaded.module), names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
