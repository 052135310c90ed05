"""Stand between a client and a server: add latency, limit the bandwidth, and answer some requests with errors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from s3fs import S3FileSystem

from tests.support.object_store import object_store

PIECE = 64 * 1024  # bytes


@dataclass
class BadNetwork:
    """Way to an HTTP server; its attributes may be changed at any time."""

    address: str = ""  # at which clients reach the server
    latency: float = 0.0  # seconds before each answer
    bandwidth: float = float("inf")  # bytes a second of all answers together
    refusals: int = 0  # how many of the next requests are answered with `refusal`
    refusal: tuple[int, str] = (503, "SlowDown")  # HTTP status, and S3's code
    held: str = ""  # the answers with objects whose paths end in it wait, until this is changed
    strangers: frozenset[str] = frozenset()  # access keys that may read nothing
    cuts: int = 0  # how many of the next answers of more than a piece end in their middle
    requests: list[str] = field(default_factory=list)  # method and path of each request
    _free_at: float = 0.0  # when the way is free for another piece

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
        """Pass the requests of one connection on, one after the other."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"100-continue" in head:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    head = b"\r\n".join(line for line in head.split(b"\r\n") if b"100-continue" not in line)
                body = await reader.readexactly(_length(head))
                method, path = (head.split(b" ", 2)[i].decode() for i in (0, 1))
                self.requests.append(f"{method} {path}")
                await asyncio.sleep(self.latency)
                while self.held and method == "GET" and path.partition("?")[0].endswith(self.held):
                    await asyncio.sleep(0.02)
                stranger = _access_key(head) in self.strangers
                if self.refusals or stranger:
                    self.refusals -= not stranger
                    said = _refusal(403, "AccessDenied") if stranger else _refusal(*self.refusal)
                    writer.write(said.partition(b"<Error>")[0] if head.startswith(b"HEAD") else said)
                    continue
                if not await self._answer(head, body, writer, host, port):
                    break
        writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter, host: str, port: int) -> bool:
        """Write the server's answer to a request; return False if it was cut."""
        behind, ahead = await asyncio.open_connection(host, port)
        ahead.write(head.replace(b"Connection: keep-alive", b"Connection: close") + body)
        answer = await behind.readuntil(b"\r\n\r\n")
        writer.write(answer)
        left = 0 if head.startswith(b"HEAD") else _length(answer)
        cut = self.cuts > 0 and left > PIECE
        self.cuts -= cut
        while left:
            piece = await behind.readexactly(min(left, PIECE))
            left -= len(piece)
            now = asyncio.get_running_loop().time()
            self._free_at = max(now, self._free_at) + len(piece) / self.bandwidth
            await asyncio.sleep(self._free_at - now)
            writer.write(piece)
            await writer.drain()
            if cut:
                break
        ahead.close()
        return not cut


@contextlib.contextmanager
def bad_network(server: str, latency: float = 0.0, bandwidth: float = float("inf")) -> Iterator[BadNetwork]:
    """Provide a way to an HTTP server, at an address of its own, during the block."""
    network, started, ended = BadNetwork(latency=latency, bandwidth=bandwidth), threading.Event(), asyncio.Event()
    where, loop = urlsplit(server), asyncio.new_event_loop()

    async def serve() -> None:
        async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await network.serve(reader, writer, str(where.hostname), int(where.port or 80))

        async with await asyncio.start_server(each, "127.0.0.1", 0) as listening:
            network.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            started.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield network
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


@contextlib.contextmanager
def distant_store(latency: float = 0.0, bandwidth: float = float("inf")) -> Iterator[tuple[str, BadNetwork]]:
    """Provide the URL of an empty bucket, and the network over which all S3 clients reach it during the block."""
    with object_store() as url, bad_network(os.environ["AWS_ENDPOINT_URL"], latency, bandwidth) as network:
        os.environ["AWS_ENDPOINT_URL"] = network.address
        S3FileSystem.clear_instance_cache()
        yield url, network


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _access_key(head: bytes) -> str:
    """Return the access key with which a request is signed; "" for none."""
    return head.partition(b"Credential=")[2].partition(b"/")[0].decode()


def _refusal(status: int, code: str) -> bytes:
    said = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(said)}\r\n\r\n"
    return head.encode() + said
