"""What the loader has delivered in the first epoch, over all ranks and attempts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernel_backend.model.code import code_id, is_code
from kernel_backend.model.facts import Delivered
from kernel_backend.model.reports import Fact
from kernel_backend.runner.data import Batch
from kernel_backend.runner.data.seen import Seen
from kernel_backend.runner.link import Spool
from kernel_backend.runner.ranks import Ranks


class Tally:
    """Adds up what the samples were that were trained on; every method is called by all ranks, at the same step."""

    def __init__(self, ranks: Ranks, spool: Spool, seed: int, code: str) -> None:
        """`code` is the snapshot's `code_id`: samples that are augmented follow from it, and from the seed."""
        self._ranks, self._spool, self._seed, self._code = ranks, spool, seed, code
        self._own = Seen()
        self._before: Seen | None = Seen()  # in earlier attempts, all ranks; None where nobody knows
        self._over = False  # the first epoch is

    def take(self, shares: Iterable[Batch]) -> None:
        """Add the batches of a step. With the last one of the first epoch the sum is said."""
        if self._over:
            return
        for each in shares:
            self._own = self._own.and_(each.seen)
            self._over = each.last
        if self._over:
            self._say(whole=True)

    def finish(self) -> None:
        """The training has ended: say the sum if the first epoch has not."""
        if not self._over:
            self._say(whole=False)

    def state(self) -> dict[str, Any]:
        """What a checkpoint at this step keeps, as JSON."""
        seen = None if self._over else self._sum()
        # Numbers of 64 bits are not the same to everybody who reads JSON.
        return {"over": self._over, "seen": seen and [seen.samples, f"{seen.digest:x}", seen.uncovered]}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from the state of a checkpoint; None of one from before there was such a sum."""
        self._over = state is not None and state["over"]
        seen = state["seen"] if state else None
        self._before = Seen(seen[0], int(seen[1], 16), seen[2]) if seen else None

    def _sum(self) -> Seen | None:
        everyones = self._ranks.all_gather_object(self._own) if self._ranks.size > 1 else [self._own]
        found = self._before
        for each in everyones:
            found = found and found.and_(each)
        return found

    def _say(self, whole: bool) -> None:
        seen = self._sum()
        if seen is None:
            return
        fact = Delivered(
            samples=seen.samples,
            digest=f"{seen.digest:016x}",
            seed=self._seed,
            code=self._code,
            whole=whole,
            uncovered=seen.uncovered,
        )
        self._spool.say(Fact(name="delivered", value=fact.to_json()))


def code_of(folder: Path) -> str:
    """The `code_id` of a snapshot's files in a folder, as they are before anything of it is imported."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    # Another rank may have imported some of it already.
    code = {name: path for name, path in names.items() if is_code(name) and "__pycache__" not in path.parts}
    return code_id({name: path.read_bytes() for name, path in code.items()})
