"""Measure recording, locking, building and finding an environment, beside pip from the same lock.

    python benchmarks/environment_time.py [--rounds 2] [--all]

Without --all the environment is small: every eighth of this interpreter's packages, without torch. `cold` has an
empty cache and downloads; `again` builds it anew from uv's cache; `built` is the cost of each start once it is built.
pip installs the same files with the same hashes into a fresh venv, cold and from its own cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.environments import uv
from kernel_backend.environments.storage import Environments
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.environment import record

PYTHON = Path(sys.executable)
LARGE = ("torch", "horovod", "nvidia", "triton", "pytorch", "playwright", "lightning", "accelerate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="with torch, which is downloaded")
    options = parser.parse_args()
    times, environment = recorded(options.rounds), chosen(options.all)
    print(f"{len(environment.distributions)} distributions; record: first {times[0]:.3f} s, then {times[1]:.3f} s")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["UV_CACHE_DIR"] = str(home / "uv-cache")
        kept = Environments(home / "home")
        lock = timed(lambda: kept.make_lock(environment, PYTHON))
        cold = timed(lambda: kept.build(environment, PYTHON))
        python = kept.build(environment, PYTHON)
        built = statistics.median(timed(lambda: kept.build(environment, PYTHON)) for _ in range(options.rounds))
        again = statistics.median(timed(lambda: anew(kept, environment, python)) for _ in range(options.rounds))
        own, shared = sizes(python.parents[1])
        print(f"lock {lock:.2f} s; build cold {cold:.2f} s, again {again:.2f} s, built {built:.4f} s")
        print(f"disk: {own / 2**20:.1f} MiB of its own, {shared / 2**20:.0f} MiB shared with uv's cache")
        pip_cold = timed(lambda: by_pip(home / "pip", python))
        pip_again = timed(lambda: by_pip(home / "pip", python))  # once: it takes a minute
        print(f"pip: cold {pip_cold:.2f} s, again {pip_again:.2f} s")
        print(f"ours / pip: cold {cold / pip_cold:.2f}, again {again / pip_again:.2f}, built {built / pip_again:.4f}")


def recorded(rounds: int) -> tuple[float, float]:
    """Return the seconds of a process's first record of its environment, and of each further one."""
    code = "import time; from kernel_backend.snapshots.environment import record; t = time.perf_counter(); record(); "
    code += "print(time.perf_counter() - t)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    first = [float(subprocess.check_output([PYTHON, "-c", code], env=env)) for _ in range(rounds)]
    record()
    return statistics.median(first), statistics.median(timed(record) for _ in range(10 * rounds))


def chosen(everything: bool) -> Environment:
    """Return the environment to build, with only packages that an index has."""
    found = record()
    small = [name for name in found.distributions if not name.startswith(LARGE)][::8]
    kept = {name: version for name, version in found.distributions.items() if everything or name in small}
    urls = {name: url for name, url in found.urls.items() if name in kept}
    return found.model_copy(update={"distributions": kept, "urls": urls})


def anew(kept: Environments, environment: Environment, python: Path) -> None:
    shutil.rmtree(python.parents[1])
    kept.build(environment, PYTHON)


def by_pip(folder: Path, python: Path) -> None:
    """Install the same requirements, with hashes, by pip in a fresh venv."""
    shutil.rmtree(folder / "venv", ignore_errors=True)
    subprocess.run([PYTHON, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "-qq", "--no-deps", "--require-hashes"]
    env = {**os.environ, "PIP_CACHE_DIR": str(folder / "cache")}
    subprocess.run([*pip, "-r", python.parents[1] / "requirements.txt"], check=True, env=env)


def sizes(venv: Path) -> tuple[int, int]:
    """Return the bytes that only this environment uses, and those that it shares by hard links."""
    stats = [path.lstat() for path in venv.rglob("*") if not path.is_dir()]
    return sum(s.st_size for s in stats if s.st_nlink == 1), sum(s.st_size for s in stats if s.st_nlink > 1)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    if uv.find() is None:
        sys.exit("there is no uv here: pip install uv")
    main()
