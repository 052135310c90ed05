"""Define the verbs delete and undelete."""

from __future__ import annotations

import time
from collections.abc import Callable

from kernel_backend.commands.answer import OK, USAGE, Answer, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.disk import UNDO_S, DiskUsage
from kernel_backend.model.sizes import size
from kernel_backend.model.views.overview import Overview
from kernel_backend.text.disk import usage_lines

NUMBERS = argument("words", nargs="*", metavar="NUMBER", help="experiments, as 12 14", complete="experiment")


def _delete(call: Call) -> Answer:
    numbers, client = _numbers(call), call.client
    usages = [client.usage_of(number) for number in numbers]
    for usage in usages:
        for line in usage_lines(usage):
            call.console.say(line)
    if not getattr(call.arguments, "yes", False) and not call.console.agrees(_question(usages)):
        return Answer(None, notes=["nothing was deleted"], code=USAGE)
    deleted = [client.delete_experiment(number) for number in numbers]
    until = min(each.experiment.deleted_at or time.time() for each in deleted) + UNDO_S
    names = " ".join(map(str, numbers))
    said = f"deleted: {_listed(numbers)}; {call.program} undelete {names} brings {_it(numbers)} back until {_at(until)}"
    return Answer({"deleted": deleted, "usage": usages}, [Text([said])])


def _undelete(call: Call) -> Answer:
    numbers = _numbers(call)
    back = _each(call.client.undelete, numbers)
    return Answer({"undeleted": back}, [Text([f"back again: {_listed(numbers)}"])], code=OK)


def _each(act: Callable[[int], Overview], numbers: list[int]) -> list[Overview]:
    return [act(number) for number in numbers]


def _numbers(call: Call) -> list[int]:
    references = [call.resolve(word) for word in call.arguments.words]
    if not references or any(each.trial is not None for each in references):
        raise InvalidRequest(f"{call.command} takes whole experiments: write {call.command} 12")
    return list(dict.fromkeys(each.experiment for each in references))


def _question(usages: list[DiskUsage]) -> str:
    what = f"#{usages[0].experiment}" if len(usages) == 1 else f"{len(usages)} experiments"
    return f"delete {what}, which frees {size(sum(each.frees for each in usages))} after a day"


def _listed(numbers: list[int]) -> str:
    return ", ".join(f"#{number}" for number in numbers)


def _it(numbers: list[int]) -> str:
    return "it" if len(numbers) == 1 else "them"


def _at(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


VERBS = (
    Verb(
        "delete",
        "delete ended experiments; they can be restored for a day, then their files are removed",
        _delete,
        (NUMBERS, argument("--yes", action="store_true", help="do not ask", host="terminal"), JSON),
        ("delete 12", "delete 12 14 --yes"),
        takes="experiments",
        client=("delete_experiment", "usage_of"),
        job=("delete",),
    ),
    Verb(
        "undelete",
        "restore experiments that were deleted within the last day",
        _undelete,
        (NUMBERS, JSON),
        ("undelete 12",),
        takes="experiments",
        client=("undelete",),
        job=("undelete",),
    ),
)
