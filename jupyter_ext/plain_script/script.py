"""Compose a plain script: a Python program that trains a user's model without Daylight, in one process.

It consists of a description, command-line flags, the user's code, and a training loop.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from jupyter_ext.plain_script import helpers
from jupyter_ext.plain_script.frameworks import framework_script
from jupyter_ext.plain_script.functions_form import THEIRS, FunctionsForm
from jupyter_ext.plain_script.template import filled
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value

# Names in the script's own parts, which are renamed if the user's code binds them.
_NAMES = """
    args device parser splitmix64 chain seed_all reseed scatter SampleSeeds move split scalar Means per_sample join
    by_rows metric_objects
    report trained_alone opened steps_per_epoch batches evaluate main net opt opts train validation test steps
    average average_by lr_schedule lr_schedules global_step best best_weights stale scalers losses logged weights
    keys own pairs over ends result trained value values given inputs named found parts part size groups improved
    draws samples batch epoch number target output modes
"""
_OURS = frozenset(_NAMES.split())
# Settings that become flags of the script: field of Config -> description.
_FLAGS = {
    "epochs": "passes over the training data",
    "steps": "steps in all",
    "batch_size": "samples of a step",
    "seed": "seed of all random numbers",
    "clip": "maximum norm of the gradients",
    "accumulate": "parts in which a batch is computed",
    "ema": "decay of the averaged weights",
    "patience": "end after so many validations without a better one",
}
_IMPORTS = (
    "import argparse",
    "import ast",
    "import contextlib",
    "import copy",
    "import hashlib",
    "import inspect",
    "import itertools",
    "import json",
    "import math",
    "import random",
    "import numpy",
    "import torch",
    "from torch.utils.data import DataLoader",
    "from torch.utils.data import default_collate",
)
_HEAD = '''
"""Train in one process, with PyTorch alone, what `<command>` trains; its options are the defaults of the flags.
<differences>
"""

<futures>
<imports>

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
<flags>
parser.add_argument("--log", metavar="FILE", help="write reports as JSON, one a line")
parser.add_argument("--log-every", metavar="N", type=int, default=50, help="steps between training reports")
parser.add_argument("--save", metavar="FILE", help="save the best weights")
args = parser.parse_args()
device = <device>
?threads torch.set_num_threads(<threads>)
?deterministic torch.use_deterministic_algorithms(True, warn_only=True)
?deterministic torch.utils.deterministic.fill_uninitialized_memory = False
'''
_USER = """
# The code of the notebook as it stands.

