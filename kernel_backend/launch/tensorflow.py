"""Set the environment variable by which workers of TensorFlow's MultiWorkerMirroredStrategy connect."""

from __future__ import annotations

import json

from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo


def env(assignment: RankAssignment, rendezvous: RendezvousInfo) -> dict[str, str]:
    """Return `TF_CONFIG`; empty unless a command runs on several ranks, which have ports for it."""
    if not rendezvous.workers:
        return {}
    task = {"type": "worker", "index": assignment.rank}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": rendezvous.workers}, "task": task})}
