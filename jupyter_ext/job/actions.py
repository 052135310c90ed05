"""Define the methods of a job that change an experiment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from jupyter_ext.job.base import JobBase
from kernel_backend.commands.checkpoints import listed
from kernel_backend.commands.register.verbs import register
from kernel_backend.model.checkpoints import CheckpointSelector
from kernel_backend.model.ids import Reference
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.record import checked
from kernel_backend.model.register.records import ModelVersion
from kernel_backend.spec.slots import parse_slots
from kernel_backend.text import already_text, new_notes
from kernel_backend.text.terminal import tell


class JobActions(JobBase):
    """Methods of a job that change an experiment's state and labels."""

    def rename(self, name: str) -> Self:
        """Rename the experiment.

        Parameters
        ----------
        name : str
            The new name.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.label(self.number, checked(LabelEdit, name=name))
        return self

    def note(self, text: str) -> Self:
        """Replace the note of the experiment.

        Parameters
        ----------
        text : str
            The new note; an empty text removes it.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.label(self.number, checked(LabelEdit, note=text))
        return self

    def register(
        self, name: str, trial: int | None = None, step: int | None = None, *, latest: bool = False, note: str = ""
    ) -> ModelVersion:
        """Register a checkpoint as the next version of a model; it is kept as long as it is registered.

        Parameters
        ----------
        name : str
            The model, such as ``memes``, or ``vision/memes`` for one of a group.
        trial : int, optional
            Number of the trial; by default the one with the best checkpoint.
        step : int, optional
            Step of the checkpoint; by default the best by the experiment's metric.
        latest : bool, optional
            Whether to take the newest checkpoint instead.
        note : str, optional
            What it is.

        Returns
        -------
        ModelVersion
            The version: number, experiment, trial, checkpoint and metrics. A checkpoint that is a version of the model
            already makes no second one.

        Raises
        ------
        NotFound
            There is no such checkpoint.
        Conflict
            Other versions of the model count for another group.
        CheckpointDamaged
            A byte of the checkpoint has changed.
        """
        which = CheckpointSelector(latest=latest, best=step is None and not latest, step=step)
        found = listed(self._client, Reference(self.number, trial))
        return register(self._client, found, name, which, note).version

    def tag(self, *add: str, remove: Iterable[str] = ()) -> Self:
        """Add tags to the experiment and remove others.

        Parameters
        ----------
        *add : str
            Tags to add.
        remove : iterable of str
            Tags to remove.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        InvalidRequest
            A tag is invalid.
        """
        self._client.label(self.number, LabelEdit(add_tags=add, remove_tags=tuple(remove)))
        return self

    def delete(self) -> Self:
        """Delete the experiment; `undelete` restores it within a day.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The experiment has not ended, or has a pinned checkpoint.
        """
        self._client.delete_experiment(self.number)
        return self

    def undelete(self) -> Self:
        """Restore the deleted experiment.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The experiment was deleted more than a day ago.
        """
        self._client.undelete(self.number)
        return self

    def stop(self) -> Self:
        """Stop the experiment for good; its checkpoints stay.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.stop(self.number)
        return self

    def pause(self) -> Self:
        """Pause the experiment: commit a checkpoint and release the slots.

        Returns
        -------
        Job
            This experiment.
        """
        self._client.pause(self.number)
        return self

    def resume(self, slots: int | str | None = None) -> Self:
        """Resume a paused experiment, and print how another number of slots affects reproducibility.

        Parameters
        ----------
        slots : int or str, optional
            New number of slots, or a range such as ``"1..4"``; by default as before.

        Returns
        -------
        Job
            This experiment.
        """
        before = self.overview
        after = self._client.resume(self.number, *(() if slots is None else parse_slots(str(slots))))
        for note in [*already_text(before), *new_notes(before, after)]:
            tell(f"note: {note}")
        return self

    def move(self, pool: str) -> Self:
        """Move the experiment to another pool; running gangs continue there from a checkpoint.

        Parameters
        ----------
        pool : str
            Name of the pool; or several, as ``"gpu,cloud"``: the first of them that can start it runs it.

        Returns
        -------
        Job
            This experiment.

        Raises
        ------
        Conflict
            The experiment has ended, or the pool cannot be used now.
        ImpossibleAsk
            The pool can never have as many free slots as the experiment requests.
        """
        before = self.overview
        for note in new_notes(before, self._client.move(self.number, pool)):
            tell(f"note: {note}")
        return self
