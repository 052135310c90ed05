"""Start a notebook server in a mount namespace in which it shares no path with the service.

Run by `unshare --mount` as `server_apart.py REPOSITORY HIDDEN... -- ARGUMENTS`: the program is the server of one user
of a hub. It finds Python and Daylight below /mnt, has an empty home there in memory, and finds HIDDEN folders empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WHERE = Path("/mnt")
PYTHON, CODE, HOME = WHERE / "python", WHERE / "code", WHERE / "home"


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def main() -> None:
    before, arguments = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    repository, *hidden = before
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "tmpfs", WHERE)
    for there, here in ((PYTHON, sys.prefix), (CODE, repository)):
        there.mkdir()
        mount("--bind", here, there)
    for each in filter(os.path.exists, hidden):  # one may lie in another
        mount("-t", "tmpfs", "tmpfs", each)
    HOME.mkdir()
    os.chdir(HOME)
    path = os.environ["PATH"].replace(f"{Path(sys.executable).parent}", f"{PYTHON}/bin")
    own = {"HOME": str(HOME), "PATH": path, "PYTHONPATH": str(CODE), "TMPDIR": str(WHERE)}
    python = str(PYTHON / "bin" / "python")
    os.execve(python, [python, "-m", "jupyterhub.singleuser", *arguments], {**os.environ, **own})


if __name__ == "__main__":
    main()
