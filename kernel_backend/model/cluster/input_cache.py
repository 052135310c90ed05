"""Name the environment variables that tell ranks where their node keeps remote data, and how much of it."""

from __future__ import annotations

from kernel_backend.model.cluster.pools import PoolSettings

ROOT = "DAYLIGHT_CACHE"  # variable with the folder of the cache
LIMIT = "DAYLIGHT_CACHE_GB"  # variable with the most gigabytes that it may hold


def cache_variables(settings: PoolSettings) -> dict[str, str]:
    """Return the variables by which a pool sets the cache of its nodes; {} for what it leaves to the nodes.

    Examples
    --------
    >>> cache_variables(PoolSettings(engine="slurm", cache="/nvme/daylight", cache_gb=500))
    {'DAYLIGHT_CACHE': '/nvme/daylight', 'DAYLIGHT_CACHE_GB': '500'}
    """
    size = None if settings.cache_gb is None else f"{settings.cache_gb:g}"
    return {name: value for name, value in ((ROOT, settings.cache), (LIMIT, size)) if value}
