"""List the routes of launchers, probes and holders, which the token of an attempt, a check or an allocation opens."""

from __future__ import annotations

from kernel_backend.model.launch.holder import HolderOrders, HolderReport
from kernel_backend.model.launch.nodes import JoinAnswer, NodeOffer, NodeOrder, NodeState
from kernel_backend.model.launch.probe import ProbeOrders, ProbeReport
from kernel_backend.model.launch.staging import StagedArtifact, StagedFile
from kernel_backend.model.reports import ArtifactSaved, Delivery, Instruction
from kernel_backend.routes.operations import BYTES, INT, JSON, ZIP, Endpoint, Operation

ATTEMPT = "/api/attempts/{key}"
PROBE = "/api/pool-checks/{check}"
HOLDER = "/api/allocations/{allocation}"

ATTEMPTS: tuple[Endpoint, ...] = (
    Endpoint(f"{ATTEMPT}/records", {"POST": Operation(Instruction, body=Delivery, again=True)}),
    Endpoint(f"{ATTEMPT}/join", {"POST": Operation(JoinAnswer, body=NodeOffer, again=True)}),
    Endpoint(f"{ATTEMPT}/nodes", {"POST": Operation(NodeOrder, body=NodeState, again=True)}),
    Endpoint(f"{ATTEMPT}/job.json", {"GET": Operation(JSON)}),
    Endpoint(f"{ATTEMPT}/snapshot.zip", {"GET": Operation(ZIP)}),
    Endpoint(f"{ATTEMPT}/environment.json", {"GET": Operation(JSON, query={"everything": INT})}),
    Endpoint(f"{ATTEMPT}/wheels/{{id}}", {"GET": Operation(BYTES, query={"offset": INT})}),
    Endpoint(f"{ATTEMPT}/files/{{file}}", {"PUT": Operation(StagedFile, body=BYTES, query={"offset": INT})}),
    Endpoint(f"{ATTEMPT}/artifacts", {"POST": Operation(StagedArtifact, body=ArtifactSaved, again=True)}),
    Endpoint(f"{ATTEMPT}/artifacts/{{digest}}", {"PUT": Operation(StagedFile, body=BYTES, query={"offset": INT})}),
    Endpoint(PROBE, {"POST": Operation(ProbeOrders, body=ProbeReport, again=True)}),
    Endpoint(HOLDER, {"POST": Operation(HolderOrders, body=HolderReport, again=True)}),
)
