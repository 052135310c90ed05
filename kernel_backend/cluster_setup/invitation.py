"""Let machines join a cluster: an HTTPS server on the head (the invitation), and its client on a joining machine.

The server runs for a limited time. The user copies a token to the machine. It has a secret, which authenticates the
machine to the head, and the digest of the head's certificate, which authenticates the head to the machine. Only after
both checks is the key of munge, Slurm's authentication service, sent to the machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from kernel_backend.cluster_setup.machine import Machine
from kernel_backend.errors import DaylightError
from kernel_backend.model.record import Record

PORT = 6816
LASTS_S = 1800.0
MOST_REFUSALS = 20  # requests with a wrong secret after which the invitation ends
MOST_BYTES = 2**20
REQUEST_S = 90.0  # time for an answer, in which the head restarts slurmctld
SECRET_BYTES = 16


class InvitationRefused(DaylightError):
    """Error: the head cannot be reached, or refuses the request; the message says why."""

    http_status = 400


class Token(NamedTuple):
    """Token that a machine needs to join a cluster: a secret, and the digest of the head's certificate."""

    secret: bytes
    fingerprint: bytes  # SHA-256 of the certificate

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.secret + self.fingerprint).decode().rstrip("=")


def draw_token(fingerprint: bytes, draw: Callable[[int], bytes] = secrets.token_bytes) -> Token:
    """Return a token with a new random secret, for the certificate whose digest is `fingerprint`.

    No token begins with a dash, as `--token -x` would be read as two options.

    Examples
    --------
    >>> str(draw_token(bytes(32)))[0] != "-"
    True
    """
    while str(token := Token(draw(SECRET_BYTES), fingerprint)).startswith("-"):
        pass
    return token


def read_token(text: str) -> Token:
    """Return the token that a text represents, as a user has pasted it; raise InvitationRefused if it is invalid."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        data = b""
    if len(data) != SECRET_BYTES + hashlib.sha256().digest_size:
        raise InvitationRefused("the token is cut off or mistyped: copy it whole from daylight cluster init or invite")
    return Token(data[:SECRET_BYTES], data[SECRET_BYTES:])


class JoinRequest(Record):
    """Request of a machine to join a cluster, with its properties and the time on its clock."""

    machine: Machine
    clock: float  # seconds since 1970


class JoinAnswer(Record):
    """Answer of the head to a request to join; if the head refuses, it has only `problems` (each with its remedy)."""

    problems: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    cluster: str = ""
    head: str = ""
    address: str = ""  # address of the head in slurm.conf
    key: str = ""  # munge key in base64


class StateRequest(Record):
    """Request of a machine for the state of a node according to the head's Slurm."""

    name: str


class StateAnswer(Record):
    """State of a node according to Slurm, and why its slurmd cannot be reached from the head ("" if it can)."""

    state: str
    reason: str = ""
    unreachable: str = ""


class Handlers(NamedTuple):
    """Functions that answer the requests of machines.

    Their second argument is the address of the requesting machine, as the head sees it.
    """

    join: Callable[[JoinRequest, str], JoinAnswer]
    state: Callable[[StateRequest, str], StateAnswer]


