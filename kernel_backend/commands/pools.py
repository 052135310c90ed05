"""Define the verb `pool`, whose options are the fields of PoolSettings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_origin

from kernel_backend.commands.answer import Answer, Table, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.pools import PoolSettings, PoolStatus, read_pool
from kernel_backend.model.values import nearest
from kernel_backend.spec.options import Option
from kernel_backend.text import pools as words

ACTIONS = ("list", "add", "remove")
YES_NO = {"yes": True, "no": False}
_REPEATED = {"extra": "OPTION", "node_selector": "LABEL=VALUE", "tolerations": "TAINT", "volumes": "CLAIM:PATH"}


def _pool(call: Call) -> Answer:
    said, command = call.arguments.words, call.command
    action, names = (said[0], said[1:]) if said else ("list", [])
    given = {name: value for name in PoolSettings.model_fields if (value := getattr(call.arguments, name)) is not None}
    if action not in ACTIONS:
        raise InvalidRequest(f"{command} has no {action}{nearest(action, ACTIONS)}: list, add or remove")
    if given and action != "add":
        raise InvalidRequest(f"{words.flag(next(iter(given)))} is an option of {command} add NAME")
    if action == "list":
        return _list(call, names)
    if len(names) != 1:
        found = f", not {' '.join(names)}" if names else ""
        raise InvalidRequest(f"{command} {action} takes one name{found}: write {command} {action} gpu")
    return _add(call, names[0], given) if action == "add" else _remove(call, names[0])


def _list(call: Call, names: Sequence[str]) -> Answer:
    if names:
        raise InvalidRequest(f"{call.command} list takes no {names[0]!r}")
    found = call.client.pools()
    rows = [words.pool_row(each) for each in found]
    table, kept = Table(words.POOL_HEAD, rows, "there are no pools"), words.allocation_lines(found)
    return Answer({"pools": found}, [table, Text(kept)] if kept else [table])


def _add(call: Call, name: str, given: dict[str, Any]) -> Answer:
    if "engine" not in given:
        example = f"{call.command} add {name} --engine slurm --partition a100"
        raise InvalidRequest(f"which engine runs the gangs of pool {name}? write {example}")
    if (gpus := given.get("gpus")) is not None:
        given["gpus"] = YES_NO[gpus]
    settings = read_pool(name, given).settings
    before = _find(call, name)
    after = call.client.set_pool(name, settings)
    body = {"before": None if before is None else before.to_json(), "after": after.to_json()}
    return Answer(body, [Text(words.set_lines(before, after, call.program))])


def _remove(call: Call, name: str) -> Answer:
    removed = call.client.remove_pool(name)
    return Answer(removed, [Text(words.removed_lines(removed, call.command))])


def _find(call: Call, name: str) -> PoolStatus | None:
    return next((each for each in call.client.pools() if each.name == name), None)


def _option(name: str) -> Option:
    """Return the command-line option that sets a field of PoolSettings, with the field's description as its help."""
    field = PoolSettings.model_fields[name]
    kind: Any = field.annotation
    more: dict[str, Any] = {"metavar": "NAME"}
    if bool in get_args(kind):
        more = {"choices": tuple(YES_NO)}
    elif get_origin(kind) is tuple:
        more = {"metavar": _REPEATED[name], "action": "append"}
    elif {int, float} & {kind, *get_args(kind)}:
        more = {"metavar": "N"}
    return argument(words.flag(name), help=field.description or "", group="settings, of pool add", **more)


POOL = Verb(
    "pool",
    "list the pools (this machine and others); add or remove one",
    _pool,
    (
        argument(
            "words",
            nargs="*",
            metavar="ACTION",
            help="nothing or list: the pools; add NAME with settings below, also to replace them; remove NAME (admins)",
        ),
        *map(_option, PoolSettings.model_fields),
        JSON,
    ),
    (
        "pool",
        "pool add gpu --engine slurm --partition a100",
        "pool add gpu --engine slurm --partition a100 --account vision --extra=--reservation=course",
        "pool add cloud --engine kubernetes --namespace ml --image registry/team/daylight:1",
        "pool remove gpu",
    ),
    client=("pools", "set_pool", "remove_pool"),
)
