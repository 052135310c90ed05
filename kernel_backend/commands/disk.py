"""Define the verb du: disk usage of experiments and users."""

from __future__ import annotations

from kernel_backend.commands.answer import Answer, Table, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.text import disk as words

ROWS = 20


def _du(call: Call) -> Answer:
    options, client = call.arguments, call.client
    if options.words:
        references = [call.resolve(word) for word in options.words]
        if any(each.trial is not None for each in references):
            raise InvalidRequest(f"{call.command} takes whole experiments: write {call.command} 12")
        usages = [client.usage_of(each.experiment) for each in references]
        return Answer({"experiments": usages}, [Text([line for each in usages for line in words.usage_lines(each)])])
    report = client.disk(options.all)
    users = [Table(words.USER_HEAD, words.user_rows(report), "nobody has anything on disk")] if options.all else []
    rows = words.experiment_rows(report, options.limit)
    table = Table(words.EXPERIMENT_HEAD, rows, "no experiment has anything on disk")
    return Answer(report, [*users, table, Text(words.report_lines(report, options.limit))])


DU = Verb(
    "du",
    "show the disk usage of each experiment (checkpoints, artifacts, logs and code), the largest first",
    _du,
    (
        argument("words", nargs="*", metavar="NUMBER", help="only these, and what stays", complete="experiment"),
        argument("--all", action="store_true", help="of all users (admins)"),
        argument("--limit", metavar="N", type=count, default=ROWS, help=f"at most so many experiments [{ROWS}]"),
        JSON,
    ),
    ("du", "du 12 14", "du --all --json"),
    takes="experiments, or nothing",
    client=("disk", "usage_of"),
)
