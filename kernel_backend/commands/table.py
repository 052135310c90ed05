"""List the verbs that `daylight` and `%dl` share, in the order of the help."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_backend.commands import (
    artifacts,
    checkpoints,
    cluster,
    compare,
    deletion,
    disk,
    environment,
    experiments,
    labels,
    pools,
    rerun,
    search,
    times,
    usage,
    webhooks,
)
from kernel_backend.commands.exports import export
from kernel_backend.commands.verb import Verb

VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        *experiments.LOOK,
        times.PROFILE,
        times.TOP,
        times.UTILISATION,
        export.EXPORT,
        *labels.VERBS,
        environment.ENV,
        compare.DIFF,
        rerun.RERUN,
        rerun.CONTINUE,
        rerun.VERIFY,
        compare.HISTORY,
        *search.VERBS,
        *checkpoints.VERBS,
        artifacts.ARTIFACTS,
        artifacts.CELL_VALUES,
        *cluster.VERBS,
        usage.USAGE,
        pools.POOL,
        webhooks.WEBHOOK,
        *experiments.CHANGE,
        *deletion.VERBS,
        disk.DU,
    )
}
