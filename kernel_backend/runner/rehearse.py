"""Rehearse a restart from a checkpoint in a separate process: `python -m kernel_backend.runner.rehearse FOLDER`.

FOLDER holds the launch spec `job.json`, which names the checkpoint, and `steps.json`, the first and last step to
compare. The result is written to `digests.json` in FOLDER.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kernel_backend.parent_death import die_with


def main(folder: Path) -> NoReturn:
    """Resume the user's program from the job's checkpoint, run it to the last step to compare, and exit.

    The digests of the program's variables at each of these steps are written to `digests.json` in the folder.
    """
    die_with(os.getppid())
    from kernel_backend.model.launch.launch_spec import read_job
    from kernel_backend.runner import rank_process
    from kernel_backend.runner.definition.trackers import silence_trackers
    from kernel_backend.runner.forms.script.rehearsal.recorder import Recorder
    from kernel_backend.runner.forms.script.rehearsal.result import Result
    from kernel_backend.runner.forms.script.rehearsal.sandbox import confine, copy_folder
    from kernel_backend.runner.forms.script.state.tombstones import NotSaved
    from kernel_backend.runner.forms.script.training import ScriptTraining
    from kernel_backend.runner.ipc import Instructions, Spool
    from kernel_backend.runner.progress import Progress

    first, last = json.loads((folder / "steps.json").read_text())
    job = read_job((folder / "job.json").read_bytes())
    copy_folder(Path(job.cwd), folder / "work")
    (folder / "tmp").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder / "work")
    job = job.model_copy(update={"cwd": str(folder / "work")})
    recorded: list[Recorder] = []

    result = Result(folder / "digests.json")

    def leave(**more: Any) -> NoReturn:
        result.leave({"digests": recorded[0].steps if recorded else {}, **more})

    def watch(training: Any) -> None:
        if not isinstance(training, ScriptTraining):
            leave(refused="it is no program with a training loop of its own")
        training.rehearsal.close()
        training.saves = False  # it runs for a few steps only, so that checkpoints are useless
        training.files.record = training.past = None  # those of the training
        recorder = training.recorder
        recorder.wanted = set(range(first, last + 1))
        recorded.append(recorder)
        training.events.on_step.append(lambda step: leave() if step >= last else None)
        confine(folder, lambda text: leave(refused=text))

    silence_trackers()
    try:
        rank_process.work(job, Instructions(), Spool(folder / "spool.jsonl", 0), Progress(folder, 0), watch)
        leave(error=f"a restarted process ended before step {last}")
    except NotSaved as error:
        leave(error=str(error))
    except BaseException as error:
        traceback.print_exc()
        leave(error=f"{type(error).__name__}: {error}".splitlines()[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
