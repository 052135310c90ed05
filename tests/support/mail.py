"""Run a small SMTP server that stores the mails which it receives."""

from __future__ import annotations

import socketserver
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage


class MailServer:
    """SMTP server on a port of this machine; `refusing` is its answer to a recipient instead of 250 ("" accepts)."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.logins: list[str] = []
        self.refusing = ""
        self._server = _Server(("127.0.0.1", 0), _Session)
        self._server.mail = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)


class _Server(socketserver.ThreadingTCPServer):
    mail: MailServer
    daemon_threads = True


class _Session(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        mail = self.server.mail
        self._say("220 here")
        while line := self.rfile.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            if verb.upper() == "EHLO":
                self._say("250-here\r\n250 AUTH PLAIN")
            elif verb.upper() == "AUTH":
                mail.logins.append(rest.partition(" ")[2])
                self._say("235 known")
            elif verb.upper() == "RCPT":
                mail.recipients.append(rest)
                self._say(mail.refusing or "250 ok")
            elif verb.upper() == "DATA":
                self._say("354 go on")
                self._take(mail)
                self._say("250 taken")
            elif verb.upper() == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

    def _take(self, mail: MailServer) -> None:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        found = message_from_bytes(b"".join(lines), policy=policy.default)
        assert isinstance(found, EmailMessage)
        mail.mails.append(found)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())
