"""Export every module that the programs of the corpus and all forms train, as a folder, as pt2 and as ONNX.

    python -m tests.torture.exports
    python -m tests.torture.exports gan vae

Each model is trained by a real service, exported, and proven in a fresh process without Daylight. A line says for each
how it was proven, or why it was refused. Programs for other runtimes are then run with a thousand rows more, each of
which must have its largest output in the same place. The last lines count: nothing may be exported that computes
something else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.client import Client
from kernel_backend.commands.exports.model import export_trained
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.definition.parse import parse
from kernel_backend.definition.script.parts import PART, SKELETON
from kernel_backend.errors import DaylightError
from kernel_backend.model.checkpoints import CheckpointSelector
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import Reference
from tests.support.programs import PROGRAMS
from tests.support.world import World
from tests.torture.model import FORMS

_FORM = "form-"
_KINDS = ("folder", "pt2", "onnx")
_ANY = CheckpointSelector(latest=False, best=False, step=None)
ROWS = 1000
# Draws rows anew, with the types and ranges of those that the folder has, and compares as its own check does.
_MORE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import check, torch
from model import load
def drawn(value):
    if isinstance(value, (list, tuple)):
        return type(value)(drawn(each) for each in value)
    if isinstance(value, dict):
        return {key: drawn(each) for key, each in value.items()}
    if not getattr(value, "ndim", 0):
        return value
    shape = [rows if value.shape[0] == size else value.shape[0], *value.shape[1:]]
    if value.is_floating_point():
        low, high = float(value.min()), float(value.max())
        return (torch.rand(shape, generator=draws) * (high - low) + low).to(value.dtype)
    return torch.randint(int(value.min()), int(value.max()) + 1, shape, generator=draws).to(value.dtype)
torch.set_num_threads(1)
model, draws = load(sys.argv[1]), torch.Generator().manual_seed(1)
call = next(each for each in check.recorded(sys.argv[1]) if not each["path"])
first = next(each for _, each in check._flat([call["args"], call["kwargs"]], "") if each.ndim)
size, done, largest = first.shape[0], 0, {}
rows = max(1, min(250, 2**20 // first[0].numel()))
while done < int(sys.argv[2]):
    again = {"path": "", "args": drawn(call["args"]), "kwargs": drawn(call["kwargs"])}
    check.recorded = lambda folder: [again]
    for name, far in check.compared_programs(model, sys.argv[1]).items():
        largest[name] = max(far, largest.get(name, 0.0))
    done += rows
print(json.dumps({"rows": done, "largest": largest}))
"""


def trained(world: World, names: list[str]) -> dict[str, int]:
    """Train forms and programs with these names, and return the number of each experiment that has completed."""
    numbers = {}
    for name in names:
        if name.startswith(_FORM):
            form = FORMS[name.removeprefix(_FORM)]
            options = form.options | {"epochs": 1, "slots": 1 + name.endswith("fsdp2")}
            made = world.submit(form.source, contract=CONTRACT, **options)
        else:
            source = PROGRAMS[name].read_text()
            epochs = int(parse(source).settings.get("epochs", 1))  # as many as it trains by itself
            made = world.submit(source, contract=CONTRACT, slots=1, epochs=epochs, batch_size=Config().batch_size)
        numbers[name] = made.experiment.number
    ended = {name: world.ended(number, patience=3600) for name, number in numbers.items()}
    for name, overview in ended.items():
        if overview.experiment.state != "completed":
            print(f"{name}: {overview.experiment.state}")
    return {name: numbers[name] for name, overview in ended.items() if overview.experiment.state == "completed"}


def module_names(client: Client, number: int) -> list[str]:
    """Return the names of the modules that a training called, as its newest checkpoint says."""
    newest = client.checkpoints(number)[-1]
    manifest = json.loads(client.manifest(number, newest.trial, newest.id))
    called = list(manifest["state"]["training"]["signatures"])
    parts = manifest["state"].get(PART, {})
    variables = {name.rpartition(".")[2]: name for name in parts}  # of a function that has returned since
    named = [variables.get(name, name) if parts and name not in parts else name for name in called]
    return [name for name in named if name.rpartition(".")[0] not in called] or (
        [name for name, part in parts.items() if SKELETON in part] or ["auto"]
    )


def exported(client: Client, number: int, module: str, to: Path) -> Iterator[tuple[str, str]]:
    """Export a module in all ways at once, or in one after the other if that is refused; yield what is said of each."""

    def proof(*formats: str) -> str:
        try:
            found = export_trained(client, Reference(number), to, _ANY, module=module, formats=formats, force=True)
        except DaylightError as refused:
            return f"refused: {refused.message.splitlines()[0]}"
        return found.proof

    folder, *programs = (whole := proof("pt2", "onnx")).split("; model.")
    if not whole.startswith("refused"):
        yield from zip(_KINDS, [folder, *(each.partition(" ")[2] for each in programs)], strict=True)
        return
    yield "folder", (alone := proof())
    if not alone.startswith("refused"):
        for kind in ("pt2", "onnx"):
            said = proof(kind)
            yield kind, said if said.startswith("refused") else said.partition(f"; model.{kind} ")[2]


def with_more_rows(folder: Path) -> str:
    """Return how far the programs of an exported folder are from its model on `ROWS` rows more, or what differs."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _MORE, str(folder), str(ROWS)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return f"other: {done.stderr.strip().splitlines()[-1]}"
    found = json.loads(done.stdout.splitlines()[-1])
    each = (f"{name} {f'by up to {far:.2g}' if far else 'bit-equal'}" for name, far in found["largest"].items())
    return f"same: {found['rows']} rows, {', '.join(each)}"


def main() -> int:
    """Export all, print a line for each, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*(f"{_FORM}{name}" for name in FORMS), *PROGRAMS]
    parser.add_argument("names", nargs="*", help=f"some of: {' '.join(known)}")
    names = parser.parse_args().names or known
    counts = {kind: Counter[str]() for kind in (*_KINDS, "rows")}
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place) / "home", slots=2)
        try:
            client = world.serve()
            for name, number in trained(world, names).items():
                for module in module_names(client, number):
                    folder = Path(place) / f"{name}-{module}"
                    for kind, said in exported(client, number, module, folder):
                        proven = not said.startswith("refused")
                        lines = [(kind, said), *[("rows", with_more_rows(folder))] * (proven and kind == "onnx")]
                        for what, line in lines:
                            counts[what][line.split(" ")[0].rstrip(":;,")] += 1
                            print(f"{name}.{module} {what}: {line}", flush=True)
        finally:
            world.close()
    for kind, found in counts.items():
        print(f"{kind}: {dict(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
