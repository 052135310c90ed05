"""Run a real control plane of Kubernetes for tests: etcd, API server, controllers and scheduler, in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.guard import Guard
from tests.support.kubernetes_admin import Admin, ApiError
from tests.support.ports import free_ports

BUILD = Path(__file__).parents[2] / "scripts" / "kubernetes"
PATIENCE_S = 120.0
TOKENS = {"admin": "token-of-admin", "ada": "token-of-ada"}  # by user
GRACE_S = 8  # after its last lease from which a node counts as lost; Kubernetes' own default is 40
_AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": ["ada"]}, {"level": "None"}],
}
_CONTROLLERS = (
    "namespace,serviceaccount,serviceaccount-token,garbagecollector,resourcequota,nodelifecycle,podgc,disruption"
)


def programs() -> Path:
    """Return the folder with the control plane's programs; skip the test if they have not been built."""
    found = subprocess.run([BUILD, "--find"], capture_output=True, text=True, check=False)
    if found.returncode:
        reason = f"{found.stderr.strip()}, and `make test-kubernetes` runs the tests as well"
        pytest.fail(reason) if os.environ.get("KUBERNETES") == "require" else pytest.skip(reason)
    return Path(found.stdout.strip())


class ControlPlane:
    """Running control plane without nodes."""

    def __init__(self, folder: Path, guard: Guard) -> None:
        self._folder, self._guard, self._programs = folder, guard, programs()
        self._ports = free_ports(3)
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.url = f"https://127.0.0.1:{self._ports[2]}"
        self.certificate = folder / "certificates" / "apiserver.crt"

    def start(self) -> None:
        """Start all programs in order, each after the program that it needs has answered."""
        self._make_keys()
        self._start_etcd()
        self.start_server()
        self.config(self._folder / "admin", TOKENS["admin"], "default")
        self._start("kube-controller-manager", *self._for_controllers())
        self._start("kube-scheduler", f"--kubeconfig={self._folder}/admin", "--leader-elect=false", *_DEAF)
        admin = self.admin()
        self._wait(lambda: admin.exists("namespaces/default/serviceaccounts/default"), "the controllers work")

    def kill_server(self) -> None:
        """Kill the API server, and wait until it is gone."""
        os.kill(self._server, signal.SIGKILL)
        self._wait(lambda: not Path(f"/proc/{self._server}").exists(), "the API server ends")

    def admin(self) -> Admin:
        """Return a client with all rights."""
        return Admin(self.url, TOKENS["admin"], self.certificate)

    def requests(self) -> int:
        """Return how many requests of the user ada the API server has answered, including watches that have ended."""
        return sum(1 for _ in (self._folder / "audit").open())

    def config(self, path: Path, token: str, namespace: str) -> Path:
        """Write a kubeconfig file that uses a token."""
        server = {"server": self.url, "certificate-authority": str(self.certificate)}
        context = {"cluster": "test", "user": "test", "namespace": namespace}
        every = {
            "clusters": [{"name": "test", "cluster": server}],
            "contexts": [{"name": "test", "context": context}],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "test", **every}))
        return path

    def _make_keys(self) -> None:
        """Create the key that signs service accounts' tokens, and the file with users' tokens."""
        key, public = self._folder / "accounts.key", self._folder / "accounts.pub"
        for command in (["genrsa", "-out", key, "2048"], ["rsa", "-in", key, "-pubout", "-out", public]):
            subprocess.run(["openssl", *command], check=True, capture_output=True)
        users = [
            f"{token},{name},{name},{'system:masters' if name == 'admin' else ''}\n" for name, token in TOKENS.items()
        ]
        (self._folder / "tokens").write_text("".join(users))
        (self._folder / "audited").write_text(json.dumps(_AUDITED))

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports[:2])
        where = (f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}")
        peers = (f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}")
        self._start("etcd", f"--data-dir={self._folder}/etcd", *where, *peers)

    def start_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        self._server = self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports[0]}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[2]}",
            f"--cert-dir={self._folder}/certificates",
            f"--token-auth-file={self._folder}/tokens",
            f"--audit-policy-file={self._folder}/audited",
            f"--audit-log-path={self._folder}/audit",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://daylight.test",
            f"--service-account-signing-key-file={self._folder}/accounts.key",
            f"--service-account-key-file={self._folder}/accounts.pub",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",  # it refuses a server that listens on loopback only
        )
        admin = self.admin()
        self._wait(lambda: admin.is_ready(), "the API server is ready")

    def _for_controllers(self) -> list[str]:
        return [
            f"--kubeconfig={self._folder}/admin",
            f"--service-account-private-key-file={self._folder}/accounts.key",
            f"--root-ca-file={self.certificate}",
            f"--controllers={_CONTROLLERS}",
            "--node-monitor-period=500ms",
            f"--node-monitor-grace-period={GRACE_S}s",
            "--leader-elect=false",
            *_DEAF,
        ]

    def _start(self, name: str, *options: str) -> int:
        return self._guard.start([self._programs / name, *options], self._folder / f"{name}.log", self._environment)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(ApiError, OSError):
                if condition():
                    return
            time.sleep(0.1)
        logs = "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in self._folder.glob("*.log"))
        raise AssertionError(f"did not happen in {PATIENCE_S:g} s: {what}\n{logs}")


_DEAF = ("--port=0", "--secure-port=0")  # nobody asks it anything


@contextlib.contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Provide a control plane, which ends with the block or with the test process."""
    with tempfile.TemporaryDirectory(prefix="daylight-kubernetes-", ignore_cleanup_errors=True) as name:
        guard = Guard()
        try:
            found = ControlPlane(Path(name), guard)
            found.start()
            yield found
        finally:
            guard.end()
