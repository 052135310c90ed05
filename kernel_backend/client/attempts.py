"""Call the routes that only programs on the nodes of pools may use.

These are launchers, the programs that probe nodes for a pool's check, and the holders of kept allocations.
"""

from __future__ import annotations

from kernel_backend.client.calls import UPLOAD_S, Calls
from kernel_backend.client.conversation import ANSWER_S
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.holder import HolderOrders, HolderReport
from kernel_backend.model.launch.nodes import JoinAnswer, NodeOffer, NodeOrder, NodeState
from kernel_backend.model.launch.probe import ProbeOrders, ProbeReport
from kernel_backend.model.launch.staging import StagedArtifact, StagedFile
from kernel_backend.model.reports import ArtifactSaved, Delivery, Instruction


class AttemptCalls(Calls):
    """Calls of programs on nodes: launchers, probes and holders, each authenticated by the token given to it."""

    def deliver(self, key: AttemptId | str, token: str, delivery: Delivery) -> Instruction:
        """Send records of an attempt, such as metrics, to the service; return its instruction for the attempt's ranks.

        Authenticated by the attempt's token.
        """
        body = delivery.model_dump_json(exclude=None if delivery.notes else {"notes"}).encode()
        path = f"/api/attempts/{key}/records"
        return self._read(Instruction, self._service.json("POST", path, token=token, content=body))

    def join(self, key: AttemptId | str, token: str, offer: NodeOffer) -> JoinAnswer:
        """Offer a node's slots for a gang that is being assembled; return the service's answer: wait, start or leave.

        Authenticated by the attempt's token.
        """
        body = self._service.json("POST", f"/api/attempts/{key}/join", token=token, record=offer)
        return self._read(JoinAnswer, body)

    def node_state(self, key: AttemptId | str, token: str, state: NodeState) -> NodeOrder:
        """Report the state of the ranks on a node; return the service's order to the node's launcher.

        Waits up to `state.wait` seconds for an order.
        """
        body = self._service.json(
            "POST", f"/api/attempts/{key}/nodes", token=token, record=state, timeout=state.wait + ANSWER_S
        )
        return self._read(NodeOrder, body)

    def probe_report(self, check: str, token: str, report: ProbeReport) -> ProbeOrders:
        """Report what a probe program has found on a node during a pool's check; return all orders that it has got.

        Waits up to `report.wait` seconds for a further order.
        """
        body = self._service.json(
            "POST", f"/api/pool-checks/{check}", token=token, record=report, timeout=report.wait + ANSWER_S
        )
        return self._read(ProbeOrders, body)

    def holder_report(self, allocation: str, token: str, report: HolderReport) -> HolderOrders:
        """Report which gangs began or ended in a pod that a search keeps for its trials; return further orders to it.

        `allocation` is the id of the search's kept pods. Waits up to `report.wait` seconds for an order.
        """
        body = self._service.json(
            "POST", f"/api/allocations/{allocation}", token=token, record=report, timeout=report.wait + ANSWER_S
        )
        return self._read(HolderOrders, body)

    def attempt_job(self, key: AttemptId | str, token: str) -> bytes:
        """Return the launch spec of an attempt as JSON, authenticated by its token."""
        return self._service.call("GET", f"/api/attempts/{key}/job.json", token=token).content

    def attempt_snapshot(self, key: AttemptId | str, token: str) -> bytes:
        """Return the archive of an attempt's code, authenticated by its token; the caller checks its digest."""
        path = f"/api/attempts/{key}/snapshot.zip"
        return self._service.call("GET", path, token=token, timeout=UPLOAD_S).content

    def attempt_environment(self, key: AttemptId | str, token: str, *, everything: bool) -> bytes:
        """Return the locked environment of an attempt as JSON, with the wheels that no package index has.

        With `everything`, the wheels of all packages are included.
        """
        path, query = f"/api/attempts/{key}/environment.json", {"everything": int(everything)}
        return self._service.call("GET", path, token=token, params=query).content

    def attempt_wheel(self, key: AttemptId | str, token: str, wheel: str, offset: int) -> bytes:
        """Return a piece of the wheel with file name `wheel`, from a byte offset on; b"" at the wheel's end.

        The caller checks the wheel's digest. Authenticated by the attempt's token.
        """
        path, at = f"/api/attempts/{key}/wheels/{wheel}", {"offset": offset}
        return self._service.call("GET", path, token=token, params=at, timeout=UPLOAD_S).content

    def stage_file(self, key: AttemptId | str, token: str, name: str, offset: int, data: bytes) -> int:
        """Send a piece of the file `name` in an attempt's folder, from byte `offset` on.

        Returns how many bytes of the file the service has.
        """
        path, at = f"/api/attempts/{key}/files/{name}", {"offset": offset}
        body = self._service.json("PUT", path, token=token, content=data, params=at, timeout=UPLOAD_S)
        return self._read(StagedFile, body).size

    def keep_artifact(self, key: AttemptId | str, token: str, saved: ArtifactSaved) -> StagedArtifact:
        """Describe an artifact (name, digest) to the service, which stores it once all of its bytes have been sent."""
        path = f"/api/attempts/{key}/artifacts"
        body = self._service.json("POST", path, token=token, record=saved, timeout=UPLOAD_S)
        return self._read(StagedArtifact, body)

    def stage_artifact(self, key: AttemptId | str, token: str, digest: str, offset: int, data: bytes) -> int:
        """Send a piece of the artifact with this digest, from byte `offset` on; return how many bytes have arrived."""
        path, at = f"/api/attempts/{key}/artifacts/{digest}", {"offset": offset}
        body = self._service.json("PUT", path, token=token, content=data, params=at, timeout=UPLOAD_S)
        return self._read(StagedFile, body).size
