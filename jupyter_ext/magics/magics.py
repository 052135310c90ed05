"""Define `%%dlsubmit`, `%%dlrun` and `%dl`: parse the line, capture the cell, call the client, and show the result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class, no_var_expand

from jupyter_ext.capture import Capture, capture_cell
from jupyter_ext.frontend import headless, notebook_path, wants_widget
from jupyter_ext.job.job import Job
from jupyter_ext.magics.commands import HELP, run_command
from jupyter_ext.magics.completion import complete_line, complete_submission
from jupyter_ext.magics.line import words
from jupyter_ext.magics.magic_first import first_line, magic_first
from jupyter_ext.magics.notebook_part import notebook_part
from jupyter_ext.magics.recorder import Recorder
from jupyter_ext.magics.request import Request, read_request, run_parser, submit_parser
from jupyter_ext.magics.untrained import LeftBehind, untrained_note
from jupyter_ext.magics.waiting import show, wait
from jupyter_ext.project import Imported
from jupyter_ext.submit.dry_run import as_script, dry_run
from jupyter_ext.submit.local import train_locally
from jupyter_ext.submit.replacement_cell import offered
from jupyter_ext.submit.stale_cells import stale_cells
from jupyter_ext.submit.submit import PreparedSubmission, Session, SubmitOptions, check, send
from jupyter_ext.values.awaited import AwaitedValues, BindFirst
from jupyter_ext.values.expected import comes_back, expected_values, gives_values, left_to_job
from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import module_tree
from kernel_backend.model.views.overview import Overview
from kernel_backend.spec.option_parser import OptionParser
from kernel_backend.text import same_text
from kernel_backend.text.terminal import tell

_ATTRIBUTE = "_daylight_magics"


@magics_class
class DaylightMagics(Magics):
    """Magics of one kernel, with a record of the cells that it has executed."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.kernel: Any = shell
        self.recorder = Recorder(shell, Imported())
        self.told: set[str] = set()  # notes that were shown already
        self.left_behind = LeftBehind()
        self.awaited = AwaitedValues(shell.user_ns)
        self.bind_first = BindFirst(self.recorder.begins, self.awaited)

    @no_var_expand
    @line_cell_magic
    def dlsubmit(self, line: str, cell: str | None = None) -> None:
        """Submit this cell, or a file, as an experiment."""
        self._submit(submit_parser(), line, cell)

    @no_var_expand
    @cell_magic
    def dlrun(self, line: str, cell: str) -> None:
        """Run this cell once, as a job."""
        self._submit(run_parser(), line, cell)

    def _submit(self, parser: OptionParser, line: str, cell: str | None) -> None:
        request = read_request(parser, line, cell, self.kernel.user_ns)
        if request is None:
            return
        checked = self._checked(request)
        if request.options.dry_run or request.options.as_script:
            self._show_only(request, checked)
        elif request.options.local:
            self._train_here(request, checked)
        else:
            self._send(request, checked)

    def _checked(self, request: Request) -> PreparedSubmission:
        """Capture what is submitted, and check it; raises InvalidDefinition, for a cell with another cell in its place.

        A file is checked without the notebook's values.
        """
        asked, source, file, session = request.asked, request.source, None, None
        if source is not None:
            capture, file = source.capture, source.path
        else:
            capture = self._capture(request.cell or "", asked.wanted)
            session = Session(self.kernel.user_ns, self.recorder.imported, self.told)
        try:
            return check(capture, asked.given, asked.wanted, file, session, asked.wrong, asked.space, asked.config)
        except InvalidDefinition as refused:
            raise offered(refused, request.line) if request.cell is not None else refused from None

    def _show_only(self, request: Request, checked: PreparedSubmission) -> None:
        """Print what would be submitted, or a script that trains the same; nothing is submitted."""
        if request.options.as_script:
            tell(as_script(checked, request.written))
        else:
            tell(dry_run(checked, request.asked, request.written, request.source.tail if request.source else ""))
        if request.cell is not None and form_named(checked.definition.form).whole:
            self.recorder.body_ran(None, source="")  # later captures must know that it has not trained

    def _train_here(self, request: Request, checked: PreparedSubmission) -> None:
        """Train in the kernel."""
        result = train_locally(checked, request.asked)
        if request.options.out:
            self.kernel.user_ns[request.options.out] = result
        if request.cell is not None:
            self._define(request.cell, checked.definition, checked.capture)

    def _send(self, request: Request, checked: PreparedSubmission) -> None:
        """Submit, show the experiment, and expect the values that the job of a cell sets."""
        options, widget = request.options, wants_widget(request.options.view, self.kernel)
        self.told |= set(checked.capture.kept_out)
        client = _client()
        overview, new = send(checked, notebook=notebook_path(self.kernel), client=client, again=options.again)
        if not new and not options.quiet:
            tell(same_text(request.named, overview))
        job = Job(overview.experiment.number, client)
        if options.out:
            self.kernel.user_ns[options.out] = job
        awaited: list[str] = []
        if request.cell is not None:
            makes = "" if request.plain else self._define(request.cell, checked.definition, checked.capture)
            only = request.plain and bool(options.back)
            awaited = expected_values(checked, self.kernel.user_ns, self.awaited.bound, only)
            notes = self._notes(checked, overview, awaited, options.out, new)
            checked = replace(checked, passing=(*checked.passing, *notes))
            used = (*checked.capture.changed, *checked.capture.compared)
            self.awaited.expect(job, client, awaited, self.recorder.running, used, makes)
        ended = self._follow(client, overview, checked, options, widget)
        if ended is not None and awaited:
            self.awaited.arrived(job)

    def _notes(
        self, checked: PreparedSubmission, overview: Overview, awaited: Sequence[str], out: str, new: bool
    ) -> list[str]:
        """Return notes on what a submitted cell leaves to its job: what comes back, or stays as it was."""
        held, number, definition = self.kernel.user_ns, overview.experiment.number, checked.definition
        if definition.form == "plain":
            return list(comes_back(awaited))
        left = left_to_job(definition, checked.capture, held)
        if gives_values(checked):
            notes = [each for each in comes_back(awaited) if each not in self.told]
            self.told |= set(notes)
        else:
            note = untrained_note(left, definition, held, out or f"daylight.job({number})")
            notes = [note] if note else []
        if new:
            notes += self.left_behind.within(left, held)
            self.left_behind.add(left, definition, held, number)
        return notes

    @no_var_expand
    @line_magic
    def dl(self, line: str) -> None:
        """Run a verb on experiments, such as `%dl list` or `%dl stop 12`."""
        run_command(words(line, self.kernel.user_ns), self.awaited)

    def _follow(
        self, client: Client, overview: Overview, checked: PreparedSubmission, options: argparse.Namespace, widget: bool
    ) -> Overview | None:
        """Show the experiment; where the cell waits, wait for its end and return it. Return None otherwise."""
        captured, nobody_looks = _captured(checked, overview), headless(self.kernel)
        if options.quiet:
            tell(overview.experiment.number)
        if nobody_looks if options.wait is None else options.wait:
            return wait(client, overview, captured, plain=nobody_looks, quiet=options.quiet, widget=widget)
        if not options.quiet:
            show(client, overview, captured, widget=widget)
        return None

    def _capture(self, cell: str, wanted: SubmitOptions) -> Capture:
        number = len(self.kernel.history_manager.input_hist_raw) - 1
        line = first_line(self.recorder.running)
        cells = self.recorder.cells
        capture = capture_cell(
            cells,
            cell,
            self.kernel.user_ns,
            number=number,
            line=line,
            captured=wanted.captured,
            from_jobs=self.awaited.bound,
            draws_anew=not wanted.state_check,
        )
        needed = {piece.cell for piece in capture.pieces if piece.cell is not None}
        changed = stale_cells(notebook_path(self.kernel), cells, needed, self.recorder.started)
        return replace(capture, warnings=(*capture.warnings, *changed))

    def _define(self, cell: str, definition: Definition, capture: Capture) -> str:
        """Execute the definitions of a cell in the notebook, after the cell was submitted or trained locally.

        An error is shown, but does not affect the experiment. A function never replaces a notebook value that is not a
        function: a trained `model` stays. Returns the code that creates the cell's Trainer, "" if there is none.
        """
        names = {each.attribute for each in definition.functions.values() if not each.value}
        held = self.kernel.user_ns
        values = {name: held[name] for name in names if name in held and not isinstance(held[name], FunctionType)}
        running, module = self.recorder.running, module_tree(capture.source)
        part = notebook_part(cell, running, definition, module, self.kernel.transform_cell)
        result = self.kernel.run_cell(part.code, silent=True, store_history=False)
        kept = [name for name in values if isinstance(held.get(name), FunctionType)]
        held.update({name: values[name] for name in kept})
        self.recorder.body_ran(None if result.success else 1, kept, part.recorded)
        if kept:
            tell(
                f"{', '.join(sorted(kept))}: the notebook keeps its value; the function of this name is the job's alone"
            )
        if not result.success:
            tell("the experiment was submitted; in the notebook the cell failed as shown above", file=sys.stderr)
        return part.makes


