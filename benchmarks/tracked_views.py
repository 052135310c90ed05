"""Compare the views of many trials with those of MLflow and TensorBoard: requests, start and first paint.

    python benchmarks/tracked_views.py --peers PYTHON [--runs 2000] [--reports 50] [--home FOLDER]

`PYTHON` is the interpreter of an environment that has `mlflow` and `tensorboard`, which would change the packages of
this one: python -m venv peers && peers/bin/pip install mlflow tensorboard setuptools. Those that it lacks are skipped.
With 2,000 runs it takes some minutes, half of them to fill the three stores; with `--home` they are kept for the next
time, as one wants for 10,000.
Each has the same runs of five metrics: Daylight as the trials of a search, MLflow in a database in SQLite, TensorBoard
in a file of events for each run. Requests are those that its page sends for a list of 100 runs and for the curve of
one; their CPU time is that of all processes of the server. Start is the time from the start of the server to its first
list with all of the runs. First paint is that of the page in Chromium, loaded a second time, from the request for it to
the first rows of the list (MLflow), or to the first chart with a curve (TensorBoard). Ours is in `views_at_size.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.support.full_store import fill  # noqa: E402
from kernel_backend import discovery  # noqa: E402
from tests.support.ports import free_ports  # noqa: E402
from tests.support.world import World  # noqa: E402

FILLER = ROOT / "benchmarks" / "contenders" / "tracked_runs.py"
COUNT = 40  # requests of each kind


class Request(NamedTuple):
    """Request to a server: its path, and the body if it is posted."""

    path: str
    body: dict[str, Any] | None = None


class Server:
    """Server of a contender, with its child processes."""

    def __init__(self, port: int, process: psutil.Process, token: str = "") -> None:
        self.port, self._process, self._token = port, process, token

    def cpu_s(self) -> float:
        """Return the seconds of CPU that all of its processes have used."""
        family = [self._process, *self._process.children(recursive=True)]
        return float(sum(sum(each.cpu_times()[:2]) for each in family))

    def memory(self) -> float:
        """Return the MiB of memory of all of its processes."""
        family = [self._process, *self._process.children(recursive=True)]
        return float(sum(each.memory_info().rss for each in family)) / 2**20

    def ask(self, request: Request) -> Any:
        """Return the answer to a request, parsed from JSON; raise OSError while the server does not listen."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None if request.body is None else json.dumps(request.body)
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", request.path, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        if answer.status != 200:
            raise AssertionError(f"{request.path}: {answer.status} {text[:200]!r}")
        return json.loads(text)


class Measured(NamedTuple):
    """Times of a kind of request in milliseconds: 95th percentile, median, CPU of each."""

    p95: float
    median: float
    cpu: float

    def __str__(self) -> str:
        return f"p95 {self.p95:7.1f} ms  p50 {self.median:7.1f} ms  CPU {self.cpu:7.1f} ms"


def measured(server: Server, runs: int, request: Callable[[int], Request]) -> Measured:
    """Return the times of COUNT requests `request(n)`, with run numbers n from 1 to `runs`, after one that warms up."""
    server.ask(request(1))
    cpu, times = server.cpu_s(), []
    for nth in range(COUNT):
        began = time.perf_counter()
        server.ask(request(1 + 7 * nth % runs))
        times.append(1000 * (time.perf_counter() - began))
    spent = 1000 * (server.cpu_s() - cpu) / COUNT
    return Measured(statistics.quantiles(times, n=20)[-1], statistics.median(times), spent)


@contextlib.contextmanager
def started(command: list[str], port: int, folder: Path) -> Iterator[Server]:
    """Run a server in a process of its own, with its output in a file."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        found = psutil.Process(process.pid)
        try:
            yield Server(port, found)
        finally:
            for each in [*found.children(recursive=True), found]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.terminate()
            process.wait(60)


def wait_for(server: Server, request: Request, enough: Callable[[Any], bool], limit_s: float) -> float | None:
    """Repeat a request until `enough` returns True for its answer; return the seconds, or None after `limit_s`."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        with contextlib.suppress(OSError, AssertionError, http.client.HTTPException):
            if enough(server.ask(request)):
                return time.monotonic() - began
        time.sleep(0.1)
    return None


def first_paint(url: str, painted: str, options: argparse.Namespace, screenshot: str) -> float | None:
    """Return the milliseconds until `painted` is true in a page that is loaded for the second time; None after a limit.

    None, too, where there is no Chromium.
    """
    from playwright.sync_api import Error, sync_playwright

    from tests.browser import chromium

    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        if browser is None:
            print(chromium.MISSING)
            return None
        page, took = browser.new_page(viewport={"width": 1280, "height": 900}), 0.0
        try:
            for _ in range(2):
                began = time.perf_counter()
                page.goto(url)
                page.wait_for_function(painted, timeout=1000 * options.limit, polling=20)
                took = 1000 * (time.perf_counter() - began)
        except Error as error:
            print(f"  not painted: {error.message.splitlines()[0]}")
            return None
        finally:
            if options.screenshots is not None:
                page.screenshot(path=options.screenshots / screenshot)
            browser.close()
        return took


