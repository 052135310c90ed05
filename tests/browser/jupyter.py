"""Run real Jupyter applications for tests: JupyterLab or Notebook 7 on a free port, each with its own folders."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import psutil

from tests.support.ports import free_ports
from tests.support.world import World, until

ROOT = Path(__file__).parents[2]
LABEXTENSION = ROOT / "jupyter_ext" / "labextension"
START_LIMIT_S = 5  # how long a page waits for a service that cannot start
BASE_URL = "/user/dave/"  # as behind a hub: a URL that forgets it is not found
CLASSES = {"lab": "LabApp", "notebook": "JupyterNotebookApp"}
MODULES = {"lab": "jupyterlab", "notebook": "notebook"}
# Each page that is loaded would have the server run Node.js, to say whether JupyterLab ought to be built again.
UNBUILT = {"buildAvailable": False, "buildCheck": False}
QUIET = {"@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"}}


class Jupyter:
    """Application with its files; `ours=False` omits Daylight's labextension, as in VS Code and Colab."""

    def __init__(self, world: World, folder: Path, app: str = "lab", ours: bool = True, theme: str = "") -> None:
        self.world, self.folder, self.app, self.ours = world, folder, app, ours
        self.notebooks = folder / "notebooks"
        self.extra_data = folder / "extra"  # in front of the environment's own, for kernelspecs
        self.token, (self.port,) = secrets.token_hex(16), free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}{BASE_URL}"
        self._process: subprocess.Popen[bytes] | None = None
        self._write_configuration(theme)

    def start(self) -> None:
        """Start the application unless it runs, and wait until it answers."""
        if self._process is not None:
            return
        with (self.folder / "jupyter.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, f"Jupyter starts; see {self.folder / 'jupyter.log'}")

    def kill(self) -> None:
        """Kill the server and its kernels by SIGKILL, so that pages get no message and nothing is saved."""
        assert self._process is not None
        family = psutil.Process(self._process.pid).children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.Error):
                if "ipykernel" in " ".join(process.cmdline()):
                    process.kill()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """End the application, if it runs."""
        if self._process is not None:
            self.kill()

    def end_kernels(self) -> None:
        """Shut down all kernels."""
        for kernel in self.request("GET", "api/kernels"):
            self.request("DELETE", f"api/kernels/{kernel['id']}")

    def page_url(self, notebook: str | None, workspace: str) -> str:
        """Return the URL of a notebook, or of the application without one."""
        if self.app == "notebook":
            path = f"notebooks/{notebook}" if notebook else "tree"
        else:
            path = f"lab/workspaces/{workspace}" + (f"/tree/{notebook}" if notebook else "")
        return f"{self.url}{path}?{urlencode({'token': self.token})}"

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON that Jupyter's own API answers."""
        headers = {"Authorization": f"token {self.token}"}
        answer = httpx.request(method, f"{self.url}{path}", headers=headers, timeout=60, **options)
        return answer.raise_for_status().json() if answer.content else None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "jupyter.log").read_text()[-3000:]
        try:
            return bool(self.request("GET", "api/status"))
        except httpx.HTTPError:
            return False

    def _command(self) -> Iterable[str]:
        klass = CLASSES[self.app]
        yield from (sys.executable, "-m", MODULES[self.app], "--no-browser")
        yield from (f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1")
        yield from (f"--ServerApp.base_url={BASE_URL}", f"--ServerApp.root_dir={self.notebooks}")
        yield from (f"--IdentityProvider.token={self.token}", "--ServerApp.terminals_enabled=False")
        yield from (f"--{klass}.expose_app_in_browser=True", "--LabApp.extension_manager=readonly")
        if self.ours:
            yield f"--DaylightExtension.start_limit={START_LIMIT_S}"
            yield f"--LabServerApp.extra_labextensions_path={self.folder / 'labextensions'}"
        if os.geteuid() == 0:
            yield "--allow-root"

    def _environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": str(self.folder / "config"),
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_PATH": str(self.extra_data),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
            "IPYTHONDIR": str(self.folder / "ipython"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        }
        return {**self.world.environment, **own}

    def _write_configuration(self, theme: str) -> None:
        config = self.folder / "config"
        self.notebooks.mkdir(parents=True, exist_ok=True)
        overrides: dict[str, Any] = dict(QUIET)
        if theme:
            overrides["@jupyterlab/apputils-extension:themes"] = {"theme": theme}
        _write(config / "labconfig" / "default_setting_overrides.json", overrides)
        disabled = {} if self.ours else {"disabledExtensions": {"daylight": True}}
        _write(config / "labconfig" / "page_config.json", UNBUILT | disabled)
        if self.ours:
            extensions = {"ServerApp": {"jpserver_extensions": {"jupyter_ext": True}}}
            _write(config / "jupyter_server_config.d" / "daylight.json", extensions)
            # First on the path, so that what was built here is tested and not what may be installed beside it; a copy,
            # so that a build meanwhile takes nothing away.
            shutil.copytree(LABEXTENSION, self.folder / "labextensions" / "daylight")


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
