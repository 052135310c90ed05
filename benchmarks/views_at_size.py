"""Measure views of a search of 10,000 trials, and of 10,000 experiments: requests, memory, first paint, sorts, frames.

    python benchmarks/views_at_size.py [--trials 10000] [--home FOLDER] [--no-browser]

The service is a process of its own on a store in SQLite, filled beforehand: each trial of the search has 50 reports of
five metrics. Requests are timed at rest, and while eight of the trials go on reporting: from the first byte to the last
of the answer, the median of the 95th percentiles of `--rounds`. On a machine with other work the service's CPU time of
a request says more. Chromium begins a frame every 16.7 ms, however fast they are drawn, and later where the page's
thread is busy: a view keeps up with 60 Hz if the work of each, all that this thread does from one frame to the next
(messages, scripts, layout, painting), is done within 16 ms. It is read from Chromium's trace, by the clock and in time
of the CPU, while reports arrive. An empty JupyterLab is measured first: on a busy machine its frames are late, too.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import http.client
import itertools
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.support.full_store import COMPARED, LIVE, TOKEN, Full, fill, metrics, value_of  # noqa: E402
from kernel_backend import discovery  # noqa: E402
from kernel_backend.client import Client  # noqa: E402
from kernel_backend.model.ids import AttemptId  # noqa: E402
from kernel_backend.model.reports import Delivery, Report  # noqa: E402
from tests.support.world import World  # noqa: E402

PAINTED = """
() => {
  window.painted = null;
  const look = () => {
    const view = document.querySelector('article.dl-view');
    const rows = view?.querySelectorAll('.dl-trials tbody tr').length ?? 0;
    const drawn = view?.querySelector('.dl-charts svg path, .dl-charts svg circle');
    if (rows >= 100 && drawn) { window.painted = performance.now(); } else { requestAnimationFrame(look); }
  };
  requestAnimationFrame(look);
  return performance.now();
}
"""
COMPARISON = """
() => {
  window.painted = null;
  const look = () => {
    const view = document.querySelector('article.dl-compare');
    const drawn = view?.querySelectorAll('.dl-plots canvas').length ?? 0;
    const rows = view?.querySelectorAll('.dl-rows tbody tr').length ?? 0;
    if (drawn >= 5 && rows >= 5) { window.painted = performance.now(); } else { requestAnimationFrame(look); }
  };
  requestAnimationFrame(look);
  return performance.now();
}
"""
LISTED = """
() => {
  window.painted = null;
  const look = () => {
    if (document.querySelectorAll('.dl-item').length >= 50) { window.painted = performance.now(); }
    else { requestAnimationFrame(look); }
  };
  requestAnimationFrame(look);
  return performance.now();
}
"""
TABULATED = """
() => {
  window.painted = null;
  const look = () => {
    if (document.querySelectorAll('.dl-experiment-rows tbody th').length >= 20) { window.painted = performance.now(); }
    else { requestAnimationFrame(look); }
  };
  requestAnimationFrame(look);
  return performance.now();
}
"""
COMPLETE = """
count => document.querySelector('.dl-experiments .dl-toolbar [role=status]')?.textContent === count
"""
# Return the milliseconds from an event to the end of the frame that draws what it changes.
SORTED = """
async nth => {
  const heads = document.querySelectorAll('.dl-experiment-rows .dl-sort');
  const began = performance.now();
  heads[nth % heads.length].click();
  await window.drawn();
  return performance.now() - began;
}
"""
FILTERED = """
async text => {
  const field = document.querySelector('.dl-experiments input[type=search]');
  const began = performance.now();
  field.value = text;
  field.dispatchEvent(new Event('input'));
  await window.drawn();
  return performance.now() - began;
}
"""
DRAWN = """
() => {
  window.drawn = () => new Promise(resolve => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => resolve();
    channel.port2.postMessage(null);
  }));
}
"""
SCROLLING = """
() => {
  const box = document.querySelector('.dl-experiment-rows-box');
  let by = 90;
  const scroll = () => {
    const before = box.scrollTop;
    box.scrollTop += by;
    by = box.scrollTop === before ? -by : by;
    if (box.isConnected) { requestAnimationFrame(scroll); }
  };
  scroll();
}
"""
TYPED = ("lr < 0.01", "loss > 0.5", "tag:paper", "digits 3", "state:failed", "lr < 0.001 width = 64 tag:wide", "")
FRAMES = """
() => {
  const look = () => window.framed && requestAnimationFrame(look);
  window.framed = true;
  look();
}
"""
TRACED = ("toplevel", "cc")  # categories of Chromium's trace
TASK, FRAME = "ThreadControllerImpl::RunTask", "ProxyMain::BeginMainFrame"


class Connection:
    """One connection to the service, as a Jupyter server keeps them."""

    def __init__(self, home: Path) -> None:
        address = discovery.find(home)
        assert address is not None
        self._connection = http.client.HTTPConnection(urlsplit(address.url).netloc)
        self._headers = {"Authorization": f"Bearer {address.token}"}
        self.process = psutil.Process(address.pid)

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the service has used."""
        return float(sum(self.process.cpu_times()[:2]))

    def get(self, path: str) -> tuple[float, int]:
        """Request a path; return the milliseconds until the answer is complete, and its size in bytes."""
        began = time.perf_counter()
        self._connection.request("GET", f"/api{path}", headers=self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status} {text[:200]!r}")
        return 1000 * (time.perf_counter() - began), len(text)


