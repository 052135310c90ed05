"""Operate a page of JupyterLab or Notebook 7, with a method for each action of a user."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
from playwright.sync_api import ConsoleMessage, Dialog, Error, Locator, Page, Request, expect

from jupyter_ext.views import MIME_TYPE
from tests.browser.jupyter import ROOT, Jupyter
from tests.browser.panel import Panel
from tests.browser.view import LATE, SOON, View
from tests.support import forked_kernels

SCREENSHOTS = ROOT / "build" / "screenshots"
OURS, THEIRS = re.compile("/extensions/daylight/|blob:"), re.compile("/static/(lab|notebook)/|/extensions/@jupyter")
# What the browser itself notes about an answer of 404 or 503 is no fault of the page; nor is it where a stream is asked
# for that the service, which has answered a moment ago, can give no more.
NOTED = re.compile("Failed to load resource|WebSocket connection to .* Unexpected response code: (404|503|504)$")
# JupyterLab asks for a subshell for each comm and listens to no failure of that: a kernel that ends meanwhile leaves
# this behind, without a stack that would tell whose it is. We ask for none.
UNHEARD = "Error: Canceled future for create_subshell_request message before replies were done"
QUIET_MS = 3_000  # without a request: longer than pages pause when something has happened
CURRENT = "window.jupyterapp.shell.currentWidget"
# From here on `daylightSaved` says whether the document in front has been written to its file.
SAVING = f"""() => {{
  const signal = {CURRENT}.context.saveState;
  const heard = (_, state) => {{
    if (state.startsWith('completed')) {{
      signal.disconnect(heard);
      window.daylightSaved = true;
    }}
  }};
  window.daylightSaved = false;
  signal.connect(heard);
}}"""
_count = itertools.count(1)


class Lab:
    """Page of a Jupyter application; `errors` has unexpected console messages."""

    def __init__(self, page: Page, jupyter: Jupyter) -> None:
        self.page, self.jupyter = page, jupyter
        self.panel = Panel(page)
        self.errors: list[str] = []
        self._requests: list[str] = []
        self._workspace = f"w{next(_count)}"
        page.on("pageerror", self._uncaught)
        page.on("console", self._said)
        page.on("request", self._asks)
        page.on("dialog", self._dialog)

    def open(self, notebook: str | None = None) -> Lab:
        """Open the application, with a notebook if given, and wait until its kernel is idle."""
        self.page.goto(self.jupyter.page_url(notebook, self._workspace))
        return self._ready(notebook is not None)

    def open_without_kernel(self, notebook: str) -> Lab:
        """Open a notebook for which no kernel exists."""
        self.open()
        self.show_without_kernel(notebook)
        expect(self.cell(0)).to_be_visible(timeout=SOON)
        return self

    def show_without_kernel(self, notebook: str) -> None:
        """Have a notebook come to the front of a page that is open."""
        self.command("docmanager:open", path=notebook, kernelPreference={"shouldStart": False})

    def reload(self, kernel: bool = True) -> None:
        """Reload the page, and wait until the notebook is shown again."""
        self.page.reload()
        self._ready(kernel)

    def command(self, name: str, **args: Any) -> None:
        """Start a JupyterLab command without waiting for its end."""
        self.page.evaluate("([name, args]) => void window.jupyterapp.commands.execute(name, args)", [name, args])

    def palette(self, label: str) -> None:
        """Run a command from the command palette, by keyboard."""
        self.page.keyboard.press("ControlOrMeta+Shift+C")
        self.page.locator(".lm-CommandPalette-input").fill(label)
        expect(self.page.locator(".lm-CommandPalette-item.lm-mod-active")).to_contain_text(label, timeout=SOON)
        self.page.keyboard.press("Enter")

    def use_theme(self, name: str) -> None:
        """Switch the theme, for this page and later ones."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name, timeout=SOON)

    def tab_to(self, target: Locator) -> None:
        """Press Tab until an element has the focus."""
        for _ in range(40):
            if target.evaluate("node => node === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{target} is not reached by Tab")

    # the notebook

    def cell(self, index: int) -> Locator:
        """Return a cell of the notebook in front."""
        return self.page.locator(".jp-Notebook:visible .jp-Cell").nth(index)

    def run(self, *indices: int) -> None:
        """Click into each cell, press Shift+Enter, and wait until it has run."""
        for index in indices:
            self.cell(index).locator(".cm-content").click()
            self.page.keyboard.press("Shift+Enter")
            prompt = self.cell(index).locator(".jp-InputPrompt")
            expect(prompt).to_have_text(re.compile(r"^\[\d+\]:$"), timeout=LATE)

    def view(self, index: int = 1) -> View:
        """Wait for the view below a cell, and return it."""
        return self._shown(self.cell(index).locator("article.dl-view").last)

    def tab(self, number: int) -> View:
        """Return an experiment's view in a tab, opened from the panel."""
        self.panel.open().item(number).click()
        return self.view_in_tab()

    def view_in_tab(self) -> View:
        """Return the view in the main area's front tab."""
        return self._shown(self.page.locator("#jp-main-dock-panel > .lm-Widget:visible article.dl-view").last)

    def save(self) -> None:
        """Press Ctrl+S, and wait until the file is written; a live view may then have changed the notebook again."""
        self.page.evaluate(SAVING)
        self.page.keyboard.press("ControlOrMeta+s")
        self.page.wait_for_function("() => window.daylightSaved", timeout=SOON)

    def until_kept(self, state: str, index: int = 1, trials: int = 1) -> None:
        """Wait until the notebook in front has saved this state of a cell's experiment, with this many trials."""
        kept = (
            # What is in front may not have the focus yet.
            f"([index, type, state, trials]) => {CURRENT}?.content?.model?.cells?.get(index)?.outputs.toJSON()"
            ".map(output => output.data?.[type]?.overview)"
            ".some(kept => kept?.experiment.state === state && kept.trials.length === trials)"
        )
        self.page.wait_for_function(kept, arg=[index, MIME_TYPE, state, trials], timeout=LATE)

    def changed(self) -> bool:
        """Return True while the open notebook differs from its file."""
        return bool(self.page.evaluate(f"() => {CURRENT}.context.model.dirty"))

    def saved(self, notebook: str) -> Any:
        """Return the notebook's file on disk."""
        return nbformat.read(self.jupyter.notebooks / notebook, as_version=4)

    def until_idle(self) -> None:
        """Wait until the kernel of the notebook in front is idle."""
        # A cell that is run before its kernel is there meets a dialog that asks for one.
        idle = f"() => {CURRENT}?.sessionContext?.isReady && {CURRENT}.sessionContext.kernelDisplayStatus === 'idle'"
        self.page.wait_for_function(idle, timeout=LATE)

    def restart_kernel(self) -> None:
        """Restart the kernel, and wait until it is idle."""
        self.page.evaluate(f"() => {CURRENT}.sessionContext.restartKernel().then(() => null)")
        self.until_idle()

    def shut_kernel_down(self) -> None:
        """Shut the notebook's kernel down."""
        self.page.evaluate(f"() => {CURRENT}.sessionContext.shutdown().then(() => null)")

    def kernel(self) -> psutil.Process:
        """Return the process of the notebook's kernel."""
        id = self.page.evaluate(f"() => {CURRENT}.sessionContext.session.kernel.id")
        return psutil.Process(forked_kernels.kernel(str(self.jupyter.folder / "runtime" / f"kernel-{id}.json")))

    # evidence

    def shot(self, name: str, of: Locator | None = None) -> Path:
        """Save a screenshot of the page, or of an element, among the artefacts."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        (of or self.page).screenshot(path=path, animations="disabled")
        return path

    def asked(self, pattern: str) -> int:
        """Return the number of the page's requests so far that match a pattern, such as `POST .*/bundle/`."""
        return sum(1 for each in self._requests if re.search(pattern, each))

    def requested(self, pattern: re.Pattern[str]) -> set[str]:
        """Return what a pattern's group matches in the page's requests since it was opened."""
        return {found[1] for each in self._requests if (found := pattern.search(each))}

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true, while the page's events are processed."""
        deadline = time.monotonic() + LATE / 1000
        while not look():
            assert time.monotonic() < deadline, f"did not happen: {what}"
            self.page.wait_for_timeout(100)

    def until_quiet(self, pattern: str) -> None:
        """Wait until the page has sent no request that matches a pattern for some time."""
        before = -1
        while before != (before := self.asked(pattern)):
            self.page.wait_for_timeout(QUIET_MS)

    def _ready(self, kernel: bool) -> Lab:
        self.page.wait_for_function("() => !!window.jupyterapp", timeout=LATE)
        self.page.evaluate("() => window.jupyterapp.restored.then(() => null)")
        # What comes to the front last (a launcher, where there is nothing else) takes the focus away.
        self.page.wait_for_function(f"() => !!{CURRENT}", timeout=LATE)
        if kernel:
            self.until_idle()
        return self

    def _shown(self, root: Locator) -> View:
        expect(root).to_be_visible(timeout=SOON)
        return View(root)

    def _uncaught(self, error: Error) -> None:
        stack = error.stack or ""
        # Notebook 7 and the widget manager have errors of their own.
        if error.message != UNHEARD and (OURS.search(stack) or not THEIRS.search(stack)):
            self.errors.append(f"uncaught: {error.message}\n{stack}")

    def _said(self, message: ConsoleMessage) -> None:
        where = message.location.get("url", "")
        ours = OURS.search(where) is not None or "aylight" in message.text
        if message.type == "error" and ours and not NOTED.match(message.text):
            self.errors.append(f"console: {message.text} ({where})")

    def _asks(self, request: Request) -> None:
        self._requests.append(f"{request.method} {request.url}")

    def _dialog(self, dialog: Dialog) -> None:
        if dialog.type != "beforeunload":
            self.errors.append(f"dialog: {dialog.message}")
        dialog.accept()
