"""Start the server that lets machines join (the invitation) in a process of its own, and run it there.

The command of that process is `python -m kernel_backend.cluster_setup.invite`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from kernel_backend.cluster_setup.head import admit, munge_key, state_of
from kernel_backend.cluster_setup.invitation import (
    PORT,
    Handlers,
    Invitation,
    JoinAnswer,
    JoinRequest,
    Token,
    draw_token,
)
from kernel_backend.cluster_setup.local_state import connection_error
from kernel_backend.cluster_setup.system import SetupFailed, output

START_S = 60.0
_MODULE = "kernel_backend.cluster_setup.invite"
_FOLDER = Path("/run/daylight-cluster")  # holds the process id, and the secrets until the process has read them
_SECRET, _CERTIFICATE, _PRIVATE, _PID = (_FOLDER / name for name in ("secret", "certificate", "private", "pid"))
_LOG = Path("/var/log/daylight-cluster.log")


def invite(host: str) -> Token:
    """Start an invitation server on this machine, the head, and return its token; an earlier server is ended.

    Raises SetupFailed if it does not start.
    """
    _end_last()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(mode=0o700)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    files = ("-nodes", "-keyout", str(_PRIVATE), "-out", str(_CERTIFICATE))
    output(("openssl", "req", "-x509", *curve, *files, "-subj", f"/CN={host}", "-days", "2"))
    token = draw_token(hashlib.sha256(ssl.PEM_cert_to_DER_cert(_CERTIFICATE.read_text())).digest())
    _SECRET.write_bytes(token.secret)
    with _LOG.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    _PID.write_text(str(process.pid))
    deadline = time.monotonic() + START_S
    while connection_error("127.0.0.1", PORT):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SetupFailed(f"the invitation did not start: see {_LOG}; port {PORT} must be free")
        time.sleep(0.05)
    return token


def _serve() -> None:
    """Run the invitation server until it ends; the files with its secrets are deleted once they are read."""
    key, lock = munge_key(), threading.Lock()

    def join(request: JoinRequest, address: str) -> JoinAnswer:
        with lock:
            return admit(request, address, key, lambda line: print(line, flush=True))

    invitation = Invitation(_SECRET.read_bytes(), _CERTIFICATE, _PRIVATE, Handlers(join, state_of))
    for each in (_SECRET, _CERTIFICATE, _PRIVATE):
        each.unlink()
    invitation.serve_for()


def _end_last() -> None:
    try:
        pid = int(_PID.read_text())
    except (OSError, ValueError):
        return
    if not _serves(pid):
        return
    os.kill(pid, signal.SIGTERM)
    while _serves(pid):
        time.sleep(0.05)


def _serves(pid: int) -> bool:
    try:
        return _MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


if __name__ == "__main__":
    _serve()