def requests(full: Full, experiments: int) -> dict[str, Callable[[random.Random], str]]:
    """Return the requests to measure: by name, a function that draws a path at random."""
    search = f"/experiments/{full.search}"
    return {
        "list: the newest 50": lambda draw: "/experiments?limit=50",
        "list: completed": lambda draw: "/experiments?limit=50&state=completed",
        "list: running (there is none)": lambda draw: "/experiments?limit=50&state=running",
        "list: text": lambda draw: f"/experiments?limit=50&search=digits {draw.randrange(97)}".replace(" ", "%20"),
        "list: tag": lambda draw: "/experiments?limit=50&tag=paper",
        "list: two tags, failed": lambda draw: "/experiments?limit=50&tag=paper,wide&state=failed",
        "table: the first 200": lambda draw: "/experiments/table",
        "table: 1,000": lambda draw: (
            f"/experiments/table?limit=1000&before={draw.randint(min(1001, experiments), experiments)}"
        ),
        "table: what has changed": lambda draw: f"/experiments/table?after={2**40}",
        "show: one of 10,000": lambda draw: f"/experiments/{draw.randint(1, experiments)}",
        "show: the search": lambda draw: search,
        "search: status, 500 trials": lambda draw: f"{search}/search?sort=best&limit=500",
        "search: by a parameter": lambda draw: f"{search}/search?sort=lr&limit=500",
        "search: 150 curves": lambda draw: f"{search}/search/curves?limit=150&points=80",
        "curves: of a trial": lambda draw: f"{search}/curves?trial={draw.randint(LIVE + 1, full.trials)}",
        "curves: of one that reports": lambda draw: f"{search}/curves?trial={draw.randint(1, LIVE)}",
        "health, for the machine's noise": lambda draw: "/health",
        "queue": lambda draw: "/queue?limit=100",
        "artifacts": lambda draw: f"{search}/artifacts",
    }


class Reporter:
    """Client that sends reports for several attempts in turn, each continuing from the attempt's newest step."""

    def __init__(self, client: Client, full: Full, rate: float) -> None:
        """Create the client, which will send `rate` reports a second for all attempts together."""
        self._client, self._full, self._rate = client, full, rate
        self._units: dict[AttemptId, int] = {}  # newest unit of each attempt

    @contextlib.contextmanager
    def reporting(self, attempts: Sequence[AttemptId]) -> Iterator[None]:
        """Send reports for these attempts while the block runs."""
        over, turns = threading.Event(), itertools.cycle(attempts)

        def report() -> None:
            while not over.wait(1 / self._rate):
                self._report(next(turns))

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _report(self, key: AttemptId) -> None:
        unit = 1 + (self._units.get(key) or self._newest(key))
        self._units[key] = unit
        values = metrics(value_of(key.trial if key.experiment == self._full.search else key.experiment, unit))
        about = {"number": unit, "at": time.time(), "step": 100 * unit, "epoch": float(unit)}
        record = Report(kind="validation", metrics=values, **about)
        self._client.deliver(key, TOKEN, Delivery(records=(record,)))

    def _newest(self, key: AttemptId) -> int:
        reports = self._client.reports(key.experiment, key.trial)
        return max(round(report.epoch) for report in reports)


