"""Define the verb env, which shows an experiment's Python environment and its lock."""

from __future__ import annotations

from kernel_backend.commands.answer import Answer, File, Text
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.text.environment import environment_lines, lock_text


def _env(call: Call) -> Answer:
    number = call.reference.experiment
    found = call.client.environment(number)
    shown = File(lock_text(found, number)) if call.arguments.lock and not call.json else Text(environment_lines(found))
    return Answer(found, [shown])


ENV = Verb(
    "env",
    "show an experiment's Python environment, and its lock file",
    _env,
    (
        NUMBER,
        argument("--lock", action="store_true", help="print the lock file: requirements with hashes, for pip"),
        JSON,
    ),
    ("env 12", "env 12 --lock"),
    client=("environment",),
)