class Invitation(ThreadingHTTPServer):
    """HTTPS server on the head that answers requests of joining machines.

    It ends after a time limit, or after too many requests with a wrong secret.
    """

    daemon_threads = True
    timeout = 1.0  # seconds between checks of the time limit

    def __init__(self, secret: bytes, certificate: Path, key: Path, handlers: Handlers, port: int = PORT) -> None:
        """Create a server that listens on all addresses.

        A request must have the `secret`. `certificate` and `key` are the paths of PEM files, and `handlers` answer the
        requests.
        """
        super().__init__(("0.0.0.0", port), _Handler)
        self.secret, self.handlers, self.refusals = secret, handlers, 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.load_cert_chain(certificate, key)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Do the TLS handshake in the thread of the request, so that a silent client does not block others."""
        request.settimeout(REQUEST_S)
        with self._context.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the address of a client whose connection has failed."""
        print(f"{client_address[0]}: a connection failed", flush=True)

    def serve_for(self, seconds: float = LASTS_S) -> None:
        """Answer requests for up to this many seconds, or until too many of them had a wrong secret."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.refusals < MOST_REFUSALS:
            self.handle_request()


class _Handler(BaseHTTPRequestHandler):
    server: Invitation

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MOST_BYTES:
            self._reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "{}")
            return
        body = self.rfile.read(length)  # read also if the request is refused: an unread body would reset the connection
        sent = self.headers.get("Authorization", "")
        if not hmac.compare_digest(sent.encode(), _authorization(self.server.secret).encode()):
            self.server.refusals += 1
            self._reply(HTTPStatus.FORBIDDEN, "{}")
            return
        try:
            self._reply(HTTPStatus.OK, self._answer(body).model_dump_json())
        except ValidationError:
            message = "the machine that joins has another version of Daylight than the head"
            self._reply(HTTPStatus.BAD_REQUEST, json.dumps({"message": message}))
        except DaylightError as error:
            self._reply(HTTPStatus.INTERNAL_SERVER_ERROR, json.dumps({"message": error.message}))

    def _answer(self, body: bytes) -> Record:
        address = str(self.client_address[0])
        if self.path == "/join":
            return self.server.handlers.join(JoinRequest.model_validate_json(body), address)
        return self.server.handlers.state(StateRequest.model_validate_json(body), address)

    def _reply(self, status: HTTPStatus, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class HeadClient:
    """Client of the invitation server on a head; it opens a new connection for each request."""

    def __init__(self, host: str, port: int, token: Token) -> None:
        self._host, self._port, self._token = host, port, token

    def join(self, request: JoinRequest) -> JoinAnswer:
        """Request to join the cluster, and return the answer; raise InvitationRefused if there is none."""
        return JoinAnswer.model_validate_json(self._post("/join", request))

    def state(self, name: str) -> StateAnswer:
        """Return the state of a node according to the head; raise InvitationRefused if there is no answer."""
        return StateAnswer.model_validate_json(self._post("/state", StateRequest(name=name)))

    def _post(self, path: str, body: Record) -> bytes:
        where = f"{self._host}:{self._port}"
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=REQUEST_S, context=_unchecked())
        try:
            connection.connect()
            certificate = connection.sock.getpeercert(binary_form=True) or b""
            # Checked before the secret is sent, so that an impostor at this address does not learn it.
            if not hmac.compare_digest(hashlib.sha256(certificate).digest(), self._token.fingerprint):
                raise InvitationRefused(
                    f"{where} is not the head that made this token: take the token of its newest daylight cluster init "
                    "or invite, and look whether another machine has its address"
                )
            headers = {"Authorization": _authorization(self._token.secret)}
            connection.request("POST", path, body.model_dump_json().encode(), headers)
            answer = connection.getresponse()
            data = answer.read()
        except OSError as error:
            raise InvitationRefused(unreachable(self._host, self._port, error)) from error
        except http.client.HTTPException as error:
            raise InvitationRefused(
                f"{where} answers unlike the head of a cluster ({error!r}): look at the port"
            ) from error
        finally:
            connection.close()
        if answer.status == HTTPStatus.FORBIDDEN:
            raise InvitationRefused(f"{where} does not know this token: write daylight cluster invite on the head")
        if answer.status != HTTPStatus.OK:
            raise InvitationRefused(f"{where}: {json.loads(data).get('message', answer.reason)}")
        return data


def unreachable(host: str, port: int, error: OSError) -> str:
    """Return a text for users on why a head cannot be reached, and what to change."""
    if isinstance(error, socket.gaierror):
        return f"{host} does not resolve: write the head's address instead of its name"
    if isinstance(error, ConnectionRefusedError):
        return (
            f"nothing listens at {host}:{port}: an invitation lasts {LASTS_S / 60:.0f} minutes; write daylight cluster "
            "invite on the head for another"
        )
    return (
        f"{host}:{port} cannot be reached ({error.strerror or error}): look at the network, and open TCP ports "
        f"{PORT}-{PORT + 2} between the machines in the firewall"
    )


def _unchecked() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate; the caller compares its digest with that in the token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _authorization(secret: bytes) -> str:
    return f"Bearer {base64.b64encode(secret).decode()}"
