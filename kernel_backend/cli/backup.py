"""Define the verbs (subcommands) `backup` and `restore`, which copy the service's database."""

from __future__ import annotations

import time
from pathlib import Path

from kernel_backend import backup
from kernel_backend.commands.answer import Answer, Text
from kernel_backend.commands.verb import Call, Verb, argument
from kernel_backend.home import home
from kernel_backend.spec.options import Option

WHEN = "%Y-%m-%d %H:%M:%S"


def _backup(call: Call) -> Answer:
    options = call.arguments
    contents = backup.back_up(home(), options.file.expanduser(), force=options.force)
    return Answer(None, [Text([f"{options.file}: {_described(contents)}, as of {time.strftime(WHEN)}"])])


def _restore(call: Call) -> Answer:
    options = call.arguments
    restored = backup.restore(home(), options.file.expanduser())
    now = f"the database of {home()} is that of {options.file}: {_described(restored.contents)}"
    before = [f"the one of before is {restored.before}"] if restored.before is not None else []
    return Answer(None, [Text([now])], [*before, f"new experiments are numbered from #{restored.next_number} on"])


def _described(contents: backup.Contents) -> str:
    if not contents.experiments:
        return "no experiment"
    number = contents.experiments
    return f"{number} experiment{'' if number == 1 else 's'}, up to #{contents.newest}"


def _file(text: str) -> Option:
    return argument("file", metavar="FILE", type=Path, help=text, complete="file")


VERBS = (
    Verb(
        "backup",
        "copy the database to a file, while it is in use",
        _backup,
        (_file("where to"), argument("--force", action="store_true", help="replace the file")),
        ("backup ~/daylight-monday.db", "backup /mnt/backup/daylight.db --force"),
        host="terminal",
    ),
    Verb(
        "restore",
        "make a backup the database, while no service runs",
        _restore,
        (_file("a file that daylight backup has made"),),
        ("restore ~/daylight-monday.db",),
        host="terminal",
    ),
)
