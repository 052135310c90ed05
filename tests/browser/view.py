"""Operate the view of one experiment in a browser, by the roles and names of its elements."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from tests.support.world import until

SOON, LATE = 120_000, 600_000  # milliseconds: for the page alone; where something is to be started or trained
# What observes sizes hears of a new one in the first frame, and has drawn in the next.
FRAMES = """async () => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
}"""


class View:
    """View of one experiment: an element `<article class="dl-view">`."""

    def __init__(self, root: Locator) -> None:
        self.root = root

    @property
    def chip(self) -> Locator:
        """Return the chip with the state and its reason."""
        return self.root.locator(".dl-chip")

    @property
    def note(self) -> Locator:
        """Return the message about the view's connection."""
        return self.root.locator(".dl-connection")

    @property
    def progress(self) -> Locator:
        """Return the progress bar."""
        return self.root.get_by_role("progressbar").first

    @property
    def curve(self) -> Locator:
        """Return the curves, one figure for each metric."""
        return self.root.get_by_role("figure")

    @property
    def question(self) -> Locator:
        """Return the dialog that asks to confirm a stop."""
        return self.root.get_by_role("alertdialog")

    @property
    def log(self) -> Locator:
        """Return the text of the open log."""
        return self.root.get_by_role("log")

    @property
    def step(self) -> int:
        """Return the step that the view shows."""
        return int(self.root.get_attribute("data-step") or 0)

    def part(self, name: str) -> Locator:
        """Return a part that the menu opens: Source, Rerun or Differences."""
        return self.root.get_by_role("region", name=name, exact=True)

    def button(self, name: str) -> Locator:
        """Return the button with exactly this name."""
        return self.root.get_by_role("button", name=name, exact=True)

    def item(self, name: str) -> Locator:
        """Return the item with exactly this name of the open menu."""
        return self.root.get_by_role("menuitem", name=name, exact=True)

    def choose(self, name: str) -> None:
        """Choose an item of the menu."""
        self.button("More actions").click()
        self.item(name).click()

    def until_state(self, *states: str) -> None:
        """Wait until the view shows the experiment in one of these states."""
        expect(self.root).to_have_attribute("data-state", _one_of(states), timeout=LATE)

    def until_connection(self, *connections: str) -> None:
        """Wait until the view's connection is `live`, `lost`, and so on."""
        expect(self.root).to_have_attribute("data-connection", _one_of(connections), timeout=LATE)

    def until_it_moves(self, by: int = 1) -> int:
        """Wait until the view shows a later step than now, and return that step."""
        target = self.step + by
        # Looked for anew each time: an output that is drawn again is another element.
        until(lambda: self.step >= target, f"step {target} is shown", LATE / 1000)
        return self.step

    def open_log(self) -> None:
        """Open the log unless it is open, and wait until it has text."""
        if not self.log.is_visible():
            self.root.locator("summary", has_text=re.compile("^Log")).click()
        expect(self.log).to_have_text(re.compile("."), timeout=SOON)


def narrow(node: Locator, width: int) -> None:
    """Set an element's width to less than the minimum width of JupyterLab's panels."""
    node.evaluate("(node, width) => { node.style.cssText += `min-width: 0; width: ${width}px !important`; }", width)
    node.page.evaluate(FRAMES)


def overflow(node: Locator) -> int:
    """Return by how many pixels the content of an element is wider than the element."""
    return int(node.evaluate("node => node.scrollWidth - node.clientWidth"))


def _one_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"^({'|'.join(words)})$")
