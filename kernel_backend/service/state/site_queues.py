"""Limit how many gangs wait at once in the external queue of a pool, such as Slurm's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kernel_backend.engines.pools import PoolEngines
from kernel_backend.model.cluster.site_load import SiteLoad
from kernel_backend.model.states import AttemptState
from kernel_backend.scheduler.decisions import Start
from kernel_backend.service.state.site_loads import SiteLoads
from kernel_backend.service.state.store_cache import StoreCache


class PoolStates(NamedTuple):
    """State of each pool as a whole, by name of the pool."""

    closed: Mapping[str, str] = MappingProxyType({})  # why no gang is started there now
    limits: Mapping[str, str] = MappingProxyType({})  # what limits it to fewer slots than its nodes offer
    loads: Mapping[str, SiteLoad] = MappingProxyType({})  # what others use there, if its site chooses the nodes


def pool_states(engines: PoolEngines, site_loads: SiteLoads, cache: StoreCache) -> PoolStates:
    """Return the state of each pool: why it starts no gangs now, why it has fewer slots than its nodes, its load."""
    return PoolStates(closed_pools(engines, cache), engines.limits(), site_loads.last())


def closed_pools(engines: PoolEngines, cache: StoreCache) -> dict[str, str]:
    """Return, by pool, why no gang is started there now; pools in which gangs can be started are left out.

    The reason is a problem of the pool, or that as many gangs as permitted wait in its external queue.
    """
    most, found = engines.most_waiting(), {}
    waiting = _waiting(most, cache)
    for pool, limit in most.items():
        if waiting[pool] >= limit:
            found[pool] = f"{waiting[pool]} of {limit} gangs (most_waiting) wait in the site's queue of pool {pool}"
    return found | {pool: f"pool {pool} cannot be used now: {why}" for pool, why in engines.problems().items()}


def admitted(starts: Sequence[Start], most: Mapping[str, int], cache: StoreCache) -> list[Start]:
    """Return those `starts`, in order, with which not too many gangs wait in the external queue of their pool.

    `most` is the number of gangs that may wait, by pool; pools whose nodes Daylight chooses itself are not in it.
    """
    waiting, found = _waiting(most, cache), []
    for start in starts:
        pool = start.request.pool
        if pool in most:
            if waiting[pool] >= most[pool]:
                continue
            waiting[pool] += 1
        found.append(start)
    return found


def _waiting(most: Mapping[str, int], cache: StoreCache) -> Counter[str]:
    """Return the number of gangs that wait in the external queue of each pool."""
    if not most:  # the usual case (only the local pool), which must be fast
        return Counter()
    return Counter(each.pool for each in cache.open_attempts if each.state is AttemptState.PENDING)
