"""Refuse submissions that can never run, such as those that need more GPUs than any node has."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from kernel_backend.engines.pools import PoolEngines
from kernel_backend.errors import Conflict, Forbidden, ImpossibleAsk, InvalidRequest, TooLarge
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.launch.staging import staging_problem
from kernel_backend.model.resources import CLOSED, LOCAL
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.registry import function_of, method_of
from kernel_backend.model.search.space import Space
from kernel_backend.model.values import nearest
from kernel_backend.scheduler.explain.feasibility import impossible
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.search import grid
from kernel_backend.search.samplers.optuna import check_installed
from kernel_backend.service.state.requests import draft_request, pools_of
from kernel_backend.spec.config_text import duration_word

LARGEST_SUBMISSION = 2**19  # bytes of JSON, without the snapshot


def check_searcher(search: Search, space: Space) -> None:
    """Raise InvalidRequest for a search whose searcher (which proposes and prunes trials) cannot be created.

    The same holds for a searcher that would fail at its first proposal. Examples of both are a grid with too many
    points, and a method or sampler whose package is not installed.
    """
    method = method_of(search.method)
    if method.space == "counted":
        grid.count(space)  # raises InvalidRequest for too many combinations
    function_of(method, method.factory)
    check_installed(search.samples_by)


def group_of(who: Person, config: Config, taken: Container[str] = ()) -> str:
    """Return the group whose quota the slots count for: the one that `config` names, else the user's default group.

    A user without groups is treated as the only member of a group with their own name. Raises Forbidden for a group
    that the user is not in, and for a user without groups whose name is in `taken`, the names of existing groups.
    """
    if not who.groups and who.name in taken:
        raise Forbidden(
            f"you are in no group, and there is a group {who.name}, which you are not in: "
            "the hub's admins put you into one"
        )
    theirs = who.groups or (who.name,)  # a user without a group is a group of one
    if config.group is None or config.group in theirs:
        return config.group or who.group
    near = nearest(config.group, theirs)
    raise Forbidden(f"--group {config.group}: you are not in that group{near}; you are in {', '.join(theirs)}")


def check_size(submission: Submission) -> None:
    """Raise TooLarge for texts and values, besides those of the snapshot, that lists of experiments cannot repeat."""
    size = len(submission.model_dump_json())
    if size > LARGEST_SUBMISSION:
        raise TooLarge(
            f"this submission has {size // 2**10} KiB of settings and hyperparameters, of at most "
            f"{LARGEST_SUBMISSION // 2**10}: read large values from a file",
            limit=LARGEST_SUBMISSION,
        )


def check_open(config: Config, cluster: ClusterState, engines: PoolEngines) -> None:
    """Raise Conflict for an experiment that may train in the local pool, if that is closed."""
    if engines.closed and LOCAL in pools_of(config, cluster):
        others = [each.name for each in engines.statuses_of_pools() if each.name != LOCAL]
        said = f"--pool {LOCAL}" if LOCAL in config.pools else "name a pool by --pool"
        raise Conflict(f"{said}: {CLOSED}; there {_are(others) if others else 'is no other pool'}")


def check_here(config: Config, settings: Mapping[str, PoolSettings | None]) -> None:
    """Raise InvalidRequest for an experiment that needs code of its user to run on the service's machine.

    `settings` are those of its pools. Nodes that do not see Daylight's home build locked environments themselves.
    """
    if config.search is not None and config.search.source is not None:
        raise InvalidRequest(f"--search custom: {CLOSED}, where the class would run; choose another method")
    shared = [pool for pool, each in settings.items() if each is None or each.shared]
    if config.env == "locked" and shared:
        raise InvalidRequest(f"--env locked: {CLOSED}, where that of pool {shared[0]} is built; use --env current")


def check_possible(cluster: ClusterState, config: Config, owner: str, group: str) -> None:
    """Raise ImpossibleAsk for a gang that is too large for every one of its pools, or for the user's or group's quota.

    Raises InvalidRequest for an unknown pool, and Conflict for pools that cannot be used now and whose nodes have never
    been seen.
    """
    wanted, pools = pools_of(config, cluster), {node.pool for node in cluster.nodes.values()}
    known = pools | cluster.closed_pools.keys()
    for pool in wanted if known else ():
        if pool not in known:
            there = f"there {_are(sorted(known))}"
            raise InvalidRequest(f"--pool {pool}: there is no such pool{nearest(pool, known)}; {there}")
    if not pools & set(wanted):  # else it waits until one of them can be used again
        for pool in wanted:
            if pool in cluster.closed_pools:
                raise Conflict(f"--pool {pool}: {cluster.closed_pools[pool]}")
    never = impossible(cluster, draft_request(config, owner, group, wanted))
    if never is not None:
        way_out = f" (--slots {never.largest})" if never.largest else ""
        asked = config.least_slots or config.slots
        raise ImpossibleAsk(never.reason.removesuffix(".") + way_out, asked=asked, largest=never.largest)


def check_elastic(config: Config, refusal: str) -> None:
    """Raise InvalidRequest for an elastic training with options that contradict a changing number of slots.

    A training is elastic if a range of slots is requested. `refusal` is the reason why its pools can have no elastic
    gangs; "" if they can.
    """
    if config.least_slots is None:
        return
    flag = f"--slots {config.slot_range}"
    if config.least_slots > config.slots:
        raise InvalidRequest(f"{flag}: the least number of slots comes first")
    conflicts = {
        f"--pool {config.pool}": (bool(refusal), refusal),
        f"--search {config.search.method if config.search else ''}": (
            config.search is not None,
            "a search uses free slots for further trials",
        ),
        "--per-slot-batch": (config.per_slot_batch, "the batch would change with the number of slots"),
        "--batch-size auto": (
            config.auto_batch is not None and config.logical_workers is None,
            "the batch that fits depends on the number of slots, unless --logical-workers is given",
        ),
        "--max-time": (
            config.max_time is not None,
            "it counts from the start of an attempt, and each change begins one",
        ),
    }
    for other, (given, reason) in conflicts.items():
        if given:
            raise InvalidRequest(f"{flag} and {other} exclude each other: {reason}. Write --slots N, a number")


def check_staging(pool: str, settings: PoolSettings | None, checkpoints: str) -> None:
    """Raise InvalidRequest if a training needs files on the service's disk that the nodes of a pool cannot read.

    `settings` are those of the pool (None for the local pool); `checkpoints` is the place of the checkpoints.
    """
    if settings is not None and not settings.shared and (problem := staging_problem(checkpoints)):
        raise InvalidRequest(f"--pool {pool}: {problem}")


def check_keeping(config: Config, pool: str, settings: PoolSettings | None, keeps: bool) -> None:
    """Raise InvalidRequest if `--keep-allocation` is set for a search, and its pool does not support that.

    With that option a search keeps its jobs or pods between trials. `keeps` is True if the pool's engine supports it.
    """
    if keeps or config.search is None or not config.search.keep_allocation:
        return
    if settings is None:
        reason = f"trials in pool {pool} wait in no queue of a site"
    elif not settings.shared:
        reason = f"the nodes of pool {pool} do not see Daylight's home"
    else:
        reason = f"gangs in pool {pool} are their owners' own jobs, one for each trial"
    raise InvalidRequest(f"--keep-allocation {duration_word(config.search.keep_allocation)}: {reason}; leave it out")


def _are(names: Sequence[str]) -> str:
    return f"is {names[0]}" if len(names) == 1 else f"are {', '.join(names)}"


def check_workers(config: Config) -> None:
    """Raise InvalidRequest for more slots than logical workers, or for `--rng stream` with logical workers."""
    slots = config.slots
    if config.logical_workers is not None and slots > config.logical_workers:
        raise InvalidRequest(
            f"{slots} slots asked, and --logical-workers {config.logical_workers}: a slot beyond them has nothing to do"
        )
    if config.logical_workers is not None and config.rng == "stream":
        raise InvalidRequest(
            "--rng stream and --logical-workers exclude each other: a process has one stream of random numbers, and "
            "logical workers may move from one process to another"
        )
