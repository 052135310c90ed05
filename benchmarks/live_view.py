"""Measure how soon a report is drawn, its cost in the kernel, and how soon a long experiment is drawn.

    python benchmarks/live_view.py [--seconds 30]

Measured in a real JupyterLab in a real Chromium, against an ipywidgets + plotly FigureWidget that a thread of the
kernel updates from the same stream, as a user would write it by hand. Both watch the same running experiment, one after
the other. The time of a report is by its rank's clock, and the time of its drawing by the page's clock, in the frame in
which the new step was drawn; both clocks are those of this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from kernel_backend.client import Client  # noqa: E402
from kernel_backend.model.ids import AttemptId  # noqa: E402
from kernel_backend.model.reports import Report  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.browser.jupyter import Jupyter  # noqa: E402
from tests.browser.lab import Lab  # noqa: E402
from tests.browser.notebooks import LOAD, write  # noqa: E402
from tests.support.world import World, until  # noqa: E402

MANY = 100_000  # reports of the long experiment
PEER = """
import threading
import plotly.graph_objects as go
from IPython.display import display
from kernel_backend.client import Client

client, steps, losses = Client.connect(), [], []
figure = go.FigureWidget()
figure.add_scatter(name="training")
display(figure)

def follow():
    for message in client.watch(0, {number}):
        if message.type == "report" and message.data["kind"] == "training":
            steps.append(message.data["step"])
            losses.append(message.data["metrics"]["loss"])
            with figure.batch_update():
                figure.data[0].x, figure.data[0].y = steps, losses
                figure.layout.title.text = f"step {{steps[-1]}}"

threading.Thread(target=follow, daemon=True).start()
"""
PEER_AT_ONCE = """
import plotly.graph_objects as go
from kernel_backend.client import Client
reports = Client.connect().reports({number}, kind="training")
figure = go.FigureWidget()
figure.add_scatter(x=[each.step for each in reports], y=[each.metrics["loss"] for each in reports])
figure.layout.title.text = f"step {{reports[-1].step}}"
figure
"""
# Notes the time of each frame in which another step is seen than in the frame before.
SEEN = """
() => {
  window.seen = [];
  let last = '';
  const look = () => {
    const view = document.querySelector('article.dl-view');
    const title = document.querySelector('.gtitle');
    const step = view?.dataset.step ?? title?.textContent?.replace('step ', '') ?? '';
    if (step !== last) { last = step; window.seen.push([Number(step), Date.now() / 1000]); }
    requestAnimationFrame(look);
  };
  look();
}
"""


def main() -> None:
    """Print the figures of both sides and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to watch each")
    seconds = parser.parse_args().seconds
    if importlib.util.find_spec("plotly") is None:
        sys.exit("the peer is not installed: `make bench` installs it, or pip install 'plotly>=6'")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        if browser is None:
            sys.exit(chromium.MISSING)
        world = World(Path(folder) / "home")
        client = world.serve()
        jupyter = Jupyter(world, Path(folder) / "lab")
        try:
            jupyter.start()
            watched(world, client, browser, jupyter, seconds)
            first_paint(world, browser, jupyter)
            sizes()
        finally:
            browser.close()
            jupyter.close()
            world.close()


def watched(world: World, client: Client, browser: Browser, jupyter: Jupyter, seconds: float) -> None:
    """Print the delay of the drawing and the kernel's CPU time, for each kind of view in turn."""
    number = world.submit(slots=1, epochs=100_000, pause=0.05).experiment.number
    world.reached(number, 50)
    cells = {
        "MIME view": f"%dl show {number}",
        "anywidget": f"%dl show {number} --view widget",
        "FigureWidget": PEER.format(number=number),
    }
    found = {}
    for name, cell in cells.items():
        page, notebook = opened(browser, jupyter, name, cell)
        kernel = kernel_of(jupyter, notebook)
        page.page.evaluate(SEEN)
        page.page.wait_for_timeout(3000)  # the first drawing is not what is measured
        began, cpu = time.time(), sum(kernel.cpu_times()[:2])
        page.page.wait_for_timeout(seconds * 1000)
        share = (sum(kernel.cpu_times()[:2]) - cpu) / (time.time() - began)
        seen = [(step, at) for step, at in page.page.evaluate("() => window.seen") if at > began]
        page.page.context.close()
        jupyter.request("DELETE", f"api/sessions/{session_of(jupyter, notebook)['id']}")
        found[name] = (lags(client, number, seen), share)
    client.stop(number)
    for name, (lag, share) in found.items():
        print(f"{name:13}  report to pixel {spread(lag)}  ({len(lag)} steps seen)  kernel {share:6.1%} of a core")


