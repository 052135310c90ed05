"""Have a kernel forked, pass signals on to it, and end with it; run by Jupyter as `forked_ipykernel.py SOCKET FILE`.

It imports little, so that it starts in no time: `forked_kernels.py` has the rest.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType


def main(address: str, connection_file: str, *arguments: str) -> None:
    """Ask for a kernel with this process's variables, folder and standard files, and wait for its end."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    request = {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "connection_file": connection_file,
        "arguments": arguments,
    }
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    kernel = int(connection.recv(100))

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(kernel, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    with open(f"{connection_file}.pid", "w") as file:
        file.write(str(kernel))
    connection.recv(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
