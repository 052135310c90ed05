"""Send messages as mail over SMTP."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.webhooks.payload import CONFIRM, Payload
from kernel_backend.model.webhooks.records import StoredWebhook
from kernel_backend.service.outbox.base import AT_ONCE, NotDelivered

TIMEOUT_S = 20.0
_PORTS = {"smtp": 25, "smtps": 465, "smtp+starttls": 587}


def check_smtp_url(url: str) -> None:
    """Raise InvalidRequest unless this URL of a mail server is valid; the error does not show the URL's password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidRequest("must be smtp://host, smtps://user:password@host or smtp+starttls://user:password@host")


class MailTransport:
    """Transport that sends mail through a server.

    The server's URL is `smtp://`, `smtps://` or `smtp+starttls://[user:password@]host[:port]`. The id of a message
    becomes the mail's Message-ID, by which a mail that was sent twice is recognised. Threads of its own wait for the
    server, so that one that hangs stops mail alone.
    """

    def __init__(self, url: str, sender: str) -> None:
        check_smtp_url(url)
        self._server, self._sender = urlsplit(url), sender
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="mail")

    async def send(self, hook: StoredWebhook, message: Payload) -> None:
        """Pass a message as a mail to the mail server; raises NotDelivered."""
        try:
            mail = _mail(self._sender, hook.url.partition(":")[2], message)
            await asyncio.get_running_loop().run_in_executor(self._threads, self._hand_over, mail)
        except smtplib.SMTPRecipientsRefused:
            raise NotDelivered("the mail server refused the address") from None
        except (OSError, ValueError) as error:  # smtplib's own errors are OSErrors
            raise NotDelivered(f"the mail server: {str(error)[:200] or type(error).__name__}") from None

    def close(self) -> None:
        """Drop mails that no thread has begun to send; each mail's connection is closed once it was sent."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _hand_over(self, mail: EmailMessage) -> None:
        parts = self._server
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        encrypted = ssl.create_default_context() if parts.scheme != "smtp" else None
        if parts.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_S, context=encrypted)
        else:
            server = smtplib.SMTP(host, port, timeout=TIMEOUT_S)
        with server:
            if parts.scheme == "smtp+starttls":
                server.starttls(context=encrypted)
            if parts.username:
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(mail)


def _mail(sender: str, to: str, message: Payload) -> EmailMessage:
    mail = EmailMessage()
    subject = "confirm your address" if message.type == CONFIRM else message.text
    mail["Subject"] = " ".join(f"Daylight: {subject}".split())[:200]
    mail["From"], mail["To"] = sender, to
    mail["Date"] = formatdate(localtime=False)
    mail["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2] or 'daylight'}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n".join(_lines(message)) + "\n")
    return mail


def _lines(message: Payload) -> list[str]:
    data = message.data
    if data is None:
        return [message.text]
    trials = ", ".join(f"{count} {state}" for state, count in data.trials.items())
    found = {"note": data.note, "tags": ", ".join(data.tags), "ended": data.ended_at, "trials": trials}
    if data.best is not None:
        found["best"] = f"trial {data.best.trial} at step {data.best.step}"
        found["hyperparameters"] = ", ".join(f"{name}={value}" for name, value in data.best.params.items())
    found["error"] = data.error
    about = [f"{name}: {value}" for name, value in found.items() if value]
    return [message.text, "", *about, "", *([message.url] if message.url else []), f"daylight show {data.number}"]
