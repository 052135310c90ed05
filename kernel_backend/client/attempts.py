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
    """Operations of launchers, which are authenticated by their attempt's token."""

    def deliver(self, key: AttemptId | str, token: str, delivery: Delivery) -> Instruction:
        """Upload records of an attempt, authenticated by the attempt's token; return an instruction for its ranks."""
        body = delivery.model_dump_json(exclude=None if delivery.notes else {"notes"}).encode()
        path = f"/api/attempts/{key}/records"
        return self._read(Instruction, self._service.json("POST", path, token=token, content=body))

    def join(self, key: AttemptId | str, token: str, offer: NodeOffer) -> JoinAnswer:
        """Offer a node's slots for a gang that is being assembled; return whether to wait, to start or to leave.

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
        """Report what the probe program of a pool's check has found; return all orders that it got from the service.

        Waits up to `report.wait` seconds for a further order.
        """
        body = self._service.json(
            "POST", f"/api/pool-checks/{check}", token=token, record=report, timeout=report.wait + ANSWER_S
        )
        return self._read(ProbeOrders, body)

    def holder_report(self, allocation: str, token: str, report: HolderReport) -> HolderOrders:
        """Report what has happened in a pod of a kept allocation, and return further orders of the service.

        Waits up to `report.wait` seconds for an order.
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
        """Return the locked environment of an attempt as JSON, with the wheels that no index has.

        With `everything`, all wheels are included.
        """
        path, query = f"/api/attempts/{key}/environment.json", {"everything": int(everything)}
        return self._service.call("GET", path, token=token, params=query).content

    def attempt_wheel(self, key: AttemptId | str, token: str, wheel: str, offset: int) -> bytes:
        """Return a piece of a wheel from a byte offset, empty at the end; the caller checks the wheel's digest."""
        path, at = f"/api/attempts/{key}/wheels/{wheel}", {"offset": offset}
        return self._service.call("GET", path, token=token, params=at, timeout=UPLOAD_S).content

    def stage_file(self, key: AttemptId | str, token: str, name: str, offset: int, data: bytes) -> int:
        """Send a piece of a file in an attempt's folder; return how many bytes of it the service has."""
        path, at = f"/api/attempts/{key}/files/{name}", {"offset": offset}
        body = self._service.json("PUT", path, token=token, content=data, params=at, timeout=UPLOAD_S)
        return self._read(StagedFile, body).size

    def keep_artifact(self, key: AttemptId | str, token: str, saved: ArtifactSaved) -> StagedArtifact:
        """Report an artifact to the service, which stores it once all of its bytes have been sent."""
        path = f"/api/attempts/{key}/artifacts"
        body = self._service.json("POST", path, token=token, record=saved, timeout=UPLOAD_S)
        return self._read(StagedArtifact, body)

    def stage_artifact(self, key: AttemptId | str, token: str, digest: str, offset: int, data: bytes) -> int:
        """Send a piece of an artifact; return how many bytes of it the service has."""
        path, at = f"/api/attempts/{key}/artifacts/{digest}", {"offset": offset}
        body = self._service.json("PUT", path, token=token, content=data, params=at, timeout=UPLOAD_S)
        return self._read(StagedFile, body).size
