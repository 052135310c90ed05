"""Define kept allocations: jobs of a site's queue (such as Slurm's), or pods, that run a search's trials one by one."""

from __future__ import annotations

from kernel_backend.model.record import Record
from kernel_backend.model.search.records import Search

USUAL_S = 4 * 3600.0  # length of an allocation, unless --keep-allocation says another
SHORTEST_S = 600.0  # of an allocation: half of a shorter one would go by with saving checkpoints before its end


def allocation_length(search: Search | None, keeps: bool) -> float:
    """Return for how many seconds a search keeps an allocation: a job or pods in which its trials run one by one.

    Returns 0 if each gang of the search is a job of its own. `keeps` says whether the pool can keep allocations.

    Examples
    --------
    >>> allocation_length(Search(method="asha"), keeps=True)
    14400.0
    """
    if search is None or search.method == "single" or not keeps:
        return 0.0
    return USUAL_S if search.keep_allocation is None else search.keep_allocation


class HeldAllocation(Record):
    """Allocation that a search keeps between its trials: a job in a site's queue, such as Slurm's, or pods.

    The search runs its trials in it one after another. Until all nodes of the allocation have been granted, the search
    waits.
    """

    id: str
    pool: str
    experiment: int
    slots: int
    job: str = ""  # its id in the site's queue, or the name of its pods without their numbers
    running: bool = False  # its nodes are granted; else it waits for them
    ends: float | None = None  # time of its limit in seconds since the epoch; None while it is not known
    gang: str = ""  # the attempt that runs in it, or is about to
    idle_since: float | None = None  # time since which no gang has it
    closing: str = ""  # why it takes no more gangs; "" if it does
