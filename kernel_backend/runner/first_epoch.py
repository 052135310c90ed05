"""Record which samples were trained (as a digest) and which files were opened in a training's first epoch.

The record covers all ranks. It is saved in checkpoints, so that it covers earlier attempts of the trial too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kernel_backend.data.observed import LISTED, installed_in, is_data, observed, real_name
from kernel_backend.definition.code import code_id, is_code
from kernel_backend.home import stand_in_folder
from kernel_backend.inputs.node_cache import cache_root
from kernel_backend.model.facts import Delivered
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Fact, Note
from kernel_backend.runner import opened_files
from kernel_backend.runner.data import Batch
from kernel_backend.runner.data.sample_digest import SampleDigests
from kernel_backend.runner.definition.step_files import is_result
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.ranks.backends import Ranks

LAST_WORDS_S = 10.0  # for files that are being read when the training ends


class FirstEpoch:
    """Record of the samples and opened files of the first epoch, including those of the validation after it.

    All ranks call every method at the same step.
    """

    def __init__(self, job: LaunchSpec, ranks: Ranks, spool: Spool, code: str, validates: bool) -> None:
        """Set up an empty record of the first epoch.

        `code` is the `code_id`, a digest of the user's code: augmented samples depend on it and on the seed.
        `validates` means that a validation follows the epoch, whose opened files are recorded too.
        """
        self._job, self._ranks, self._spool, self._code, self._validates = job, ranks, spool, code, validates
        self._own = SampleDigests()
        self._before: SampleDigests | None = SampleDigests()  # of earlier attempts, over all ranks; None if unknown
        self._delivered = False  # all samples of the epoch were trained and reported
        self._over = False  # the files were reported, too
        self._writers = defaultdict[str, set[int]](set)  # ranks that opened each file for writing
        self._ended = threading.Event()  # set when the training has ended
        self._looking: threading.Thread | None = None

    def take(self, shares: Iterable[Batch]) -> None:
        """Add the sample digests of a step's shares, the parts of its batch, to the record.

        After the epoch's last batch, report the total digest and, if no validation follows, the opened files.
        """
        if self._delivered:
            return
        last = False
        for each in shares:
            self._own = self._own.and_(each.seen)
            last = each.last
        if last:
            self._say_delivered(whole=True)
            if not self._validates:
                self._say_files()

    def validated(self) -> None:
        """Report the opened files after the validation that follows the first epoch; do nothing after others."""
        if self._delivered and not self._over:
            self._say_files()

    def finish(self) -> None:
        """Report the samples and files recorded so far, unless done already; called when the training ends."""
        if not self._delivered:
            self._say_delivered(whole=False)
        if not self._over:
            self._say_files()

    def close(self) -> None:
        """Wait up to `LAST_WORDS_S` seconds for the digests of the opened files to be reported.

        The thread that computes them is requested to end early.
        """
        self._ended.set()
        if self._looking is not None:
            self._looking.join(LAST_WORDS_S)

    def state(self) -> dict[str, Any]:
        """Return the record of the first epoch up to this step as JSON, to be stored in a checkpoint."""
        if self._over:
            return {"over": True}
        seen, files = self._all_ranks()
        # Some JSON readers lose bits of 64-bit integers.
        words = seen and [seen.samples, f"{seen.digest:x}", seen.uncovered]
        return {"over": False, "delivered": self._delivered, "seen": words, "files": files[:LISTED]}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue from the record in a checkpoint; `state` is None if an older version saved that checkpoint."""
        self._over = state is not None and state["over"]
        self._delivered = self._over or bool(state and state.get("delivered"))
        seen = state and state.get("seen")
        self._before = SampleDigests(seen[0], int(seen[1], 16), seen[2]) if seen else None
        if self._over:
            opened_files.stop()
        elif state and self._ranks.rank == 0:
            opened_files.add(state["files"])

    def _all_ranks(self) -> tuple[SampleDigests | None, list[str]]:
        """Exchange the records of all ranks; return the digest of all samples and the sorted paths of opened files.

        The digest is None if that of an earlier attempt is unknown. On ranks other than 0, the paths are those of this
        rank alone.
        """
        mine = self._own, opened_files.heard(), opened_files.made()
        found = self._before
        records = self._ranks.all_gather_object(mine) if self._ranks.size > 1 else [mine]
        for rank, (seen, files, made) in enumerate(records):
            found = found and found.and_(seen)
            if self._ranks.rank == 0:
                opened_files.add(files)
                for path in made:
                    self._writers[path].add(rank)
        return found, opened_files.all_opened()

    def _say_delivered(self, whole: bool) -> None:
        seen, _ = self._all_ranks()
        self._delivered = True
        if self._ranks.rank == 0 and seen is not None and (seen.samples or seen.uncovered):
            fact = Delivered(
                samples=seen.samples,
                digest=f"{seen.digest:016x}",
                seed=self._job.config.seed,
                code=self._code,
                whole=whole,
                uncovered=seen.uncovered,
            )
            self._spool.say(Fact(name="delivered", value=fact.to_json()))

    def _say_files(self) -> None:
        _, files = self._all_ranks()
        self._over = True
        opened_files.stop()
        if self._ranks.rank == 0:
            if text := several_writers(self._writers, os.getcwd()):
                self._spool.say(Note(level="warning", text=text))
            self._looking = threading.Thread(target=self._look, args=(files,), name="observed files", daemon=True)
            self._looking.start()

    def _look(self, files: list[str]) -> None:
        """Compute the digests of the opened files and report them; runs in a thread so that the training goes on."""
        found = observed(files, Path(self._job.home), hurry=self._ended.is_set, overlay=_overlay(self._job))
        self._spool.say(Fact(name="observed", value=found.to_json()))