def ours(home: Path, runs: int, reports: int) -> dict[str, Measured]:
    """Print and return the times of Daylight's service on a search with these trials."""
    world = World(home)
    try:
        if not (home / "daylight.db").exists():
            began = time.monotonic()
            fill(home, runs, reports, 100, "random")
            print(f"Daylight: filled in {time.monotonic() - began:.0f} s")
        world.serve()
        address = discovery.find(home)
        assert address is not None
        server = Server(int(address.url.rsplit(":", 1)[1]), psutil.Process(address.pid), address.token)
        newest = server.ask(Request("/api/experiments?limit=1"))["experiments"][0]  # the search was filled in last
        path = f"/api/experiments/{newest['id']}"
        began = time.monotonic()
        server.ask(Request(f"{path}/search?sort=best&limit=100"))
        print(f"Daylight: first list {time.monotonic() - began:.2f} s after a start")
        found = {
            "list": measured(server, runs, lambda nth: Request(f"{path}/search?sort=best&limit=100")),
            "curve": measured(server, runs, lambda nth: Request(f"{path}/curves?trial={nth}")),
        }
        report("Daylight", found, server)
        return found
    finally:
        world.close()


def mlflow(python: Path, folder: Path, options: argparse.Namespace) -> dict[str, Measured]:
    """Print and return the times of MLflow's server."""
    database, port = f"sqlite:///{folder / 'mlflow.db'}", free_ports(1)[0]
    command = [str(python), "-m", "mlflow", "server", "--backend-store-uri", database]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--port", str(port), "--workers", "1"]
    listed = Request(
        "/ajax-api/2.0/mlflow/runs/search",
        {"experiment_ids": ["1"], "max_results": 100, "order_by": ["metrics.`accuracy` DESC"]},
    )
    with started(command, port, folder) as server:
        enough = min(100, options.runs)
        took = wait_for(server, listed, lambda answer: len(answer["runs"]) == enough, options.limit)
        if took is None:
            print(f"MLflow: no list within {options.limit:g} s of a start")
            return {}
        print(f"MLflow: first list {took:.2f} s after a start")
        history = "/ajax-api/2.0/mlflow/metrics/get-history?metric_key=accuracy&run_id="
        found = {
            "list": measured(server, options.runs, lambda nth: listed),
            "curve": measured(server, options.runs, lambda nth: Request(f"{history}{nth:032x}")),
        }
        report("MLflow", found, server)
        rows = "() => document.body.innerText.split('run-').length > 15"
        url = f"http://127.0.0.1:{port}/#/experiments/1/runs"
        say_first_paint(url, rows, options, "mlflow.png")
    return found


def tensorboard(python: Path, folder: Path, options: argparse.Namespace) -> dict[str, Measured]:
    """Print and return the times of TensorBoard's server."""
    port = free_ports(1)[0]
    command = [str(python), "-m", "tensorboard.main", "--logdir", str(folder / "runs"), "--port", str(port)]
    with started(command, port, folder) as server:
        took = wait_for(server, Request("/data/runs"), lambda found: len(found) >= options.runs, options.limit)
        if took is None:
            print(f"TensorBoard: not all runs within {options.limit:g} s of a start")
            return {}
        print(f"TensorBoard: all runs {took:.2f} s after a start")
        scalars = "/data/plugin/scalars/scalars?tag=accuracy&run="
        found = {
            "list": measured(server, options.runs, lambda nth: Request("/data/plugin/scalars/tags")),
            "curve": measured(server, options.runs, lambda nth: Request(f"{scalars}{quote(f'run-{nth}')}")),
        }
        report("TensorBoard", found, server)
        drawn = "() => document.querySelector('scalar-card line-chart') !== null"
        url = f"http://127.0.0.1:{port}/#timeseries"
        say_first_paint(url, drawn, options, "tensorboard.png")
    return found


def say_first_paint(url: str, painted: str, options: argparse.Namespace, screenshot: str) -> None:
    took = first_paint(url, painted, options, screenshot)
    if took is not None:
        print(f"  first paint {took:.0f} ms")


def report(name: str, found: dict[str, Measured], server: Server) -> None:
    for kind, each in found.items():
        print(f"  {name:12}{kind:8}{each}")
    print(f"  {name:12}memory {server.memory():.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own = Path(sys.executable)
    absolute = lambda text: Path(text).absolute()  # noqa: E731 - servers run in folders of their own
    parser.add_argument("--peers", type=absolute, default=own, help="an interpreter that has them")
    parser.add_argument("--runs", type=int, default=2000, help="(default: %(default)s)")
    parser.add_argument("--reports", type=int, default=50, help="of each run (default: %(default)s)")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds to wait for a server or a page (default: %(default)s)"
    )
    parser.add_argument("--home", type=absolute, help="a folder that is kept; filled unless it exists")
    parser.add_argument("--screenshots", type=absolute, help="a folder for pictures of what is measured")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a file shows how far it has come
    found = subprocess.run([options.peers, FILLER, "versions"], capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(found.stdout)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.home or Path(temporary)
        our = ours(folder / "home", options.runs, options.reports)
        for name, measure in {"mlflow": mlflow, "tensorboard": tensorboard}.items():
            if name not in versions:
                print(f"{name}: skipped, as {options.peers} does not have it (see --help)")
                continue
            place = folder / name
            if not place.exists():
                place.mkdir(parents=True)
                arguments = [name, place, str(options.runs), str(options.reports)]
                began = time.monotonic()
                subprocess.run([options.peers, FILLER, *arguments], check=True)
                print(f"{name}: filled in {time.monotonic() - began:.0f} s")
            print(f"{name} {versions[name]}")
            for kind, theirs in measure(options.peers, place, options).items():
                wall = our[kind].median / theirs.median
                cpu = f", of CPU {our[kind].cpu / theirs.cpu:.2f}" if theirs.cpu else ""
                print(f"  {kind}: ours / theirs {wall:.2f}{cpu}")


if __name__ == "__main__":
    main()
