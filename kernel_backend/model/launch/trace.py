"""Define traces of a running training by torch.profiler: the request, and the recording of each rank."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from kernel_backend.model.record import Record

MOST_STEPS, MOST_RANKS = 1000, 64
OPERATIONS = "trace-operations"  # artifact with the operations of all recorded ranks
SHOWN = 30  # operations of a rank, those that take longest


class TraceRequest(Record):
    """Body of `POST /api/experiments/N/trace`: how many steps to record with torch.profiler, and on which ranks."""

    trial: int | None = Field(None, ge=1)  # None: the experiment's only trial, or the best of a search
    steps: int = Field(10, ge=1, le=MOST_STEPS)
    ranks: tuple[int, ...] = Field((0,), min_length=1, max_length=MOST_RANKS)


class Trace(Record):
    """Request that ranks of an attempt record some steps with torch.profiler, kept until they have answered."""

    id: str
    steps: int
    ranks: tuple[int, ...]

    @property
    def instruction(self) -> str:
        """Return the instruction to the ranks with the request's id, the steps and the ranks: `trace 5f3a 10 0,3`."""
        return f"trace {self.id} {self.steps} {','.join(map(str, self.ranks))}"


class TracedOperation(Record):
    """Operation in the recorded steps of a rank: number of calls, and milliseconds without its inner operations."""

    name: str
    calls: int
    cpu_ms: float
    device_ms: float = 0.0


class RankTrace(Record):
    """Recording of a rank by torch.profiler: its first and last step, and its longest operations.

    If there is no recording, `problem` says why.
    """

    rank: int
    first: int = 0  # step
    last: int = 0
    operations: tuple[TracedOperation, ...] = ()
    problem: str = ""


def instructed(words: Sequence[str]) -> Trace | None:
    """Parse the words of an instruction to ranks; return the recording that it requests, None for other instructions.

    Examples
    --------
    >>> instructed("trace 5f3a 10 0,3".split()).ranks
    (0, 3)
    """
    match words:
        case ["trace", id, steps, ranks] if steps.isdigit() and all(each.isdigit() for each in ranks.split(",")):
            return Trace(id=id, steps=int(steps), ranks=tuple(map(int, ranks.split(","))))
    return None


def artifact_of(rank: int) -> str:
    """Return the name of the artifact that holds a rank's trace."""
    return f"trace-rank-{rank}.json"


def trace_file(id: str, rank: int) -> str:
    """Return the name of the file with a rank's trace in the attempt's folder; `id` is that of the trace request."""
    return f"trace-{id}-{rank}.json.gz"


def result_file(id: str, rank: int) -> str:
    """Return the name of the file with a rank's `RankTrace` in the attempt's folder; `id` is that of the request.

    The rank writes it after the trace itself, so that its existence means that the recording is complete.
    """
    return f"trace-{id}-{rank}.result"
