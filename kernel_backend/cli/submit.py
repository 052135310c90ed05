"""Define the verb (subcommand) `submit`: `daylight submit FILE.py`, `daylight submit -- python train.py`."""

from __future__ import annotations

from importlib import import_module

from kernel_backend.commands.answer import Answer
from kernel_backend.commands.verb import Call, Verb, argument
from kernel_backend.spec.options import OPTIONS

CAPTURE = "jupyter_ext.submit.submit_file"  # imported by name: this package must not depend on jupyter_ext


def _submit(call: Call) -> Answer:
    answer: Answer = import_module(CAPTURE).submit(call)
    return answer


SUBMIT = Verb(
    "submit",
    "submit a file of roles, or after -- any command, as an experiment",
    _submit,
    (
        argument(
            "words",
            nargs="*",
            metavar="FILE.py name=value",
            help="the roles, and their hyperparameters",
            complete="file",
        ),
        *OPTIONS,
    ),
    (
        "submit train.py --slots 2 --epochs 10 lr=0.01",
        "submit train.py --wait --json | jq .trials[0].metrics",
        "submit --slots 2 lr=0.01 -- python train.py --lr {lr}",
    ),
    host="terminal",
    client=("submit", "upload_snapshot"),
    runs=True,
)