DaylightMagics.dlsubmit.__doc__ = submit_parser().format_help()
DaylightMagics.dlrun.__doc__ = run_parser().format_help()
DaylightMagics.dl.__doc__ = HELP


def load(shell: Any) -> None:
    """Register the magics in IPython, and record executed cells from now on."""
    if getattr(shell, _ATTRIBUTE, None) is None:
        magics = DaylightMagics(shell)
        magics.recorder.register()
        shell.register_magics(magics)
        shell.set_hook("complete_command", complete_line, str_key="%dl")
        for magic in ("%%dlsubmit", "%dlsubmit", "%%dlrun"):
            shell.set_hook("complete_command", complete_submission, str_key=magic)
        shell.input_transformers_cleanup.insert(0, magic_first)
        shell.ast_transformers.append(magics.bind_first)
        setattr(shell, _ATTRIBUTE, magics)


def unload(shell: Any) -> None:
    """Unregister the callbacks by which the kernel records executed cells."""
    magics = getattr(shell, _ATTRIBUTE, None)
    if magics is not None:
        magics.recorder.unregister()
        shell.input_transformers_cleanup.remove(magic_first)
        shell.ast_transformers.remove(magics.bind_first)
        setattr(shell, _ATTRIBUTE, None)


def _client() -> Client:
    if discovery.find() is None:
        tell("starting Daylight's service; it goes on by itself and ends when it is idle")
    return Client.connect()


def _captured(checked: PreparedSubmission, overview: Overview) -> list[str]:
    config = overview.experiment.config
    slots = f"{config.slot_range} slot{'' if config.slots == 1 else 's'}"
    backend = "" if config.backend == "auto" else f"{config.backend} on "
    notes = [f"note: {each}" for each in checked.passing]
    summary = checked.capture.relocate(checked.definition.summary)
    return [checked.capture.described, f"{summary} -> {backend}{slots}", *notes]
