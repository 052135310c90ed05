"""Compare the definition's top-level values with those recorded in the notebook, on rank 0 before the first step.

If a value differs, a second process imports the definition again, with other seeds, another number of threads and
another hash seed, and without the environment variables that make a process a rank. If the second process gets the
notebook's value, the value depends on running as a rank. If the two imports disagree, the value is random. The user
gets a note about values that depend on the rank, and about modules with random initial weights. All other differences
stop the training.

    python -m kernel_backend.runner.definition.state_check CODE CWD SEED ANSWER
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.launch_spec import OF_RANKS
from kernel_backend.model.snapshot import DEFINITION, Snapshot, State
from kernel_backend.runner.definition.load import Loaded, load
from kernel_backend.runner.definition.process_check import WAY_OUT, Difference
from kernel_backend.snapshots.state import digest_of, is_module, shown

AGAIN_S = 600.0  # limit for the import in another process
_NOTHING = "nothing"
_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def check_state(
    loaded: Loaded,
    code: Path,
    cwd: Path,
    seed: int,
    note: Callable[[str], None],
    alive: Callable[[], None],
    changes: Callable[[], Iterable[str]] = tuple,
    strict: bool = True,
    process: Sequence[Difference] = (),
) -> None:
    """Compare the definition's top-level values with the notebook's; raise InvalidDefinition if they differ.

    Modules with random initial weights, and values that depend on running as a rank, are only reported to the user by
    `note`. To tell these apart, a second process imports the definition in `code` with working folder `cwd`; `alive` is
    called every second meanwhile. `changes` returns sentences about possible causes. `process` has settings of this
    process that differ from the notebook's. If not `strict`, all differences are only noted: a rerun with other
    libraries or other data is meant to show their effect.
    """
    set_otherwise = [each.text for each in process if each.refuses and strict]
    for each in process:
        if each.text not in set_otherwise:
            note(each.text)
    refused = [*set_otherwise, *([WAY_OUT] if set_otherwise else ())]
    refused += _values_that_differ(loaded, code, cwd, seed, note, alive, changes, strict)
    if refused:
        raise InvalidDefinition("\n".join(refused))


def _values_that_differ(
    loaded: Loaded,
    code: Path,
    cwd: Path,
    seed: int,
    note: Callable[[str], None],
    alive: Callable[[], None],
    changes: Callable[[], Iterable[str]],
    strict: bool,
) -> list[str]:
    """Return lines on those differences from the notebook's values that forbid training; pass the others to `note`.

    The arguments are those of `check_state`. If not `strict`, all differences are passed to `note`.
    """
    snapshot = loaded.snapshot
    if snapshot is None or not snapshot.state:
        return []
    here = digests(vars(loaded.module), snapshot.state)
    differing = [name for name, was in snapshot.state.items() if here.get(name) != was.digest]
    if not differing:
        return []
    again = _imported_again(code, cwd, seed, alive)
    made_in = cells_of((code / DEFINITION).read_text(encoding="utf-8"), snapshot)
    of_rank = [name for name in differing if again.get(name) == snapshot.state[name].digest]
    by_chance = [
        name for name in differing if name not in of_rank and again.get(name, here.get(name)) != here.get(name)
    ]
    values = vars(loaded.module)
    first_weights = [name for name in by_chance if is_module(values.get(name))]
    for names, say in ((of_rank, _of_rank), (first_weights, _first_weights)):
        if names:
            note(say([f"{name}{made_in.get(name, '')}" for name in names]))
    drawn = [name for name in by_chance if name not in first_weights]
    others = [name for name in differing if name not in {*of_rank, *by_chance}]
    lines = [
        f"{_differs(name, snapshot.state[name], values.get(name), here.get(name))}{made_in.get(name, '')}"
        for name in others
    ]
    lines += changes() if lines else ()
    chance = [_by_chance([f"{name}{made_in.get(name, '')}" for name in drawn], drawn)] if drawn else []
    if strict:
        return [*lines, *([_way_out(others)] if lines else ()), *chance]
    for text in ["; ".join(lines), *chance]:
        if text:
            note(text)
    return []


def digests(namespace: Mapping[str, object], names: Iterable[str]) -> dict[str, str | None]:
    """Return digests of the values in `namespace` that `names` lists, by name.

    A value that cannot be digested has None; a name that is not in `namespace` is left out.
    """
    return {name: digest_of(namespace[name]) for name in names if name in namespace}


def cells_of(source: str, snapshot: Snapshot) -> dict[str, str]:
    """Return, for each top-level name, text about the cell that assigns it last, such as ` (cell [3])`."""
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        origin = snapshot.locate(node.lineno)
        place = "" if origin is None else f" (cell [{origin.cell}])" if origin.cell is not None else f" ({origin.file})"
        found |= dict.fromkeys(_bound(node), place)
    return found


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names to which a statement assigns at the top level, but not those within functions and classes."""
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if not isinstance(node, _SCOPES):
            queue += ast.iter_child_nodes(node)


