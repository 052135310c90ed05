"""Test that other processes of the same user cannot read the token that a hub has passed to the service."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.accounts.unix import ROOT, _opened, needed

NOBODY = 65534
SECRET = "a-token-of-the-service"


@pytest.fixture
def home() -> Iterator[Path]:
    """Provide a home that belongs to user nobody."""
    home = Path(tempfile.mkdtemp(prefix="daylight-secret-"))
    os.chown(home, NOBODY, NOBODY)
    yield home
    shutil.rmtree(home)


def as_nobody(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as user nobody."""
    return subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, check=False
    )


def test_the_hubs_token_is_for_no_other_process_of_the_services_user(home: Path) -> None:
    python, code = needed(), _opened(ROOT / "kernel_backend", home).parent
    libraries = _opened(Path(sysconfig.get_path("purelib")), home)
    with socket.create_server(("127.0.0.1", 0)) as hub:  # which does not answer
        variables = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{code}:{libraries}",
            "JUPYTERHUB_API_TOKEN": SECRET,
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub.getsockname()[1]}/hub/api",
            "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:1",
            "JUPYTERHUB_SERVICE_PREFIX": "/services/daylight/",
        }
        command = [python, "-P", "-m", "kernel_backend", "--hub", f"--home={home}"]
        service = subprocess.Popen(
            command, env=variables, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", stderr=subprocess.PIPE
        )
        try:
            hub.settimeout(60)
            asked, _ = hub.accept()
            with asked:  # it has the token, and waits for the answer
                assert SECRET.encode() in asked.recv(65536)
                for what in ("environ", "mem"):
                    tried = as_nobody("head", "-c1", f"/proc/{service.pid}/{what}")
                    assert "Permission denied" in tried.stderr, what
                assert service.poll() is None
        finally:
            service.kill()
            service.communicate()
