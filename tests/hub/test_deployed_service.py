"""Test the service of deploy/kubernetes, started with the manifest's command, next to a hub."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.hub.hub import ROOT, Hub
from tests.support.guard import Guard

TOKEN = "the-token-of-the-secret-daylight-hub"
DEPLOYED = f"""
daylight.pop("command"), daylight.pop("environment")
daylight["api_token"] = {TOKEN!r}
"""


def container() -> dict[str, Any]:
    """Return the container of the service, as the manifests describe it."""
    text = (ROOT / "deploy/kubernetes/base/deployment.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]
    return found


def variables(hub: Hub) -> dict[str, str]:
    """Return the variables of the container, with addresses and folders of this machine."""
    own = {"DAYLIGHT_HOME": str(hub.home), "HOME": str(hub.folder), "JUPYTERHUB_API_TOKEN": TOKEN}
    port = urlsplit(hub.service).port
    own |= {"JUPYTERHUB_API_URL": hub.api_url, "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}"}
    given = {each["name"]: each.get("value", "") for each in container()["env"]}
    assert own.keys() <= given.keys()
    return given | own


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Start a hub, and the service next to it, which is restarted until the hub answers, like in Kubernetes."""
    pytest.importorskip("jupyterhub", reason="daylight[hub] is not installed")
    folder = tmp_path_factory.mktemp("deployed") / "hub"
    hub, guard = Hub(folder, DEPLOYED), Guard()
    folder.mkdir()
    _, *command = (word for word in container()["command"] if not word.startswith("--config"))
    again = f"until {shlex.join([sys.executable, *command])}; do sleep 0.2; done"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAYLIGHT", "JUPYTER"))}
    environment |= {"PYTHONPATH": str(ROOT), **variables(hub)}
    try:
        guard.start(["sh", "-c", again], folder / "service.log", environment)
        yield hub.start()
    finally:
        guard.end()
        hub.close()


def test_users_come_in_by_their_tokens_and_strangers_do_not(hub: Hub) -> None:
    assert hub.ask(None, "GET", "/api/nodes").status_code == 401
    assert hub.ask("dave", "GET", "/api/nodes").status_code == 200
    assert hub.client("dave").pools()[0].name == "local"


def test_the_page_leads_to_the_hubs_sign_in(hub: Hub) -> None:
    answer = hub.ask(None, "GET", "/", follow_redirects=False)
    assert answer.status_code == 302
    assert "client_id=service-daylight" in answer.headers["Location"]


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_the_probes_find_it_well_and_a_port_without_a_service_not(hub: Hub, probe: str) -> None:
    _, *words = container()[probe]["exec"]["command"]
    there, port = words[-1], urlsplit(hub.service).port
    asked = [sys.executable, *words[:-1], there.replace(":10180", f":{port}")]
    assert subprocess.run(asked, check=False).returncode == 0
    assert subprocess.run([*asked[:-1], there.replace(":10180", ":1")], capture_output=True, check=False).returncode