def _by_chance(places: list[str], names: list[str]) -> str:
    verb = "differs" if len(places) == 1 else "differ"
    return (
        f"{', '.join(places)} {verb} from the notebook's, and from one run to the next: made by chance. "
        "Seed what it is drawn from (or sort what comes out of a set) and run the cell again, or add "
        f"--capture {','.join(names)} to take the notebook's, or --no-state-check to go on with the job's"
    )


def _first_weights(places: list[str]) -> str:
    verb, pronoun = ("differs", "it has") if len(places) == 1 else ("differ", "they have")
    return (
        f"{', '.join(places)} {verb} from the notebook's: made by chance, {pronoun} the weights that the job's --seed "
        "draws. Add --capture to take the notebook's"
    )


def _differs(name: str, was: State, value: object, digest: str | None) -> str:
    """Return text on how a value differs from the notebook's, such as `cfg differs: notebook 1, job 2`.

    `was` is the notebook's value, `value` and `digest` are the job's. If both print alike, the text has their digests.
    """
    if not digest:
        return f"{name} differs: notebook {was.shown}, job {_NOTHING}"
    job = shown(value, digest)
    if job != was.shown:
        return f"{name} differs: notebook {was.shown}, job {job}"
    count = f"of length {len(value)} " if isinstance(value, Sized) else ""
    return f"{name} differs beyond what is shown: {job}, notebook {was.digest[:8]}, job {count}{digest[:8]}"


def _of_rank(names: list[str]) -> str:
    verb, pronoun = ("differs", "it is") if len(names) == 1 else ("differ", "they are")
    return (
        f"{', '.join(names)} {verb} from the notebook's in a rank alone, and the job goes on with its own: without the "
        f"variables that ranks are given (RANK, WORLD_SIZE, ...) {pronoun} what the notebook has"
    )


def _way_out(names: list[str]) -> str:
    what = "this value is" if len(names) == 1 else "these values are"
    return (
        f"{what} not what the submitted cells make: run those cells again, or add --capture {','.join(names)} to take "
        "the notebook's, or --no-state-check to go on with the job's"
    )


def _imported_again(code: Path, cwd: Path, seed: int, alive: Callable[[], None]) -> dict[str, str | None]:
    """Import the definition in another process and return the digests of its values by name; {} if that failed.

    That process has another hash seed, and no environment variables that would make it a rank.
    """
    with tempfile.TemporaryDirectory(prefix="daylight-") as folder:
        answer = Path(folder) / "digests.json"
        command = [
            sys.executable,
            "-m",
            "kernel_backend.runner.definition.state_check",
            str(code),
            str(cwd),
            str(seed),
            str(answer),
        ]
        environment = {name: value for name, value in os.environ.items() if not OF_RANKS.fullmatch(name)}
        environment["PYTHONHASHSEED"] = "1"
        try:
            _run(command, environment, alive)
            found: dict[str, str | None] = json.loads(answer.read_text())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"the definition could not be imported a second time: {error}", file=sys.stderr)
            return {}
    return found


def _run(command: list[str], environment: Mapping[str, str], alive: Callable[[], None]) -> None:
    """Run a command to its end, calling `alive` every second; raise SubprocessError if it fails or takes too long."""
    deadline = time.monotonic() + AGAIN_S
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) as process:
        while process.poll() is None:
            alive()
            if time.monotonic() > deadline:
                process.kill()
                raise subprocess.TimeoutExpired(command[:3], AGAIN_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[:3])


def main(code: Path, cwd: Path, seed: int, answer: Path) -> None:
    """Import the definition in `code`, and write the digests of its values to the file `answer` as JSON.

    This runs in a process of its own, which is not a rank. Only values that the notebook recorded at submission are
    included.
    """
    import torch

    from kernel_backend.parent_death import die_with
    from kernel_backend.runner.determinism import seeds

    die_with(os.getppid())
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    seeds.reseed(seeds.mix(seed, "init", "another"))
    loaded = load(code, cwd)
    names = loaded.snapshot.state if loaded.snapshot else {}
    answer.write_text(json.dumps(digests(vars(loaded.module), names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