def live(full: Full) -> list[AttemptId]:
    """Return the attempts of the search that continue to report."""
    return [AttemptId(full.search, 1 + nth, 1) for nth in range(LIVE)]


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def measure(
    connection: Connection, wanted: dict[str, Callable[[random.Random], str]], count: int, rounds: int
) -> dict[str, str]:
    """Return a line for each request: the median over the rounds of the 95th percentile and of the median."""
    draw, found = random.Random(0), {}
    for name, path in wanted.items():
        first, size = connection.get(path(draw))
        cpu = connection.cpu_s()
        times = [[connection.get(path(draw))[0] for _ in range(count)] for _ in range(rounds)]
        spent = 1000 * (connection.cpu_s() - cpu) / count / rounds
        high, middle = (statistics.median(map(each, times)) for each in (p95, statistics.median))
        wall = f"p95 {high:6.1f} ms  p50 {middle:6.1f} ms  first {first:7.1f} ms"
        found[name] = f"{wall}  CPU {spent:5.1f} ms  {size / 1000:4.0f} kB"
    return found


def served(world: World, full: Full, options: argparse.Namespace) -> None:
    """Print the times of requests, at rest and while trials report, and the memory of the service."""
    client = world.serve()
    connection = Connection(world.home)
    process = connection.process
    print(f"service: {process.memory_info().rss / 2**20:.0f} MiB when it has started")
    wanted = requests(full, options.experiments)
    for name, line in measure(connection, wanted, options.count, options.rounds).items():
        print(f"  {name:32}{line}")
    print(f"service: {process.memory_info().rss / 2**20:.0f} MiB; now while {options.rate} reports a second arrive:")
    with Reporter(client, full, options.rate).reporting(live(full)):
        time.sleep(2)
        for name, line in measure(connection, wanted, options.count, options.rounds).items():
            print(f"  {name:32}{line}")
    print(f"service: {process.memory_info().rss / 2**20:.0f} MiB")


def drawn(world: World, full: Full, options: argparse.Namespace) -> None:
    """Print first paint and frame times of the search in a tab of JupyterLab, and of the list in the panel."""
    from playwright.sync_api import sync_playwright

    from tests.browser import chromium
    from tests.browser.jupyter import Jupyter
    from tests.browser.lab import Lab

    client = world.serve()
    jupyter = Jupyter(world, world.home.parent / f"lab-{time.time():.0f}")
    reporter = Reporter(client, full, options.rate)
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        if browser is None:
            sys.exit(chromium.MISSING)
        try:
            jupyter.start()
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            context.set_default_timeout(90_000)
            lab = Lab(context.new_page(), jupyter).open()
            page = lab.page
            print(frames(browser, page, "an empty JupyterLab", options))
            print(f"panel: list painted in {painted(page, LISTED, lambda: lab.command('daylight:show-panel')):.0f} ms")
            for nth in ("first", "again", "again"):
                took = painted(page, PAINTED, lambda: lab.command("daylight:open", number=full.search))
                print(f"search: painted in {took:.0f} ms ({nth})")
                shoot(page, options, "search")
                lab.command("application:close-all")
                page.wait_for_timeout(1000)
            painted(page, PAINTED, lambda: lab.command("daylight:open", number=full.search))
            for tab in ("Progress", "Curves", "Parameters", "Pairs"):
                page.get_by_role("tab", name=tab).click()
                page.wait_for_timeout(2000)
                with reporter.reporting(live(full)):
                    print(frames(browser, page, f"search, {tab}", options))
                shoot(page, options, f"search-{tab}")
            lab.command("application:close-all")
            compare = lambda: lab.command("daylight:open", numbers=list(full.compared))  # noqa: E731
            print(f"comparison of {COMPARED}: painted in {painted(page, COMPARISON, compare):.0f} ms")
            with reporter.reporting([AttemptId(number, 1, 1) for number in full.compared]):
                print(frames(browser, page, f"comparison of {COMPARED}", options))
            shoot(page, options, "comparison")
            lab.command("application:close-all")
            tabulated(browser, lab, full.search, options)  # last: what reports meanwhile would count as lost
        finally:
            browser.close()
            jupyter.close()


