"""What can never run is refused when it is submitted."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.errors import Forbidden, ImpossibleAsk, InvalidRequest
from kernel_backend.model.custom import check_class
from kernel_backend.model.experiment import Config
from kernel_backend.model.people import Person
from kernel_backend.model.resources import Node
from kernel_backend.model.search import Search
from kernel_backend.model.space import Space
from kernel_backend.model.values import nearest
from kernel_backend.scheduler.placement import largest_gang
from kernel_backend.search import grid
from kernel_backend.search.optuna import check_installed


def check_searcher(search: Search, space: Space, source: str) -> None:
    """Refuse what would only show when the searcher is made, or asked for the first time."""
    if search.method == "grid":
        grid.points(space)  # more than anybody could train are refused here
    if search.method == "custom" and search.source is not None:
        check_class(source, search.source)
    check_installed(search.sampler or search.method)


def group_of(who: Person, config: Config) -> str:
    """For which group slots are asked; raises Forbidden for one that is not theirs, with the nearest that is."""
    theirs = who.groups or (who.name,)  # of whoever is in none there is a group of one
    if config.group is None or config.group in theirs:
        return config.group or who.group
    near = nearest(config.group, theirs)
    raise Forbidden(f"--group {config.group}: you are not in that group{near}; you are in {', '.join(theirs)}")


def check_size(config: Config, nodes: Sequence[Node]) -> None:
    """Raise ImpossibleAsk for a gang that no node can hold, and InvalidRequest for slots with nothing to do."""
    slots, largest = config.slots, largest_gang(nodes)
    if slots > largest:
        there = ", ".join(f"{node.name} has {node.slots} {node.kind}" for node in nodes)
        raise ImpossibleAsk(
            f"{slots} slots asked, but {there}. Largest gang here: {largest} (--slots {largest})",
            asked=slots,
            largest=largest,
        )
    if config.logical_workers is not None and slots > config.logical_workers:
        raise InvalidRequest(
            f"{slots} slots asked, and --logical-workers {config.logical_workers}: a slot beyond them has nothing to do"
        )
    if config.logical_workers is not None and config.rng == "stream":
        raise InvalidRequest(
            "--rng stream and --logical-workers exclude each other: a process has one stream of random numbers, and "
            "logical workers may move from one process to another"
        )
