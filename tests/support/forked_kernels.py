"""Fork kernels from a process that has imported torch and Daylight, which takes each kernel of its own three seconds.

Each is a real IPython kernel in a process and session of its own, with the environment and the folder that it is
started with. What Jupyter starts and ends is `forked_ipykernel.py`, a program that lives as long as its kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

PROGRAM = Path(__file__).with_name("forked_ipykernel.py")
# None that looks for its kernel when it is imported, as pyplot's backend does, and none that reads settings, as Keras.
MODULES = (
    *("ipykernel.kernelapp", "torch", "torch.utils.data", "torch._dynamo"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "sklearn.datasets", "pandas"),
    *("jupyter_ext.magics.magics", "jupyter_ext.job.job", "jupyter_ext.views"),
)
LOOK_S = 2.0  # between looks at whether the folder is still there
FILES = 3  # standard input, output and error of a kernel


def write_kernelspec(folder: Path, home: Path) -> None:
    """Write the kernelspec of forked kernels below `folder`, which is in JUPYTER_PATH.

    `home` shares its forkservers with those of other test processes, and they share the process that forks kernels.
    """
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-I", "-S", str(PROGRAM), str(_served(home)), "{connection_file}"]
    text = json.dumps({"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python"})
    (spec / "kernel.json").write_text(text)


def kernel(connection_file: str) -> int:
    """Return the process number of the kernel with this connection file."""
    return int(Path(f"{connection_file}.pid").read_text())


def _served(home: Path) -> Path:
    """Return the socket of the process that forks kernels; start it at the first use."""
    folder = (home / "forkservers").resolve()
    address = folder / "kernels.socket"
    with (folder / "kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(str(address))
            listener.listen(64)
            command = [sys.executable, "-m", __name__, str(address), str(listener.fileno())]
            with (folder / "kernels.log").open("wb") as log:
                subprocess.Popen(
                    command,
                    cwd=Path(__file__).parents[2],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[listener.fileno()],
                    start_new_session=True,
                )
            listener.close()
    return address


def serve(address: Path, listener: socket.socket) -> None:
    """Fork a kernel for each connection, and return in the forked process, or once the folder is gone."""
    while address.exists():
        if select.select([listener], [], [], LOOK_S)[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become(connection)
                return
            connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(connection: socket.socket) -> None:
    """Run the kernel that is asked for; it is killed when who has asked ends, who hears of its end in turn."""
    os.setsid()
    text, files, _, _ = socket.recv_fds(connection, 1 << 20, FILES)
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    request = json.loads(text)
    os.environ.clear()
    os.environ.update(request["environment"] | {"JPY_PARENT_PID": str(os.getppid())})
    os.chdir(request["folder"])
    del sys.path[0]  # the repository's root, where this program was started
    sys.argv = ["ipykernel_launcher", "-f", request["connection_file"], *request["arguments"]]
    connection.send(str(os.getpid()).encode())

    def watch() -> None:
        connection.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    importlib.import_module("ipykernel.kernelapp").launch_new_instance()


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as in each kernel
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # else a collection in a kernel would copy all of it
    serve(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