reseed("init", "definition")
"""
_REST = """
# What trains it.
"""


def plain_script(
    source: str,
    definition: Definition,
    config: Config,
    params: Mapping[str, Value],
    command: str,
    modules: Sequence[str] = (),
    roles_from: int = 1,
) -> str:
    """Return the plain script for a definition: a program with hyperparameters as flags, whose defaults are `params`.

    `source` is the user's code, which imports `modules` of its project; the submitted cell begins at line `roles_from`.
    If the definition is a Hugging Face Trainer or a Lightning module, hyperparameters are written into the code
    instead. `command` is the command line of the submission, for the description. Raises InvalidRequest for features
    that change results, and that a plain script does not have.
    """
    _check(source, definition, config)
    if form_named(definition.form).framework:  # Keras has no script
        return framework_script(source, roles_from, definition, config, params, command)
    futures, code = _parted(source)
    body = "\n\n\n".join([helpers.SEEDS.strip("\n"), _USER.strip("\n") + "\n\n<code>", _REST.strip("\n")])
    body += "\n\n\n" + FunctionsForm(definition, config, source).text()
    switches = {"threads": config.threads is not None, "deterministic": config.reproducible != "off"}
    found = "cpu" if config.device == "cpu" else '"cuda" if torch.cuda.is_available() else "cpu"'
    texts = {
        "command": command,
        "differences": "\n".join(_differences(config, source, modules)),
        "flags": "\n".join(_flags(definition, config, params)),
        "device": f"torch.device({found})" if config.device != "cpu" else 'torch.device("cpu")',
        "threads": str(config.threads),
    }
    head = filled(_HEAD, {name for name, on in switches.items() if on}, texts)
    unused = [each for each in _IMPORTS if not re.search(rf"\b{each.split()[-1]}\b", body + head)]
    imports = "\n".join(each for each in _IMPORTS if each not in unused)
    ours = _renamed(code, filled(head, (), {"imports": imports}) + "\n\n\n" + body)
    return filled(ours, (), {"futures": futures, "code": code}) + "\n"


def _check(source: str, definition: Definition, config: Config) -> None:
    """Raise InvalidRequest if the submission uses a feature that changes results and that a plain script lacks."""
    problems = []
    if no_script := form_named(definition.form).script:
        problems.append(f"--as-script: {no_script}")
    given = {
        "--search": config.search is not None,
        "--from": config.weights_from is not None,
        "--await-evaluation": config.await_evaluation,
        "--rng stream": config.rng == "stream",
        "--batch-size auto": config.auto_batch is not None,
        "--logical-workers": (config.logical_workers or 1) > 1,
    }
    problems += [
        f"--as-script trains once, from the beginning, in one process: leave {flag} out"
        for flag in given
        if given[flag]
    ]
    if "sampler" in definition.roles:
        problems.append("--as-script has no sampler: its order follows from the seed; leave the function sampler out")
    if "metrics" in definition.roles and definition.functions["metrics"].value:
        problems.append("--as-script takes metrics as a function: write def metrics(): return {...} of these objects")
    for function in definition.functions.values():
        for each in function.parameters:
            if each.kind == "loop" and each.value_of == "run":
                problems.append(f"{function.name} (line {each.line}) takes run, which a plain script does not have")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        if any(name.split(".")[0] in ("daylight", "kernel_backend") for name in names):
            problems.append(f"line {node.lineno} imports daylight, which a plain script does not need: leave it out")
    if problems:
        raise InvalidRequest("\n".join(problems))


def _differences(config: Config, source: str, modules: Sequence[str]) -> Iterator[str]:
    """Yield lines for the script's description that say how it differs from a job on Daylight."""
    yield ""
    yield "Not in it: checkpoints on the way, restarts, loader processes, and the end by losses that are not finite."
    if config.slots > 1:
        yield (
            f"The experiment has {config.slots} slots, which share each batch, and this script computes it at once:"
            " equal up to rounding, unless layers draw random numbers (dropout) or compare samples (BatchNorm)."
        )
    if modules:
        yield f"Run it in the folder of {', '.join(modules)}, which it imports."
    if config.threads is None:
        yield "Bits depend on the number of threads: give --threads to the submission to have it here, too."
    if re.search(r"Generator\(|default_rng\(|RandomState\(", source):
        yield "A generator that a dataset or a model holds is seeded anew for each sample and step there, and not here."


def _flags(definition: Definition, config: Config, params: Mapping[str, Value]) -> Iterator[str]:
    for name, help in _FLAGS.items():
        value = getattr(config, name)
        if value is None or (name == "epochs" and config.steps is not None) or (name == "accumulate" and value == 1):
            continue
        if name == "batch_size" and config.per_slot_batch:
            value *= config.slots
        if name in params:
            raise InvalidRequest(
                f"the hyperparameter {name} has the name of a flag of the script, which is another thing: rename it"
            )
        yield _flag(name, value, f', help="{help}"')
    yield from (_flag(name, value, "") for name, value in params.items())


def _flag(name: str, value: Value, more: str) -> str:
    flag = f'parser.add_argument("--{name.replace("_", "-")}"'
    if isinstance(value, bool):
        return f"{flag}, action=argparse.BooleanOptionalAction, default={value!r}{more})"
    kind = type(value).__name__ if isinstance(value, int | float | str) else "ast.literal_eval"
    return f"{flag}, type={kind}, default={value!r}{more})"


def _parted(source: str) -> tuple[str, str]:
    """Return the `from __future__` imports of source code, which must come first in a file, and the rest of it.

    Code within `if __name__ == "__main__":` is left out, as in a job.
    """
    lines, futures = source.rstrip().split("\n"), []
    for node in ast.parse(source).body:
        span = range(node.lineno - 1, node.end_lineno or node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            futures.append(ast.unparse(node))
            lines[span.start : span.stop] = [""] * len(span)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            lines[span.start : span.stop] = [""] * len(span)
    return "\n".join(dict.fromkeys(futures)), "\n".join(lines).strip("\n")


def _renamed(code: str, text: str) -> str:
    """Return the code that Daylight adds to a script, `text`, after changing names that the user's `code` binds."""
    theirs = set(_bound(ast.parse(code)))
    for name in sorted(_OURS & theirs):
        text = re.sub(rf"""(?<![\w."'<\0-]){name}\b(?!=[^=])""", f"{name}_", text)
    return text.replace(THEIRS, "")


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module's top-level statements bind."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            yield from _bound(node)
