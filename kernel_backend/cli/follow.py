"""Wait for an experiment: show a progress bar on a terminal, else print a line for each validation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from kernel_backend.cli.output import say
from kernel_backend.client import Client
from kernel_backend.commands.answer import FAILED, INTERRUPTED, OK
from kernel_backend.model.experiment import Config
from kernel_backend.model.stream import Message
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.throughput import Throughput
from kernel_backend.printable import harmless
from kernel_backend.text import failure_text, message_line, newest_text, place_text, state_text, throughput_text
from kernel_backend.text.terminal import tell


class Display(Protocol):
    """Display of an experiment's progress on the terminal."""

    def show(self, overview: Overview) -> None:
        """Update the display to the experiment's current state."""

    def say(self, line: str) -> None:
        """Print a line that stays, unlike the displayed state, which is updated in place."""


def wait(client: Client, overview: Overview, stream: TextIO) -> tuple[Overview | None, int]:
    """Show an experiment's progress on `stream` until it has ended; return its overview and an exit code.

    It also returns if the training needs an action by the user. After an interrupt (Ctrl-C), return None and 130.
    """
    number = overview.experiment.number
    try:
        ended = follow(client, overview, stream)
    except KeyboardInterrupt:
        say(f"#{number} continues in the background; daylight stop {number} ends it")
        return None, INTERRUPTED
    if ended.stuck is not None:
        say(f"#{number} is paused: {ended.stuck.message}; then: daylight resume {number}")
        return ended, FAILED
    failed = ended.state == "failed"
    if failed:
        for failure in (trial.failure for trial in ended.trials if trial.failure):
            say(failure_text(failure))
        say(f"what its ranks printed: daylight logs {number}")
    return ended, FAILED if failed else OK


def follow(client: Client, overview: Overview, stream: TextIO) -> Overview:
    """Show an experiment's progress on `stream`, until it has ended or needs an action by the user.

    Returns its overview.
    """
    number = overview.experiment.number
    with _display(stream) as display:
        display.show(overview)
        if not overview.at_rest:
            for message in client.watch(overview.seq, number):
                before, overview = overview, overview.after(message)
                _tell(display, message, before, overview)
                if overview.at_rest:
                    break
        return client.experiment(number)


def _tell(display: Display, message: Message, before: Overview, after: Overview) -> None:
    line = message_line(message, before, after)
    if line:
        display.say(line)
    display.show(after)


class PlainDisplay:
    """Display for output that is no terminal: a line with the state at the beginning, then a line for each message."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._begun = stream, False

    def show(self, overview: Overview) -> None:
        """Print the state the first time only: later changes are printed as lines."""
        if not self._begun:
            self._begun = True
            self.say(f"#{overview.experiment.number}  {state_text(overview)}")

    def say(self, line: str) -> None:
        """Print a line immediately."""
        tell(line, self._stream)


class LiveDisplay:
    """Display for a terminal: a progress bar with the newest metrics, and above it a line for each validation."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.fields[epoch]}  {task.fields[metrics]}", markup=False)
        head = TextColumn("{task.description}", markup=False)
        self.progress = Progress(head, BarColumn(), text, TimeElapsedColumn(), console=Console(file=stream))
        self._task = self.progress.add_task("", total=None, epoch="", metrics="")

    def show(self, overview: Overview) -> None:
        """Move the progress bar to the experiment's state."""
        trial, config = overview.front, overview.experiment.config
        head = harmless(f"#{overview.experiment.number}  {state_text(overview)}")
        self.progress.update(self._task, description=head)
        if trial is not None:
            self.progress.update(
                self._task,
                total=trial.total_steps,
                completed=trial.step,
                metrics=harmless(newest_text(trial, config)),
            )
            self.progress.update(self._task, epoch=f"{place_text(trial, config)}  {self._throughput(config)}".rstrip())

    def _throughput(self, config: Config) -> str:
        """Return how fast rows are done; "" for trainings, and if it is not known yet."""
        (task,) = self.progress.tasks
        known = config.uses_model and task.speed and task.time_remaining is not None and not task.finished
        return throughput_text(Throughput(task.speed or 0.0, task.time_remaining or 0.0)) if known else ""

    def say(self, line: str) -> None:
        """Print a line above the progress bar."""
        self.progress.console.print(harmless(line), markup=False, highlight=False)


@contextmanager
def _display(stream: TextIO) -> Iterator[Display]:
    if not stream.isatty():
        yield PlainDisplay(stream)
        return
    live = LiveDisplay(stream)
    with live.progress:
        yield live
