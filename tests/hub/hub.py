"""Run a real JupyterHub with Daylight: its proxy, database, notebook servers, and four users.

dave and danielle are of group vision, eve is of speech, and ada is an admin. The configuration is the one of examples/.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
from playwright.sync_api import Page
from websockets.sync.client import connect

from kernel_backend import discovery
from kernel_backend.client import Client
from tests.support.patience import starvation
from tests.support.ports import free_ports

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "jupyterhub" / "jupyterhub_config.py"
PROXY = Path(sys.executable).parent / "configurable-http-proxy"  # the one of PyPI, which needs no Node.js
PASSWORD = "a password of all the users"
ADMIN_PASSWORD = "a password of the admin, which is a long one"
OURS = "the-token-of-the-tests-own-service-of-the-hub"
MONITOR = "the-token-of-the-prometheus-that-reads-its-numbers"
AGE_S = 1  # for which the service takes the hub's word: short, since tests wait for it
SOON_S = 180.0

CONFIG = """
load_subconfig({example!r})
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = [{proxy_command!r}]
c.ConfigurableHTTPProxy.pid_file = "proxy.pid"
c.JupyterHub.db_url = "sqlite:///hub.sqlite"
c.JupyterHub.cookie_secret = bytes(32)
c.JupyterHub.load_groups["wrong"] = {{"users": ["eve"], "properties": {{"daylight": {{"limit": -1, "guarantee": 1}}}}}}
c.JupyterHub.services.append({{"name": "tests", "api_token": {token!r}}})
scopes = ["admin:users", "admin:servers", "admin:groups", "tokens", "access:servers", "shutdown"]
c.JupyterHub.load_roles.append({{"name": "tests", "services": ["tests"], "scopes": scopes}})
c.JupyterHub.services.append({{"name": "prometheus", "api_token": {monitor!r}}})
scopes = ["access:services!service=daylight", "custom:daylight:monitor"]
c.JupyterHub.load_roles.append({{"name": "prometheus", "services": ["prometheus"], "scopes": scopes}})
# What idle_servers= of daylight() does, with a time for which tests can wait.
next(each for each in c.JupyterHub.load_roles if each["name"] == "daylight-service")["scopes"].append("delete:servers")
daylight = next(each for each in c.JupyterHub.services if each["name"] == "daylight")
daylight["command"] += ["--Daylight.identity_age={age}", "--Daylight.directory_age=0.5", "--Daylight.servers_age=0.5"]
daylight["command"] += ["--Daylight.idle_servers=1"]
daylight["environment"]["UV_OFFLINE"] = "1"
c.Spawner.environment["UV_OFFLINE"] = "1"
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = c.Spawner.http_timeout = 180  # a machine that tests may be slow
{more}
"""


class Hub:
    """Hub with all of its processes, in one folder and on free ports."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        public, hub, proxy, service = free_ports(4)
        self.url = f"http://127.0.0.1:{public}"  # what a browser opens
        self.service = f"http://127.0.0.1:{service}/services/daylight"
        self._ports = {"public": public, "hub": hub, "proxy": proxy}
        self._listens = f"http://127.0.0.1:{service}"
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(timeout=60, trust_env=False)
        self._tokens: dict[str, str] = {}
        self._clients: dict[str, Client] = {}

    @property
    def home(self) -> Path:
        """Return the home of the service."""
        return self.folder / "daylight"

    @property
    def api_url(self) -> str:
        """Return the URL of the hub's own API."""
        return f"http://127.0.0.1:{self._ports['hub']}/hub/api"

    @property
    def log(self) -> str:
        """Return the log of the hub and its services."""
        return (self.folder / "hub.log").read_text()

    def start(self) -> Hub:
        """Start the hub, and wait until it and the service answer."""
        self.folder.mkdir(exist_ok=True)
        text = CONFIG.format(
            example=str(EXAMPLE),
            proxy_command=str(PROXY),
            token=OURS,
            monitor=MONITOR,
            age=AGE_S,
            more=self._more,
            **self._ports,
        )
        (self.folder / "config.py").write_text(text)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DAYLIGHT_", "JUPYTER"))},
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "DAYLIGHT_HUB_HOME": str(self.folder),
            "DAYLIGHT_HUB_PASSWORD": PASSWORD,
            "DAYLIGHT_HUB_ADMIN_PASSWORD": ADMIN_PASSWORD,
            "DAYLIGHT_SERVICE_URL": self._listens,
            "CONFIGPROXY_AUTH_TOKEN": "the-token-of-the-proxy",
        }
        with (self.folder / "hub.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "config.py"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.until(lambda: self._answers(f"{self.url}/hub/api/", 200), "the hub answers")
        self.until(lambda: self._answers(f"{self.service}/api/health", 401), "the service answers")
        return self

    def kill(self) -> None:
        """Kill only the hub, like a crash; the processes that it has started continue."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the hub and all of its processes."""
        for client in self._clients.values():
            client.close()
        self._http.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        for process in psutil.process_iter():  # launchers, servers and kernels, each in a session of its own
            with contextlib.suppress(psutil.Error):
                if process.environ().get("DAYLIGHT_HUB_HOME") == str(self.folder) or self._is_ours(process):
                    process.kill()

    def _is_ours(self, process: psutil.Process) -> bool:
        home, variables = str(self.folder), process.environ()
        named = [variables.get("DAYLIGHT_HOME", ""), variables.get("HOME", "")]
        return any(each.startswith(home) for each in named) or f"--home={self.home}" in process.cmdline()

    def until(self, look: Callable[[], T], what: str) -> T:
        """Wait until a condition is true, and return its value."""
        begun = time.monotonic()
        while not (found := look()):
            assert time.monotonic() - begun < SOON_S * starvation(), f"did not happen: {what}\n{self.log[-3000:]}"
            assert self._process is None or self._process.poll() in (None, -signal.SIGKILL), self.log
            time.sleep(0.1)
        return found

    def api(self, method: str, path: str, **body: Any) -> Any:
        """Call the hub's API with all rights, assert success, and return the answer."""
        answer = self._http.request(
            method,
            f"{self.api_url}/{path}",
            headers={"Authorization": f"token {OURS}"},
            json=body or None,
        )
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def token(self, user: str) -> str:
        """Return a token of this user, with all of the user's rights."""
        if user not in self._tokens:
            with contextlib.suppress(AssertionError):
                self.api("POST", f"users/{user}")  # the hub knows them from their first sign-in on
            self._tokens[user] = self.api("POST", f"users/{user}/tokens", note="tests")["token"]
        return self._tokens[user]

    def client(self, user: str) -> Client:
        """Return a client with a token of this user."""
        if user not in self._clients:
            self._clients[user] = Client.at(self.service, self.token(user), patience=20)
        return self._clients[user]

    def with_token(self, token: str) -> Client:
        """Return a client with any token."""
        return self._clients.setdefault(token, Client.at(self.service, token, patience=20))

    def ask(self, user: str | None, method: str, path: str, **request: Any) -> httpx.Response:
        """Return the service's answer to a user, or to a request without a token."""
        headers = {"Authorization": f"Bearer {self.token(user)}"} if user else {}
        return self._http.request(method, self.service + path, headers=headers, **request)

    def running(self) -> discovery.Address | None:
        """Return the service's process."""
        return discovery.find(self.home)

    def notebook(self, user: str) -> Notebook:
        """Start this user's notebook server through the hub, and return a kernel in it."""
        self.token(user)
        if self.api("GET", f"users/{user}")["server"] is None:
            self.api("POST", f"users/{user}/server")
        self.until(lambda: self.api("GET", f"users/{user}")["servers"].get("", {}).get("ready"), f"{user}'s server")
        return Notebook(f"{self.url}/user/{user}", self.token(user))

    def _answers(self, url: str, status: int) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._http.get(url).status_code == status
        return False


class Notebook:
    """Kernel that is used over the network, like a page does."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._headers = url, {"Authorization": f"token {token}"}
        self.heard: list[dict[str, Any]] = []  # all messages about executed cells
        answer = httpx.post(f"{url}/api/kernels", headers=self._headers, timeout=SOON_S, trust_env=False)
        answer.raise_for_status()
        channels = f"ws{url.removeprefix('http')}/api/kernels/{answer.json()['id']}/channels"
        self._open = contextlib.ExitStack()
        asked = connect(channels, additional_headers=self._headers, proxy=None, max_size=None, open_timeout=SOON_S)
        self._socket = self._open.enter_context(asked)

    def run(self, code: str) -> str:
        """Execute a cell, and return its output and the text of its error."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True}
        id = self._send("execute_request", content)
        said = ""
        while True:
            answer = json.loads(self._socket.recv(SOON_S))
            if answer["parent_header"].get("msg_id") != id:
                continue
            self.heard.append(answer)
            kind, content = answer["msg_type"], answer["content"]
            if kind == "stream":
                said += content["text"]
            elif kind == "error":
                said += "\n".join(content["traceback"])
            elif kind in ("execute_result", "display_data"):
                said += content["data"].get("text/plain", "")
            elif kind == "status" and content["execution_state"] == "idle":
                return said

    def frames(self, types: set[str]) -> list[dict[str, Any]]:
        """Open the widget that a cell has shown, as a page does, and return the messages up to those of all types."""
        opened = [each["content"] for each in self.heard if each["msg_type"] == "comm_open"]
        model = next(each["comm_id"] for each in opened if "saved" in each["data"].get("state", {}))
        data = {"method": "custom", "content": {"type": "watch", "after": 0}}
        self._send("comm_msg", {"comm_id": model, "data": data})
        found: list[dict[str, Any]] = []
        while not types <= {each["type"] for each in found}:
            content = json.loads(self._socket.recv(SOON_S))["content"]
            said = content.get("data", {}).get("content", {}) if content.get("comm_id") == model else {}
            found += said["messages"] if said.get("type") == "messages" else []
        return found

    def _send(self, kind: str, content: dict[str, Any]) -> str:
        id = uuid.uuid4().hex
        header = {"msg_id": id, "msg_type": kind, "username": "", "session": "tests", "version": "5.3"}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        self._socket.send(json.dumps(message))
        return id

    def get(self, path: str) -> httpx.Response:
        """Return the notebook server's answer to a GET of this path."""
        return httpx.get(self._url + path, headers=self._headers, timeout=SOON_S, trust_env=False)

    def close(self) -> None:
        """Close the connection to the kernel."""
        self._open.close()


def sign_in(page: Page, user: str, password: str) -> None:
    """Sign in on the hub's form."""
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
