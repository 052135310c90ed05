"""Start one rank of an attempt: `python -m kernel_backend.runner <attempt folder>`, run by its launcher.

The exit code is 0 when the training has finished, 85 when the rank committed a checkpoint and gave up its slot on
request, and 1 when it failed. After a failure, `failure-<rank>.json` in the attempt folder says why.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kernel_backend.parent_death import die_with

if TYPE_CHECKING:
    from kernel_backend.runner.context import FormTraining

LEAVE_S = 300.0  # time for the user's threads and exit handlers after the training


def main(folder: Path) -> int:
    """Run the rank that the environment variable RANK names, and return its exit code.

    `folder` is the attempt's folder, which holds its launch spec `job.json`. Handlers for signals and for the
    launcher's instructions are installed before torch is imported, because that import may take seconds.
    """
    from kernel_backend.model.launch.launch_spec import read_job
    from kernel_backend.runner.past import replay

    rank = int(os.environ.get("RANK", "0"))
    job = read_job((folder / "job.json").read_bytes())
    replay.enter(job, rank, folder)  # before the first thread
    # The parent is the launcher, or the forkserver, which kills the ranks of a launcher that died.
    die_with(os.getppid())  # after a change of namespaces, which may undo it

    from kernel_backend.runner.ipc import Instructions, Spool

    instructions = Instructions()
    instructions.listen()

    from kernel_backend.runner.progress import Progress, show_stacks_on_demand

    show_stacks_on_demand(folder, rank)
    progress = Progress(folder, rank)
    progress.tick("starting", 0)

    from kernel_backend.runner import failure
    from kernel_backend.runner.definition.load import read_snapshot

    trainings: list[FormTraining] = []
    try:
        from kernel_backend.runner.rank_process import work

        progress.tick("starting", 0)
        spool = Spool(folder / "spool.jsonl", rank)
        return work(job, instructions, spool, progress, watch=trainings.append)
    except BaseException as error:
        step = trainings[0].step + 1 if trainings else None
        code = Path(job.code)
        try:
            log = folder / f"rank-{rank}.log"
            described = failure.describe(error, rank, step, code, Path(job.cwd), read_snapshot(code), log)
            print(described.traceback, file=sys.stderr, end="")
            failure.write(described, folder)
        except Exception:  # a full disk, or an error whose description fails: the exit code still reports it
            traceback.print_exc()
        return 1


def leave(status: int) -> NoReturn:
    """End the process with exit code `status`, without the interpreter's teardown.

    Unless `status` is 1 (a failure), the user's threads and exit handlers first get up to `LEAVE_S` seconds to finish.
    The teardown is skipped because unloading all modules is slow, and the next trial waits for the slots of this
    process.
    """
    from kernel_backend.runner.process_end import end_process, flush_output

    flush_output()
    if status == 1:  # a backend that has lost a rank may wait for it in an exit handler
        os._exit(status)
    end_process(status, LEAVE_S)


if __name__ == "__main__":
    leave(main(Path(sys.argv[1])))