def several_writers(writers: Mapping[str, Collection[int]], cwd: str) -> str:
    """Return a warning about files in the working folder `cwd` that several ranks have written; "" if there are none.

    `writers` has the ranks that opened each file for writing, by path.
    """
    found = [
        os.path.relpath(path, cwd)
        for path, ranks in sorted(writers.items())
        if len(ranks) > 1 and path.startswith(f"{cwd}/") and is_result(path, cwd, ()) and not path.endswith(".lock")
    ]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return (
        f"{found[0]}{more} was written by {len(writers[os.path.join(cwd, found[0])])} ranks at once, as a cell's top "
        "level, train_data, model and the like run on every rank: write it in prepare(), which runs once, or take rank "
        "as an argument and write where it is 0"
    )


def code_of(folder: Path) -> str:
    """Return the `code_id` (a digest) of the code files in a folder; call it before any of them is imported."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    # Another rank may have imported some files already, and so compiled them.
    code = {name: path for name, path in names.items() if is_code(name) and "__pycache__" not in path.parts}
    return code_id({name: path.read_bytes() for name, path in code.items()})


def watch_files(job: LaunchSpec) -> None:
    """Start recording the files that this process opens, except Daylight's files of this job and installed packages."""
    ours = tuple(os.path.realpath(each) for each in (job.code, job.home, job.checkpoints))
    attempt = str(Path(job.code).parent)
    inputs = str(cache_root(os.environ))  # declared with their versions
    overlay = _overlay(job)
    mapped = [
        os.path.join(real_name(os.path.realpath(job.cwd), overlay), each[2:]) for each in job.inputs if "/" in each
    ]
    ours = (*ours, job.code, job.home, job.checkpoints, attempt, inputs, *mapped, *installed_in(sys.path))
    opened_files.watch(partial(_is_data, overlay=overlay, ours=ours))


def _is_data(path: str, overlay: str, ours: tuple[str, ...]) -> bool:  # must be picklable for spawned loader workers
    return is_data(real_name(path, overlay), ours)


def _overlay(job: LaunchSpec) -> str:
    """Return the real path of the trial's overlay folder, which stands in for the working folder.

    Files that are opened in the overlay are recorded under their paths in the working folder.
    """
    return os.path.realpath(stand_in_folder(Path(job.home), job.experiment, job.trial))
