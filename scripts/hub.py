"""Run a JupyterHub with Daylight on this machine, to try it: `make hub`. Ctrl-C ends all of it.

The configuration is the one of examples/jupyterhub; ports are free ones, and the folder is build/hub.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.ports import free_ports  # noqa: E402

EXAMPLE = ROOT / "examples" / "jupyterhub" / "jupyterhub_config.py"
CONFIG = """
load_subconfig({example!r})
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = [{command!r}]
c.Spawner.default_url = "/lab"
"""
START_S = 300
SAID_S = 10  # between two lines that say what is waited for


def main() -> None:
    """Start the hub, print its address, and end its processes at Ctrl-C."""
    folder = ROOT / "build" / "hub"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    public, hub, proxy, service = free_ports(4)
    command = str(Path(sys.executable).parent / "configurable-http-proxy")
    text = CONFIG.format(example=str(EXAMPLE), public=public, hub=hub, proxy=proxy, command=command)
    (folder / "config.py").write_text(text)
    password, admins = secrets.token_urlsafe(6), secrets.token_urlsafe(24)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DAYLIGHT_HUB_HOME": str(folder),
        "DAYLIGHT_HUB_PASSWORD": password,
        "DAYLIGHT_HUB_ADMIN_PASSWORD": admins,
        "DAYLIGHT_SERVICE_URL": f"http://127.0.0.1:{service}",
    }
    with (folder / "hub.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", "config.py"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        wait(f"http://127.0.0.1:{public}/hub/api/", process, folder)
        print(
            f"\n  http://127.0.0.1:{public}\n\n"
            f"  dave, danielle (of vision), eve (of speech)   {password}\n"
            f"  ada, the admin                                {admins}\n\n"
            f"  Services > daylight is the page of the cluster. What the hub says: {folder / 'hub.log'}\n"
            "  Ctrl-C ends all of it.\n",
            flush=True,
        )
        process.wait()
    except KeyboardInterrupt:
        print("\nending ...", flush=True)
    finally:
        end(process, folder)


def wait(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until the hub answers; if it does not, exit with the end of its log."""
    began = said = time.monotonic()
    while time.monotonic() - began < START_S and process.poll() is None:
        waits = "the hub to listen"
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).status_code == 200:
                return
            waits = "the hub to start Daylight's service"
        if time.monotonic() - said >= SAID_S:
            said = time.monotonic()
            print(f"waiting for {waits} ({said - began:.0f} s); what it says: {folder / 'hub.log'}", flush=True)
        time.sleep(0.2)
    sys.exit(f"the hub did not start; the end of its log:\n{(folder / 'hub.log').read_text()[-3000:]}")


def end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End the hub, then the processes that were started beneath it in sessions of their own, trainings included."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
    for each in psutil.process_iter():
        try:
            variables, command = each.environ(), each.cmdline()
        except psutil.Error:
            continue
        named = [variables.get(name, "") for name in ("DAYLIGHT_HOME", "HOME", "DAYLIGHT_HUB_HOME")]
        # The service itself has its home on the command line, should the hub not have ended it.
        if any(place.startswith(str(folder)) for place in named) or f"--home={folder / 'daylight'}" in command:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


if __name__ == "__main__":
    main()