def spread(lag: list[float]) -> str:
    """Return the median and the 95th percentile."""
    if len(lag) < 2:
        return "none: it never drew a newer one"
    p50, p95 = statistics.median(lag), statistics.quantiles(lag, n=20)[-1]
    return f"p50 {p50 * 1000:5.0f} ms  p95 {p95 * 1000:5.0f} ms"


def lags(client: Client, number: int, seen: list[tuple[int, float]]) -> list[float]:
    """Return the seconds from each report that was drawn as the newest to its drawing."""
    told = {report.step: report.at for report in client.reports(number, kind="training")}
    return [at - told[step] for step, at in seen if step in told]


def first_paint(world: World, browser: Browser, jupyter: Jupyter) -> None:
    """Print the seconds from opening an experiment of many reports to the frame in which it is drawn."""
    number = world.submit(slots=1, epochs=1).experiment.number
    newest = world.ended(number).trials[0].step
    world.kill_service()
    fill(world, number, newest)
    world.serve()
    page, _ = opened(browser, jupyter, "paint", PEER_AT_ONCE.format(number=number), run=False)
    page.page.evaluate(SEEN)
    ours = painted(page, lambda: page.command("daylight:open", number=number))
    again = painted(page, lambda: page.command("daylight:open", number=number), reload=True)
    page, _ = opened(browser, jupyter, "paint-peer", PEER_AT_ONCE.format(number=number), run=False)
    page.page.evaluate(SEEN)
    theirs = painted(page, lambda: page.cell(1).locator(".cm-content").press("Shift+Enter"))
    print(
        f"{MANY:,} reports: first paint {ours:.2f} s (again {again:.2f} s), FigureWidget {theirs:.2f} s, "
        f"ratio {ours / theirs:.2f}"
    )


def painted(page: Lab, ask: Any, reload: bool = False) -> float:
    """Return the seconds from the call of `ask` until a step is shown."""
    if reload:
        page.reload(kernel=False)  # in front is the tab of the experiment
        page.command("application:close-all")
        page.page.wait_for_timeout(1000)
        page.page.evaluate(SEEN)
    before = time.time()
    ask()
    page.page.wait_for_function("() => window.seen.some(([step]) => step > 0)", polling=20)
    return next(at for step, at in page.page.evaluate("() => window.seen") if step > 0) - float(before)


def fill(world: World, number: int, newest: int) -> None:
    """Give an experiment many reports, like those of a long training."""
    from kernel_backend.store.sql import SqlStore

    store, key = SqlStore(world.home / "daylight.db"), AttemptId(number, 1, 1)
    accepted, now = store.attempt(key).accepted, time.time()
    for begin in range(0, MANY, 10_000):
        records = [
            Report(
                number=accepted + 1 + index,
                at=now + index * 0.01,
                kind="training",
                step=newest + 1 + index,
                epoch=1 + index / 1000,
                metrics={"loss": 1 / (1 + index / 500), "lr": 1e-3},
            )
            for index in range(begin, begin + 10_000)
        ]
        store.accept(key, records, now)
    store.close()


def opened(browser: Browser, jupyter: Jupyter, name: str, cell: str, run: bool = True) -> tuple[Lab, str]:
    """Open a page with a new notebook, and run its second cell, `cell`."""
    notebook = write(jupyter.notebooks / f"{name.replace(' ', '-')}.ipynb", LOAD, cell)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(90_000)
    page = Lab(context.new_page(), jupyter).open(notebook)
    if run:
        page.run(0, 1)
    return page, notebook


def session_of(jupyter: Jupyter, notebook: str) -> Any:
    """Return the session of a notebook."""
    return next(each for each in jupyter.request("GET", "api/sessions") if each["path"] == notebook)


def kernel_of(jupyter: Jupyter, notebook: str) -> psutil.Process:
    """Return the process of a notebook's kernel."""
    kernel = session_of(jupyter, notebook)["kernel"]["id"]

    def look() -> psutil.Process | None:
        lines = {each: " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])}
        return next((each for each, line in lines.items() if f"kernel-{kernel}" in line), None)

    return until(look, "the kernel is found")


def sizes() -> None:
    """Print the kilobytes of JavaScript that a page loads for our view and for plotly's FigureWidget."""
    import plotly

    ours = sum(file.stat().st_size for file in (ROOT / "jupyter_ext/labextension/static").glob("*.js"))
    widget = sum(file.stat().st_size for file in (ROOT / "jupyter_ext/views/static").iterdir())
    theirs = (Path(plotly.__file__).parent / "package_data" / "widgetbundle.js").stat().st_size
    print(
        f"bundle {ours / 1000:.0f} kB in JupyterLab, {widget / 1000:.0f} kB as a widget, "
        f"FigureWidget {theirs / 1000:.0f} kB, ratio {ours / theirs:.3f}"
    )


if __name__ == "__main__":
    main()
