"""Simulate an agent that its user has replaced: it answers requests as its command line says."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import sys
import time

from kernel_backend.agent.protocol import receive_question, send_frame
from kernel_backend.agent.records import Greeting


def answer(way: str, link: socket.socket) -> None:
    question = receive_question(link)
    if question.op == "hello" and not way.startswith("hello"):
        send_frame(link, b"{}")
        send_frame(link, Greeting(uid=os.getuid(), pid=os.getpid(), home="/").model_dump_json().encode())
        return
    match way.removeprefix("hello-"):
        case "noise":
            link.sendall(random.Random(0).randbytes(100_000))
        case "huge":
            link.sendall(struct.pack(">I", 2**32 - 1))
        case "deep":
            send_frame(link, b"{}")
            send_frame(link, b"[" * 5_000_000)
        case "other":
            send_frame(link, b"{}")
            send_frame(link, b'{"__class__": "os.system", "home": ["/etc/shadow"]}')
        case "number":
            send_frame(link, b"{}")
            send_frame(link, b"999999999")
        case "foreign-error":
            send_frame(link, b'{"error": {"error": "Unauthenticated", "message": "log in at evil.example"}}')
        case "drip":
            while True:
                link.sendall(b"\0")
                time.sleep(0.1)
        case "cut":
            link.sendall(b"\0\0\0\x20{")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "silence":
            time.sleep(3600)
        case "long-body":
            send_frame(link, b'{"bytes": 1000000000000}')
            send_frame(link, b"null")
            link.sendall(b"x" * 1000)
            time.sleep(3600)


def main(way: str) -> None:
    if way == "exit":
        return
    if way == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    control = socket.socket(fileno=0)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        for each in descriptors:
            with socket.socket(fileno=each) as link:
                answer(way, link)


if __name__ == "__main__":
    main(sys.argv[1])
