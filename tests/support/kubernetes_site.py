"""Provide a namespace of a real Kubernetes for one test: a user with the guide's rights, a volume, and two nodes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.support.kubernetes_admin import Manifest
from tests.support.kubernetes_control_plane import TOKENS, ControlPlane
from tests.support.kubernetes_nodes import KubeletNodes, until

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "kubernetes.md"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = "ada"
_numbers = itertools.count(1)


class KubernetesSite:
    """Namespace with its nodes, and the kubeconfig file of a user who has the rights that the guide names."""

    def __init__(self, plane: ControlPlane, nodes: KubeletNodes, folder: Path) -> None:
        self.plane, self.nodes, self.admin = plane, nodes, nodes.admin
        self.namespace = f"ml-{next(_numbers)}"
        self.config = folder / "kubeconfig"
        self.use(TOKENS[USER])

    def use(self, token: str) -> None:
        """Make the engine use another token, and this namespace."""
        self.plane.config(self.config, token, self.namespace)

    def path(self, kind: str, name: str = "") -> str:
        """Return the API path of a kind of objects in the namespace."""
        return f"namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def pods(self) -> list[Manifest]:
        """Return all pods in the namespace."""
        return self.admin.list(self.path("pods"))

    def objects(self) -> list[str]:
        """Return the names of Daylight's objects in the namespace."""
        kinds = ("pods", "configmaps", "secrets")
        found = (each["metadata"]["name"] for kind in kinds for each in self.admin.list(self.path(kind)))
        return [name for name in found if name.startswith("daylight-")]

    def begin(self) -> None:
        """Create the namespace, and the objects that its users have."""
        self.create_namespace()
        until(lambda: self.admin.exists(self.path("serviceaccounts", "default")), "the service account is there")
        self.grant()
        self._bind_volume()

    def create_namespace(self) -> None:
        """Create only the namespace."""
        self.admin.create("namespaces", {"metadata": {"name": self.namespace}})

    def grant(self, again: bool = False) -> None:
        """Grant the user the rights that the guide names; `again` grants them after they were revoked."""
        role, cluster_role = rights()
        role["metadata"]["namespace"] = self.namespace
        cluster_role["metadata"]["name"] += f"-{self.namespace}"
        self.admin.create(f"{RBAC}/namespaces/{self.namespace}/roles", role)
        self.admin.create(f"{RBAC}/clusterroles", cluster_role)
        if not again:
            self.admin.create(f"{RBAC}/namespaces/{self.namespace}/rolebindings", self._binding(role))
            self.admin.create(f"{RBAC}/clusterrolebindings", self._binding(cluster_role))

    def revoke(self) -> None:
        """Revoke the rights."""
        self.admin.delete(f"{RBAC}/namespaces/{self.namespace}/roles/daylight")
        self.admin.delete(f"{RBAC}/clusterroles/daylight-nodes-{self.namespace}")

    def limit(self, **hard: str) -> None:
        """Set the quota `gpus` of the namespace, or remove it if no limits are given.

        In names of resources, `__` stands for `.`.
        """
        self.admin.delete(self.path("resourcequotas", "gpus"))
        if not hard:
            return
        most = {name.replace("__", "."): value for name, value in hard.items()}
        self.admin.create(self.path("resourcequotas"), {"metadata": {"name": "gpus"}, "spec": {"hard": most}})

        def counted() -> bool:
            return bool(self.admin.get(self.path("resourcequotas", "gpus")).get("status", {}).get("hard"))

        until(counted, "the quota is counted")

    def _binding(self, role: Manifest) -> Manifest:
        kind, name = role["kind"], role["metadata"]["name"]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
        return {"kind": f"{kind}Binding", "metadata": {"name": name}, "roleRef": reference, "subjects": [user]}

    def _bind_volume(self) -> None:
        """Bind the volume claim `home`, as a storage controller would."""
        size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
        claim = {"resources": {"requests": size}, "accessModes": modes, "volumeName": self.namespace}
        bound = {"name": "home", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        made = self.admin.create(
            self.path("persistentvolumeclaims"), {"metadata": bound, "spec": {**claim, "storageClassName": ""}}
        )
        of = {"namespace": self.namespace, "name": "home", "uid": made["metadata"]["uid"]}
        volume = {"capacity": size, "accessModes": modes, "hostPath": {"path": "/"}, "claimRef": of}
        self.admin.create("persistentvolumes", {"metadata": {"name": self.namespace}, "spec": volume})


def rights() -> tuple[Manifest, Manifest]:
    """Return the Role and the ClusterRole in the guide."""
    text = GUIDE.read_text().split("## Rights")[1].split("```yaml")[1].split("```")[0]
    role, cluster_role = yaml.safe_load_all(text)
    return role, cluster_role


@contextlib.contextmanager
def kubernetes_site(plane: ControlPlane, folder: Path, cpus: int = 8) -> Iterator[KubernetesSite]:
    """Provide a namespace with its user, and the nodes n1 and n2."""
    with KubeletNodes(plane.admin(), folder).running() as nodes:
        site = KubernetesSite(plane, nodes, folder)
        site.begin()
        for name in ("n1", "n2"):
            nodes.add(name, cpus, gpus=cpus)
        try:
            yield site
        finally:
            site.revoke()  # rights in the whole cluster would be those of the next test as well
