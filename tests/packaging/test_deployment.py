"""Test the manifests, images and values of deploy/: they agree with each other, with the code and with the guides."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from traitlets.config import Config

from jupyter_ext.hub import daylight
from kernel_backend import __version__
from kernel_backend.engines.kubernetes.check import RIGHTS
from tests.support.kubernetes_stub import granted
from tests.support.ports import free_ports
from tests.support.world import World

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes/base"
IMAGES = {each.stem.partition(".")[0]: each for each in sorted((DEPLOY / "images").glob("*.Dockerfile"))}
OVERLAYS = sorted(each.parent for each in (DEPLOY / "kubernetes").rglob("kustomization.yaml"))


def manifests(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def objects(*kinds: str) -> list[dict[str, Any]]:
    """Return the objects of these kinds in the base."""
    return [each for path in sorted(BASE.glob("*.yaml")) for each in manifests(path) if each["kind"] in kinds]


def pod() -> dict[str, Any]:
    (deployment,) = objects("Deployment")
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def configuration() -> str:
    (config,) = objects("ConfigMap")
    return str(config["data"]["daylight_config.py"])


def test_the_rights_are_those_of_the_guide_and_those_that_the_engine_needs() -> None:
    guide = (ROOT / "docs/guides/kubernetes.md").read_text()
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", guide, re.DOTALL)
    told = {each["kind"]: each["rules"] for each in yaml.safe_load_all(block)}
    assert told == {each["kind"]: each["rules"] for each in objects("Role", "ClusterRole")}
    needed = {(verb, kind) for kind, verbs in RIGHTS.items() for verb in verbs}
    assert granted() == needed | {
        *(("list", kind) for kind in ("events", "resourcequotas", "nodes", "workloads")),
        *((verb, "podgroups") for verb in ("create", "get")),
    }
    (role,), (nodes,) = objects("Role"), objects("ClusterRole")
    names = {each["roleRef"]["name"]: each["subjects"] for each in objects("RoleBinding", "ClusterRoleBinding")}
    account = [{"kind": "ServiceAccount", "name": pod()["serviceAccountName"], "namespace": "daylight"}]
    assert names == {role["metadata"]["name"]: account, nodes["metadata"]["name"]: account}


def test_there_is_one_service_at_a_time_without_rights_on_its_node() -> None:
    (deployment,) = objects("Deployment")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    (container,) = pod()["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["securityContext"]["runAsNonRoot"]
    assert {"startupProbe", "readinessProbe", "livenessProbe", "resources"} <= container.keys()


def test_what_the_deployment_refers_to_is_there() -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in objects("ConfigMap", "PersistentVolumeClaim")}
    volumes = {each["name"]: each for each in pod()["volumes"]}
    assert ("PersistentVolumeClaim", volumes["home"]["persistentVolumeClaim"]["claimName"]) in names
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in names
    (container,) = pod()["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == volumes.keys()
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    (service,) = objects("Service")
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    secrets = {each["metadata"]["name"]: each["stringData"] for each in manifests(BASE / "secrets.example.yaml")}
    for variable in container["env"]:
        if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
            assert reference["key"] in secrets[reference["name"]]
    assert f":{ports['launchers']}" in configuration()


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda each: each.name)
def test_kustomize_makes_one_deployment_of_each_overlay(folder: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    made = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
    found = {each["kind"]: each for each in yaml.safe_load_all(made)}
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"daylight-service:{__version__}"
    names = {each["name"] for each in container["env"]}
    assert ("DAYLIGHT_DB_URL" in names) == (folder.name == "postgresql")
    assert any(name.startswith("JUPYTERHUB_") for name in names) == (folder.name != "standalone")
    assert found["Deployment"]["metadata"]["namespace"] == "daylight"


def test_the_images_are_of_this_version_everywhere(tmp_path: Path) -> None:
    assert f"daylight-worker:{__version__}" in configuration()
    for name, path in IMAGES.items():
        text = path.read_text()
        assert f"-t daylight-{name}:{__version__} ." in text
        assert f"dist/daylight-{__version__}-py3-none-any.whl" in text


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_a_fixed_base_the_locked_packages_and_a_user_without_rights(name: str) -> None:
    lines = IMAGES[name].read_text().splitlines()
    (base,) = (line for line in lines if line.startswith("FROM"))
    assert re.fullmatch(r"FROM python:3\.12\.\d+-slim-bookworm", base)
    copied = [line.split()[1] for line in lines if line.startswith("COPY")]
    assert copied[0] == f"requirements/{name}.txt"
    assert all((ROOT / each).exists() for each in copied if not each.startswith("dist/"))
    assert any("--require-hashes" in line for line in lines)
    (user,) = (line.split()[1] for line in lines if line.startswith("USER"))
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    if name == "service":
        assert user == f"{pod()['securityContext']['runAsUser']}:{pod()['securityContext']['runAsGroup']}"


def test_the_commands_of_the_images_work() -> None:
    commands = {}
    for name, path in IMAGES.items():
        (line,) = (line for line in path.read_text().splitlines() if line.startswith("CMD"))
        commands[name] = json.loads(line.removeprefix("CMD"))
    assert commands["service"] == ["daylight", "serve"]
    probe = subprocess.run([sys.executable, *commands["worker"][1:]], capture_output=True, text=True, check=True)
    assert json.loads(probe.stdout)["daylight"] == __version__


def test_the_service_loads_the_configuration_and_has_the_pool(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "daylight_config.py").write_text(configuration().replace(":7070", f":{port}"))
    world = World(tmp_path / "home")
    world.settings = (f"--config={tmp_path / 'daylight_config.py'}",)
    try:
        pools = {each.name: each for each in world.serve().pools()}
        assert json.loads((world.home / "launchers.json").read_text())["urls"] == [
            f"http://daylight.daylight.svc:{port}"
        ]
    finally:
        world.close()
    settings = pools["cluster"].settings
    assert settings is not None
    accounts = [each["metadata"]["name"] for each in objects("ServiceAccount")]
    assert settings.service_account in accounts
    assert settings.namespace == "daylight"
    assert "local" not in pools, "no code of users runs in the pod that has the secrets"


def test_the_values_for_the_hub_are_what_the_function_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    values = yaml.safe_load((DEPLOY / "zero-to-jupyterhub/values.yaml").read_text())
    monkeypatch.setenv("DAYLIGHT_HUB_TOKEN", "a token")
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    daylight(c, admins=["ada"])
    (service,) = c.JupyterHub.services
    hub = values["hub"]
    assert {"name": "daylight", "api_token": "a token", **hub["services"]["daylight"]} == service | {"apiToken": ""}
    assert hub["config"]["JupyterHub"]["custom_scopes"] == c.JupyterHub.custom_scopes
    roles = {each.pop("name"): each for each in c.JupyterHub.load_roles}
    assert hub["loadRoles"] == roles
    assert values["singleuser"]["extraEnv"] == c.Spawner.environment
