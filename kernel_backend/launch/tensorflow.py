"""Set the environment variable by which workers of TensorFlow's MultiWorkerMirroredStrategy find each other."""

from __future__ import annotations

import json

from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo


def env(assignment: RankAssignment, rendezvous: RendezvousInfo) -> dict[str, str]:
    """Return the variable `TF_CONFIG` for a rank, with the addresses of all ranks and the rank's own number.

    {} unless the attempt runs a command on several ranks.
    """
    if not rendezvous.workers:
        return {}
    task = {"type": "worker", "index": assignment.rank}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": rendezvous.workers}, "task": task})}
