"""Set the variable by which the workers of TensorFlow's MultiWorkerMirroredStrategy connect."""

from __future__ import annotations

import json

from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo


def env(assignment: RankAssignment, rendezvous: RendezvousInfo) -> dict[str, str]:
    """Return `TF_CONFIG`; empty without ports, which the gang of a command of several ranks has."""
    if not rendezvous.tensorflow_ports:
        return {}
    workers = [f"{rendezvous.address}:{port}" for port in rendezvous.tensorflow_ports]
    return {
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": assignment.rank}})
    }
