"""Store artifacts that the user's code saves with `run.artifact`, and record them in the spool (on rank 0)."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.artifacts.outbox import Outbox
from kernel_backend.artifacts.write import ArtifactSource, keep, look, sweep
from kernel_backend.home import artifact_folder, attempt_folder
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Note
from kernel_backend.runner import opened_files
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.progress import Progress


class ArtifactWriter:
    """Callable that `run.artifact` uses on rank 0: stores a file as an artifact of the trial.

    Artifacts are stored in the trial's folder and recorded in the spool, the file that the launcher reads. On nodes
    that cannot access the trial's folder, they go to a local outbox, from which the launcher sends them to the service
    and records them.
    """

    def __init__(self, job: LaunchSpec, spool: Spool, progress: Progress) -> None:
        home = Path(job.home)
        self._folder = artifact_folder(home, job.experiment, job.trial)
        self._outbox = Outbox(attempt_folder(home, job.id)) if job.staged else None
        self._spool, self._progress = spool, progress
        sweep(self._folder)

    def __call__(self, name: str, path: Path) -> None:
        """Store the file at `path` as artifact `name` and record it in the spool.

        A failed write, as on a full disk, becomes a warning to the user. Raises InvalidRequest if the name or the path
        is not valid for an artifact.
        """
        with opened_files.unheard():  # the read is not recorded: the training does not depend on an artifact
            source = look(name, path)
            try:
                self._keep(source)
            except OSError as error:
                text = f"artifact {source.name} of step {self._progress.step} was not kept: {error.strerror or error}"
                self._spool.say(Note(level="warning", text=text))

    def _keep(self, source: ArtifactSource) -> None:
        if self._outbox is not None:
            self._outbox.put(source, self._progress.step)
        else:
            self._spool.say(keep(source, self._folder).record(source, self._progress.step))
