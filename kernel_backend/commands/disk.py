"""Define the verb du: disk usage of experiments and users, and of the remote data that this machine has."""

from __future__ import annotations

import os

from kernel_backend.commands.answer import Answer, Table, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.inputs.node_cache import NodeCache, cache_root
from kernel_backend.model.sizes import size
from kernel_backend.text import counted
from kernel_backend.text import disk as words

ROWS = 20


def _du(call: Call) -> Answer:
    options = call.arguments
    if options.cache:
        return cached()
    client = call.client
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


def cached(clean: bool = False) -> Answer:
    """Return what the cache of remote data on this machine has; with `clean`, remove what no training uses first."""
    cache = NodeCache(cache_root(os.environ))
    removed = cache.clean() if clean else 0
    use = cache.use()
    fields = {"root": str(cache.root), "objects": use.objects, "bytes": use.bytes, "idle": use.idle}
    lines = [f"{size(removed)} of remote data that no training uses are removed"] if clean else []
    lines.append(f"remote data in {cache.root}: {counted(use.objects, 'object')}, {size(use.bytes)}")
    lines += [f"no training uses {size(use.idle)} of it: daylight gc --cache"] if use.idle else []
    return Answer(fields | ({"removed": removed} if clean else {}), [Text(lines)])


DU = Verb(
    "du",
    "show the disk usage of each experiment (checkpoints, artifacts, logs and code), the largest first",
    _du,
    (
        argument("words", nargs="*", metavar="NUMBER", help="only these, and what stays", complete="experiment"),
        argument("--all", action="store_true", help="of all users (admins)"),
        argument("--cache", action="store_true", help="the remote data on this machine, read by trainings of yours"),
        argument("--limit", metavar="N", type=count, default=ROWS, help=f"at most so many experiments [{ROWS}]"),
        JSON,
    ),
    ("du", "du 12 14", "du --all --json", "du --cache"),
    takes="experiments, or nothing",
    client=("disk", "usage_of"),
)
