"""Rehearse a restart from a checkpoint in a separate process: `python -m kernel_backend.runner.rehearse FOLDER`.

FOLDER holds the launch spec of the restart, `job.json`, with its checkpoint in `checkpoints`, and in `rehearsal.json`
the first and last step to compare, and the folder of the training's attempt. The result is written to `digests.json`
there.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kernel_backend.parent_death import die_with
from kernel_backend.runner.forms.script.rehearsal.result import Result

PRIORITY = 10  # `nice` value; at a lower priority it would never run on a busy machine


def main(folder: Path) -> NoReturn:
    """Resume the user's program from the job's checkpoint, run it to the last step to compare, and exit.

    The digests of the program's variables at each of these steps are written to `digests.json` in the folder.
    """
    die_with(os.getppid())
    os.nice(PRIORITY)
    from kernel_backend.model.launch.launch_spec import read_job
    from kernel_backend.runner.past import replay

    result = Result(folder / "digests.json")
    asked = json.loads((folder / "rehearsal.json").read_text())
    job = read_job((folder / "job.json").read_bytes())
    (folder / "scratch").mkdir()
    try:
        replay.rehearse(job, Path(asked["attempt"]), folder / "scratch")  # before the first thread
    except OSError as error:
        result.leave({"refused": f"nothing here would keep it from changing files: {error}"})

    from kernel_backend.runner import rank_process
    from kernel_backend.runner.definition.trackers import silence_trackers
    from kernel_backend.runner.forms.script.rehearsal.recorder import Recorder
    from kernel_backend.runner.forms.script.rehearsal.sandbox import confine, unfit
    from kernel_backend.runner.forms.script.state.tombstones import NotSaved
    from kernel_backend.runner.forms.script.training import ScriptTraining
    from kernel_backend.runner.ipc import Instructions, Spool
    from kernel_backend.runner.progress import Progress

    os.chdir(job.cwd)
    job = job.model_copy(update={"checkpoints": str(folder / "checkpoints")})
    recorded: list[Recorder] = []

    def leave(**more: Any) -> NoReturn:
        result.leave({"digests": recorded[0].steps if recorded else {}, **more})

    def watch(training: Any) -> None:
        if not isinstance(training, ScriptTraining):
            leave(refused="it is no program with a training loop of its own")
        if training.resumed_from != job.resume_from:
            leave(refused=f"checkpoint {job.resume_from} could not be read")
        training.rehearsal.close()
        training.saves = False  # it runs for a few steps only, so that checkpoints are useless
        training.files.record = training.past = None  # those of the training
        recorder = training.recorder
        recorder.wanted = set(range(asked["first"], asked["last"] + 1))
        recorded.append(recorder)
        training.events.on_step.append(lambda step: leave() if step >= asked["last"] else None)
        confine(lambda text: leave(refused=text))

    silence_trackers()
    try:
        rank_process.work(job, Instructions(), Spool(folder / "spool.jsonl", 0), Progress(folder, 0), watch)
        leave(error=f"a restarted process ended before step {asked['last']}")
    except NotSaved as error:
        leave(error=str(error))
    except BaseException as error:
        traceback.print_exc()
        if why := unfit(error):
            leave(refused=why)
        leave(error=f"{type(error).__name__}: {error}".splitlines()[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