def tabulated(browser: Any, lab: Any, total: int, options: argparse.Namespace) -> None:
    """Print first paint, sorts, filters and frame times of the table of experiments."""
    page = lab.page
    for nth in ("first", "again"):
        began = time.monotonic()
        took = painted(page, TABULATED, lambda: lab.command("daylight:table"))
        page.wait_for_function(COMPLETE, arg=f"{total:,} experiments")
        print(f"table: painted in {took:.0f} ms, all rows after {time.monotonic() - began:.1f} s ({nth})")
        if nth == "first":
            lab.command("application:close-all")
            page.wait_for_timeout(1000)
    page.evaluate(DRAWN)
    clock = page.context.new_cdp_session(page)
    clock.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used() -> float:
        metrics = clock.send("Performance.getMetrics")["metrics"]
        return 1000 * sum(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    texts = [text[:end] for text in TYPED for end in range(len(text) + 1)]
    runs: tuple[tuple[str, str, Sequence[int | str]], ...] = (("sort", SORTED, range(100)), ("filter", FILTERED, texts))
    for what, script, arguments in runs:
        times, cpu = [], []
        for argument in arguments:
            before = used()
            times.append(page.evaluate(script, argument))
            cpu.append(used() - before)
        print(f"table: a {what} p50 {statistics.median(times):.0f}, p95 {p95(times):.0f} ms, CPU p95 {p95(cpu):.0f} ms")
    page.evaluate(SCROLLING)
    print(frames(browser, page, "table, scrolled", options))
    shoot(page, options, "table")
    lab.command("application:close-all")
    page.wait_for_timeout(1000)


def frames(browser: Any, page: Any, what: str, options: argparse.Namespace) -> str:
    """Return a line about the frames of the next seconds."""
    page.evaluate(FRAMES)
    browser.start_tracing(page=page, categories=list(TRACED))
    page.wait_for_timeout(1000 * options.seconds)
    trace = json.loads(browser.stop_tracing())["traceEvents"]
    page.evaluate("() => { window.framed = false; }")
    apart, work, cpu = frames_in(trace)
    late = sum(each > 25 for each in apart) / len(apart)
    return (
        f"frames, {what:28} work p95 {p95(work):5.1f} ms, most {max(work):5.1f} ms, of CPU p95 {p95(cpu):5.1f} ms; "
        f"{p95(apart):5.1f} ms apart, {late:.1%} of {len(apart)} late"
    )


def frames_in(trace: Sequence[dict[str, Any]]) -> tuple[list[float], list[float], list[float]]:
    """Return the milliseconds between frames, and those of work in each, by the clock and in time of the CPU.

    They are those of the page's thread in a trace of Chromium: the one with the most frames.
    """
    begun: dict[tuple[int, int], list[float]] = {}
    for event in trace:
        if event.get("name") == FRAME and "dur" in event:
            begun.setdefault((event["pid"], event["tid"]), []).append(event["ts"])
    thread, starts = max(begun.items(), key=lambda each: len(each[1]))
    starts.sort()
    work, cpu = [0.0] * len(starts), [0.0] * len(starts)
    for event in trace:
        if event.get("name") == TASK and (event["pid"], event["tid"]) == thread and "dur" in event:
            nth = bisect.bisect_right(starts, event["ts"] + event["dur"]) - 1  # a frame begins within a task
            work[nth] += event["dur"] / 1000 if nth >= 0 else 0
            cpu[nth] += event.get("tdur", 0) / 1000 if nth >= 0 else 0
    apart = [(after - before) / 1000 for before, after in itertools.pairwise(starts)]
    return apart, work[:-1], cpu[:-1]


def shoot(page: Any, options: argparse.Namespace, name: str) -> None:
    if options.screenshots:
        page.screenshot(path=options.screenshots / f"{name}.png")


def painted(page: Any, look: str, ask: Callable[[], None]) -> float:
    """Return the milliseconds from the call of `ask` to the frame in which the page has drawn what `look` waits for.

    `look` is a script that returns the present time and later sets `window.painted` to the time of that frame.
    """
    began = page.evaluate(look)
    ask()
    page.wait_for_function("() => window.painted !== null", polling=20)
    return float(page.evaluate("() => window.painted") - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000, help="of the search (default: %(default)s)")
    parser.add_argument("--reports", type=int, default=50, help="of each of them (default: %(default)s)")
    parser.add_argument("--experiments", type=int, default=10_000, help="of one trial (default: %(default)s)")
    parser.add_argument("--method", default="random", help="of the search (default: %(default)s)")
    parser.add_argument("--count", type=int, default=20, help="requests of a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--rate", type=float, default=10.0, help="reports a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of frames (default: %(default)s)")
    parser.add_argument("--home", type=Path, help="a filled home, which is kept; filled unless it exists")
    parser.add_argument("--no-browser", action="store_true", help="requests and memory only")
    parser.add_argument("--no-requests", action="store_true", help="the browser only")
    parser.add_argument("--screenshots", type=Path, help="a folder for pictures of what is measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder) / "home"
        full, new = Full(options.experiments, options.trials), not (home / "daylight.db").exists()
        world = World(home)
        try:
            if new:
                began = time.monotonic()
                fill(home, options.trials, options.reports, options.experiments, options.method)
                print(f"filled in {time.monotonic() - began:.0f} s")
            if not options.no_requests:
                served(world, full, options)
            if not options.no_browser:
                drawn(world, full, options)
        finally:
            world.close()


if __name__ == "__main__":
    main()
