"""Render the parts of a command's answer (table, text, log, ...) in a terminal, or the whole answer as JSON."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kernel_backend.cli.follow import wait
from kernel_backend.cli.live import show_frames
from kernel_backend.cli.output import ask, print_json, print_table, say, tell
from kernel_backend.client import Client
from kernel_backend.commands.answer import (
    Answer,
    Bound,
    Card,
    Comparison,
    File,
    Frames,
    Log,
    Shown,
    Started,
    Table,
    Text,
    Waited,
)
from kernel_backend.model.facts import known
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.throughput import throughput_of
from kernel_backend.printable import harmless
from kernel_backend.text import (
    attempt_lines,
    failure_text,
    guarantee_text,
    head_text,
    params_text,
    progress_line,
    result_text,
    search_text,
    throughput_text,
    without_values,
)
from kernel_backend.text.compare import diff_lines
from kernel_backend.text.labels import label_lines
from kernel_backend.text.next_steps import next_text
from kernel_backend.text.provenance import provenance_line
from kernel_backend.text.terminal import hand_over


class Terminal:
    """Terminal in which a command runs: answers go to standard output, everything else to standard error."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._json = getattr(arguments, "json", False)
        self._quiet = bool(getattr(arguments, "quiet", False))

    def show(self, answer: Answer) -> int:
        """Print all parts of an answer, or with `--json` its JSON body; print its notes, and return the exit code."""
        if self._json and answer.body is not None:
            print_json(answer.body)
        else:
            for each in answer.shown:
                _RENDERERS[type(each)](self, each)
        for note in answer.notes:
            say(note)
        return answer.code

    def say(self, text: str) -> None:
        """Print a message to standard error."""
        say(text)

    def note(self, text: str) -> None:
        """Print a note about an experiment to standard error; a notebook shows it on the experiment's card instead."""
        say(f"note: {text}")

    def agrees(self, question: str) -> bool:
        """Ask the user to confirm; return the answer, or True without asking if there is no terminal."""
        return ask(question)

    def waits(self, asked: bool | None) -> bool:
        """Return whether to wait for a submitted experiment: only if the command line has `--wait`."""
        return bool(asked)

    def wait(self, client: Client, overview: Overview, captured: Sequence[str], quiet: bool = False) -> Waited:
        """Show a progress bar or plain lines until the experiment has ended; return its overview and an exit code."""
        return Waited(*wait(client, overview, sys.stderr if self._json or self._quiet else sys.stdout))

    def table(self, table: Table) -> None:
        """Print a table, as aligned columns if the output is no terminal."""
        print_table(table.head, table.rows, table.empty, table.spare)

    def text(self, text: Text) -> None:
        """Print the answer's lines with control characters escaped."""
        for line in text.lines:
            tell(line)

    def file(self, file: File) -> None:
        """Print the content of a file unchanged; on a terminal, print Python with syntax highlighting."""
        if file.python and sys.stdout.isatty():
            from rich.console import Console
            from rich.syntax import Syntax

            Console().print(Syntax(harmless(file.text), "python", line_numbers=True, background_color="default"))
        else:
            hand_over(file.text)

    def log(self, log: Log) -> None:
        """Print the lines of a log as they arrive."""
        printed = False
        for line in log.lines:
            hand_over(line, log=True)
            printed = True
        if not printed and log.empty:
            say(log.empty)

    def frames(self, frames: Frames) -> None:
        """Show a live display: redrawn in place on a terminal, as lines elsewhere; return after an interrupt."""
        show_frames(frames)

    def comparison(self, found: Comparison) -> None:
        """Print the differences between two experiments, coloured on a terminal."""
        if not sys.stdout.isatty():
            tell("\n".join(diff_lines(found.diff)))
            return
        from rich.console import Console
        from rich.text import Text as Coloured

        colours = {"+": "green", "-": "red", "~": "yellow", "@": "dim", ".": "dim"}
        console = Console()
        for line in diff_lines(found.diff):
            detail = line.startswith(" " * 20)
            console.print(Coloured(harmless(line), colours.get(line.strip()[:1], "") if detail else ""))

    def card(self, card: Card) -> None:
        """Print the state of an experiment and its trials as lines (in a notebook this is a card)."""
        number, front = card.overview.experiment.number, card.overview.front
        facts = card.client.facts(number, front.index if front else 1)
        given = provenance_line(known(facts), card.client.source(number)[1])
        throughput = None
        if card.overview.experiment.config.uses_model and not card.overview.ended:
            throughput = throughput_of(card.overview, card.client.curves(number).curves, time.time())
        tell("\n".join(_card(card.overview, given, card.failures, throughput_text(throughput))))

    def started(self, started: Started) -> None:
        """Print one line about a new experiment, or with `--quiet` only its number."""
        experiment = started.overview.experiment
        tell(experiment.number if self._quiet else head_text(started.overview, time.time()))
        if started.hint:
            say(started.hint)

    def bound(self, found: Bound) -> None:
        """Print the table of a job's values."""
        self.table(found.table)


_RENDERERS: dict[type[Shown], Callable[[Terminal, Any], None]] = {
    Table: Terminal.table,
    Text: Terminal.text,
    File: Terminal.file,
    Log: Terminal.log,
    Frames: Terminal.frames,
    Comparison: Terminal.comparison,
    Card: Terminal.card,
    Started: Terminal.started,
    Bound: Terminal.bound,
}


def _card(overview: Overview, given: str, failures: bool, throughput: str) -> list[str]:
    """Return the lines that describe an experiment and its trials, with the messages of failures if `failures` is set.

    `given` is the line about the data that the training has read (see `provenance_line`); it is put among the others.
    `throughput` is how fast it goes, if that is known.
    """
    experiment = overview.experiment
    origin = experiment.rerun_of
    again = f"#{origin} again: daylight diff {origin} {experiment.number} compares them" if origin else ""
    searched = experiment.config.search is not None
    befell = [] if searched else attempt_lines(overview)
    reached = search_text(overview) if searched else result_text(overview)
    taken = next_text(overview, "daylight")
    said = [line for line in (reached, again, guarantee_text(overview), given, *befell, taken) if line]
    said = [*label_lines(experiment), *said]
    lines = [head_text(overview, time.time()), *(f"  {line}" for line in said)]
    best = [overview.front] if overview.front else []
    for trial in map(without_values, best) if searched else overview.trials:
        lines += [
            f"  {params_text(trial.params)}".rstrip(),
            f"  {progress_line(trial, experiment.config)}  {throughput}".rstrip(),
        ]
        if trial.failure and failures and trial.state == "failed":
            lines += [f"  {line}" for line in failure_text(trial.failure).splitlines()]
    lines += [f"  note: {warning}" for warning in overview.warnings]
    return [line for line in lines if line]
