"""Test that only the holder of the token gets munge's key, and that the token is sent to no other server."""

from __future__ import annotations

import hashlib
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.cluster_setup.invitation import (
    MOST_REFUSALS,
    Handlers,
    HeadClient,
    Invitation,
    InvitationRefused,
    JoinAnswer,
    JoinRequest,
    StateAnswer,
    Token,
    draw_token,
)
from kernel_backend.cluster_setup.machine import read_machine

SECRET = b"0123456789abcdef"


def certificate(folder: Path) -> tuple[Path, Path, bytes]:
    """Provide a new certificate, its key, and its digest."""
    openssl = shutil.which("openssl")
    assert openssl, "Debian: apt-get install openssl"
    files = folder / "certificate", folder / "private"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=n1"]
    made = [openssl, "req", "-x509", *curve, "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(made, check=True, capture_output=True)
    return *files, hashlib.sha256(ssl.PEM_cert_to_DER_cert(files[0].read_text())).digest()


class Served:
    """Invitation server in a thread."""

    def __init__(self, folder: Path) -> None:
        public, private, self.fingerprint = certificate(folder)
        self.asked: list[str] = []
        self.server = Invitation(SECRET, public, private, Handlers(self._join, self._state), port=0)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_for, args=(60.0,))
        self.thread.start()

    def client(self, secret: bytes = SECRET, fingerprint: bytes | None = None) -> HeadClient:
        return HeadClient("127.0.0.1", self.port, Token(secret, fingerprint or self.fingerprint))

    def _join(self, request: JoinRequest, address: str) -> JoinAnswer:
        self.asked.append(address)
        return JoinAnswer(key="a2V5", head=request.machine.name)

    def _state(self, request: object, address: str) -> StateAnswer:
        return StateAnswer(state="idle")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path)
    yield running
    running.server.refusals = MOST_REFUSALS
    running.thread.join()
    running.server.server_close()


def test_the_holder_of_the_token_gets_the_key(served):
    machine = read_machine()
    answer = served.client().join(JoinRequest(machine=machine, clock=0.0))
    assert (answer.key, answer.head, served.asked) == ("a2V5", machine.name, ["127.0.0.1"])
    assert served.client().state("n2").state == "idle"


def test_a_wrong_secret_gets_nothing_and_many_end_the_invitation(served):
    for _ in range(MOST_REFUSALS):
        with pytest.raises(InvitationRefused, match="does not know this token"):
            served.client(secret=b"another secret..").join(JoinRequest(machine=read_machine(), clock=0.0))
    served.thread.join()
    assert served.asked == []


def test_another_server_never_sees_the_secret(served):
    with pytest.raises(InvitationRefused, match="is not the head that made this token"):
        served.client(fingerprint=bytes(32)).join(JoinRequest(machine=read_machine(), clock=0.0))
    assert served.server.refusals == 0  # nothing was sent, right or wrong
    assert served.asked == []


def test_no_token_begins_with_a_dash_which_a_command_line_takes_for_an_option():
    drawn = iter([b"\xfb" + bytes(15), b"\xf8" + bytes(15), SECRET])
    token = draw_token(bytes(32), lambda count: next(drawn))
    assert str(Token(b"\xfb" + bytes(15), bytes(32))).startswith("-")
    assert token.secret == SECRET
