"""The verbs that change something: submit, stop, pause, resume, serve."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from kernel_backend.cli.follow import wait
from kernel_backend.cli.output import print_json, say, tell
from kernel_backend.cli.verb import OK, Verb, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.options import OptionParser, add_options
from kernel_backend.model.overview import Overview
from kernel_backend.model.resumption import parse_slots
from kernel_backend.text import already_text, head_text, new_notes, same_text


def _submit(options: Namespace) -> int:
    from jupyter_ext.capture import capture_file
    from jupyter_ext.dry_run import dry_run
    from jupyter_ext.submit import check, read, send

    path = _file(options.words)
    asked = read(options)
    checked = check(capture_file(path), asked.given, asked.wanted, path, wrong=asked.wrong, space=asked.space)
    for warning in checked.warnings:
        say(f"note: {warning}")
    if options.dry_run:
        tell(dry_run(checked, asked, f"daylight submit {path}"))
        return OK
    client, name = Client.connect(), options.name or path.stem
    overview, new = send(checked, asked.config, asked.given, name=name, client=client, again=options.again)
    if not new:
        say(same_text(str(path), overview))
    return _wait(client, overview, options) if options.wait else _tell(overview, options)


def _tell(overview: Overview, options: Namespace) -> int:
    _print(overview, options)
    if not (options.json or options.quiet):
        number = overview.experiment.number
        say(f"daylight show {number} --follow to watch it, daylight stop {number} to end it")
    return OK


def _print(overview: Overview, options: Namespace) -> None:
    if options.json:
        print_json(overview)
    else:
        tell(overview.experiment.number if options.quiet else head_text(overview, time.time()))


def _wait(client: Client, overview: Overview, options: Namespace) -> int:
    ended, code = wait(client, overview, sys.stderr if options.json or options.quiet else sys.stdout)
    if ended:
        _print(ended, options)
    return code


def _file(words: list[str]) -> Path:
    """The file that the words name, which is taken out of them."""
    files = [word for word in words if "=" not in word or _is_file(Path(word))]
    if len(files) != 1:
        found = f"not {len(files)}: {' '.join(files)[:500]}" if files else "which is missing"
        raise InvalidRequest(f"submit takes one file, {found}; write daylight submit FILE.py name=value ...")
    path = Path(files[0])
    if not _is_file(path):
        raise InvalidRequest(f"there is no file {files[0][:500]}")
    words.remove(files[0])
    return path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no file has a name as long, or with a NUL
        return False


def _submit_arguments(parser: OptionParser) -> None:
    parser.add_argument("words", nargs="*", metavar="FILE.py name=value", help="the roles, and their hyperparameters")
    add_options(parser, "terminal")


def _verb(name: str, text: str, change: Callable[[Client, int], Overview]) -> Verb:
    def act(options: Namespace) -> int:
        overview = change(Client.connect(), options.reference.experiment)
        if options.json:
            print_json(overview)
        else:
            tell(head_text(overview, time.time()))
        return OK

    def arguments(parser: OptionParser) -> None:
        takes_one(parser)
        takes_json(parser)

    return Verb(name, text, act, arguments, (f"{name} 12",))


def _resume(options: Namespace) -> int:
    client, number = Client.connect(), options.reference.experiment
    before = client.experiment(number)
    overview = client.resume(number, options.slots)
    if options.json:
        print_json(overview)
    else:
        notes = [*already_text(before), *new_notes(before, overview)]
        tell("\n".join([head_text(overview, time.time()), *(f"note: {note}" for note in notes)]))
    return OK


def _resume_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument(
        "--slots", metavar="N", type=parse_slots, help="on so many slots from here on [as many as before]"
    )
    takes_json(parser)


def _serve(options: Namespace) -> int:
    try:
        from kernel_backend.app import main
    except ImportError as error:
        raise InvalidRequest(
            f"this Python cannot serve ({error}): install daylight[server] into it, or use the Python that has it"
        ) from None
    main([f"--{name.replace('_', '-')}={value}" for name, value in vars(options).items() if value])


def _serve_arguments(parser: OptionParser) -> None:
    parser.add_argument("--port", metavar="N", help="port to listen on, of this machine only [a free one]")
    parser.add_argument("--idle-timeout", metavar="SECONDS", help="ends itself after as long with nothing to do [3600]")
    parser.add_argument("--slots", metavar="N", help="how many slots to offer [as many as there are]")
    parser.add_argument("--config", metavar="FILE", help="file of settings: c.Daylight.idle_timeout = 600")


SUBMIT = (
    Verb(
        "submit",
        "submit a file of roles as an experiment",
        _submit,
        _submit_arguments,
        ("submit train.py --slots 2 --epochs 10 lr=0.01", "submit train.py --wait --json | jq .trials[0].metrics"),
        mixed=True,
    ),
)
VERBS = (
    _verb("stop", "end an experiment for good; its checkpoints stay", Client.stop),
    _verb("pause", "commit a checkpoint and give the slots back", Client.pause),
    Verb(
        "resume",
        "go on with a paused experiment",
        _resume,
        _resume_arguments,
        ("resume 12", "resume 12 --slots 4"),
    ),
    Verb("serve", "run the service in the foreground", _serve, _serve_arguments, ("serve", "serve --idle-timeout 600")),
)
