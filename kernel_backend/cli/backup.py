"""The verbs of the database: backup and restore."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

from kernel_backend import backup
from kernel_backend.cli.output import say, tell
from kernel_backend.cli.verb import OK, Verb
from kernel_backend.home import home
from kernel_backend.model.options import OptionParser

WHEN = "%Y-%m-%d %H:%M:%S"


def _backup(options: Namespace) -> int:
    contents = backup.back_up(home(), options.file.expanduser(), force=options.force)
    tell(f"{options.file}: {_described(contents)}, as of {time.strftime(WHEN)}")
    return OK


def _restore(options: Namespace) -> int:
    restored = backup.restore(home(), options.file.expanduser())
    tell(f"the database of {home()} is that of {options.file}: {_described(restored.contents)}")
    if restored.before is not None:
        say(f"the one of before is {restored.before}")
    say(f"new experiments are numbered from #{restored.next_number} on")
    return OK


def _described(contents: backup.Contents) -> str:
    if not contents.experiments:
        return "no experiment"
    number = contents.experiments
    return f"{number} experiment{'' if number == 1 else 's'}, up to #{contents.newest}"


def _backup_arguments(parser: OptionParser) -> None:
    _takes_file(parser, "where to")
    parser.add_argument("--force", action="store_true", help="replace the file")


def _takes_file(parser: OptionParser, text: str = "a file that daylight backup has made") -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help=text)


VERBS = (
    Verb(
        "backup",
        "copy the database to a file, while it is in use",
        _backup,
        _backup_arguments,
        ("backup ~/daylight-monday.db", "backup /mnt/backup/daylight.db --force"),
    ),
    Verb(
        "restore",
        "make a backup the database, while no service runs",
        _restore,
        _takes_file,
        ("restore ~/daylight-monday.db",),
    ),
)
