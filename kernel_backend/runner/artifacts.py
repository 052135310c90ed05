"""Store artifacts that a definition saves with `run.artifact`, and record them in the spool (rank 0)."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.artifacts.write import keep, look, sweep
from kernel_backend.home import artifact_folder
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import ArtifactSaved, Note
from kernel_backend.runner import opened_files
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.progress import Progress


class ArtifactWriter:
    """Callable behind `run.artifact` on rank 0: stores artifacts in the trial's folder and reports them."""

    def __init__(self, job: LaunchSpec, spool: Spool, progress: Progress) -> None:
        self._folder = artifact_folder(Path(job.home), job.experiment, job.trial)
        self._spool, self._progress = spool, progress
        self._unseen = job.staged  # the service would not see the file
        sweep(self._folder)

    def __call__(self, name: str, path: Path) -> None:
        """Store an artifact and record it in the spool; a failed write, as on a full disk, becomes a warning.

        Raises InvalidRequest if the name or the path is not valid for an artifact.
        """
        with opened_files.unheard():  # an artifact is no file that the training depends on
            source = look(name, path)
            if self._unseen:
                text = f"artifact {source.name} was not kept: nodes of this pool do not see the service's files"
                self._spool.say(Note(level="warning", text=text))
                return
            try:
                written = keep(source, self._folder)
            except OSError as error:
                text = f"artifact {source.name} of step {self._progress.step} was not kept: {error.strerror or error}"
                self._spool.say(Note(level="warning", text=text))
                return
        self._spool.say(
            ArtifactSaved(
                name=source.name,
                size=written.size,
                digest=written.digest,
                media=source.media,
                file=source.file,
                step=self._progress.step,
            )
        )
