"""`%%dlsubmit` and `%dl`: a magic parses its line, captures, calls the client and shows what came back."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from jupyter_ext.capture import capture_cell
from jupyter_ext.commands import HELP, run_command
from jupyter_ext.follow import follow
from jupyter_ext.host import headless, notebook_path
from jupyter_ext.job import Job, final_lines, raise_if_failed
from jupyter_ext.line import words
from jupyter_ext.recorder import Recorder
from jupyter_ext.submit import Checked, check, send
from jupyter_ext.views import LiveView
from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from kernel_backend.model.options import OptionParser, add_options, to_config
from kernel_backend.model.overview import Overview
from kernel_backend.model.space import parse_assignments
from kernel_backend.text import duration, head_text, progress_line

QUIET_S = 30.0  # a plain log says something at least this often
_ATTRIBUTE = "_daylight_magics"


class Complaint(DaylightError):
    """A DaylightError as a notebook shows it: its message, and no traceback through our own files."""

    def _render_traceback_(self) -> list[str]:
        kind = self.details.get("kind", "DaylightError")
        return f"{kind}: {self.message}".splitlines()


def _parser() -> OptionParser:
    parser = OptionParser(
        prog="%%dlsubmit",
        add_help=False,
        usage="%%dlsubmit [options] [name=value ...]",
        description="Submit this cell, with what it needs of the others, as an experiment.",
        epilog="name=value sets a hyperparameter: an argument of the cell's functions, such as lr=1e-2.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, "notebook")
    parser.add_argument("--help", "-h", action="store_true", help="show this")
    parser.set_defaults(words=[])
    return parser


@magics_class
class DaylightMagics(Magics):  # type: ignore[misc]
    """The two magics of one kernel, and what it has executed."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.recorder = Recorder(shell)

    @no_var_expand
    @cell_magic
    def dlsubmit(self, line: str, cell: str) -> Job | None:
        """Submit this cell as an experiment."""
        return _told_shortly(lambda: self._dlsubmit(line, cell))

    @no_var_expand
    @line_magic
    def dl(self, line: str) -> None:
        """Look at experiments and act on them."""
        _told_shortly(lambda: run_command(words(line, self.shell.user_ns)))

    def _dlsubmit(self, line: str, cell: str) -> Job | None:
        parser = _parser()
        options = parser.parse_mixed(words(line, self.shell.user_ns))
        if options.help:
            print(parser.format_help().rstrip())
            return None
        config, given = to_config(options), parse_assignments(options.words)
        checked = check(self._capture(cell), given)
        if options.dry_run:
            print(_dry_run(checked))
            return None
        client = _client()
        notebook = notebook_path(self.shell)
        overview = send(checked, config, given, name=options.name, notebook=notebook, client=client)
        job = Job(overview.experiment.number, client)
        if options.out:
            self.shell.user_ns[options.out] = job
        self._define(cell)
        wait = headless(self.shell) if options.wait is None else options.wait
        _show(client, overview, _captured(checked, overview), wait, options.quiet, headless(self.shell))
        return None if options.out else job

    def _capture(self, cell: str) -> Any:
        return capture_cell(
            self.recorder.cells,
            cell,
            self.shell.user_ns,
            number=self.shell.execution_count,
            line=self._first_line(),
        )

    def _first_line(self) -> int:
        """Where the text below the magic begins in the cell: blank lines may stand above it."""
        text = self.recorder.running
        return len(text) - len(text.lstrip("\n")) + 2

    def _define(self, cell: str) -> None:
        """The cell's definitions, in the notebook too; an error is shown and changes nothing about the experiment."""
        result = self.shell.run_cell(cell, silent=True, store_history=False)
        if not result.success:
            self.recorder.failed_below(1)
            print("the experiment was submitted; in the notebook the cell failed as shown above", file=sys.stderr)


DaylightMagics.dlsubmit.__doc__ = _parser().format_help()
DaylightMagics.dl.__doc__ = HELP


def load(shell: Any) -> None:
    """Register the magics, and remember what is executed from here on."""
    if getattr(shell, _ATTRIBUTE, None) is None:
        magics = DaylightMagics(shell)
        magics.recorder.register()
        shell.register_magics(magics)
        setattr(shell, _ATTRIBUTE, magics)


def unload(shell: Any) -> None:
    """Stop listening to the kernel."""
    magics = getattr(shell, _ATTRIBUTE, None)
    if magics is not None:
        magics.recorder.unregister()
        setattr(shell, _ATTRIBUTE, None)


def _told_shortly(act: Callable[[], Job | None]) -> Job | None:
    """What `act` returns; our own errors lose their traceback, which would only show our files."""
    try:
        return act()
    except DaylightError as error:
        if hasattr(error, "_render_traceback_"):
            raise error.with_traceback(None) from None
        raise Complaint(error.message, kind=type(error).__name__, **_details(error)) from None


def _details(error: DaylightError) -> dict[str, Any]:
    return {name: value for name, value in error.details.items() if name != "kind"}


def _client() -> Client:
    if discovery.find() is None:
        print("starting Daylight's service; it goes on by itself and ends when it is idle")
    return Client.connect()


def _captured(checked: Checked, overview: Overview) -> list[str]:
    config = overview.experiment.config
    slots = f"{config.slots} slot{'' if config.slots == 1 else 's'}"
    backend = "" if config.backend == "auto" else f"{config.backend} on "
    return [checked.capture.described, f"{checked.definition.summary} -> {backend}{slots}", *checked.warnings]


def _dry_run(checked: Checked) -> str:
    head = [f"# {checked.capture.described}", f"# {checked.definition.summary}"]
    head += [f"# {name} = {value!r}" for name, value in checked.params.items()]
    head += [f"# requires {requirement}" for requirement in checked.capture.requirements]
    head += [f"# note: {warning}" for warning in checked.warnings]
    return "\n".join([*head, "", checked.capture.source.rstrip()])


def _show(client: Client, overview: Overview, captured: Sequence[str], wait: bool, quiet: bool, plain: bool) -> None:
    number = overview.experiment.number
    if quiet:
        print(number)
    if not wait:
        follow_it = f"%dl show {number} looks again, %dl stop {number} ends it"
        if not quiet:
            LiveView(client, [*captured, follow_it]).show(overview, final=True)
        return
    try:
        last = (
            _wait_plainly(client, overview, captured) if plain or quiet else _wait_drawing(client, overview, captured)
        )
    except KeyboardInterrupt:
        print(f"#{number} is still running; %dl stop {number} to end it")
        return
    raise_if_failed(last)


def _wait_plainly(client: Client, overview: Overview, captured: Sequence[str]) -> Overview:
    print("\n".join([head_text(overview, time.time()), *captured]), flush=True)
    said = time.monotonic()
    for look in follow(client, overview):
        overview, lines = look.overview, look.lines
        if not lines and time.monotonic() - said >= QUIET_S:
            lines = [_still(overview)]
        if lines:
            print("\n".join(lines), flush=True)
            said = time.monotonic()
    print("\n".join(final_lines(overview)), flush=True)
    LiveView(client, captured).show(overview, final=True)
    return overview


def _still(overview: Overview) -> str:
    age = duration(time.time() - overview.experiment.created_at)
    return f"{progress_line(overview.trials[0], overview.experiment.config)}  {overview.state} for {age}"


def _wait_drawing(client: Client, overview: Overview, captured: Sequence[str]) -> Overview:
    view = LiveView(client, captured)
    for look in follow(client, overview):
        overview = look.overview
        view.show(overview)
    view.show(overview, final=True)
    return overview
