"""Operate the cluster page in a browser, by the roles and names of its elements."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, expect

from tests.browser.lab import SCREENSHOTS
from tests.browser.view import SOON, View

REFUSALS = "Failed to load resource"  # what the browser itself notes about an answer of 400 or 403


class ClusterPage:
    """Tab with the cluster page; it records errors in the console, including violations of the security policy."""

    def __init__(self, context: BrowserContext) -> None:
        context.set_default_timeout(SOON)
        self.page: Page = context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error.message}\n{error.stack}"))
        self.page.on("console", self._said)

    def open(self, url: str) -> ClusterPage:
        """Load the page, and wait until it shows the current user."""
        self.page.goto(url)
        expect(self.heading("Your use")).to_be_visible()
        return self

    def go(self, view: str) -> ClusterPage:
        """Go to another view by its link."""
        link = self.page.get_by_role("link", name=view, exact=True)
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        expect(self.heading("Your use" if view == "Cluster" else view)).to_be_visible()
        return self

    def experiment(self, number: int) -> View:
        """Return the view of the experiment whose page was opened, once it is there."""
        view = View(self.page.get_by_role("article", name=re.compile(rf"^Experiment #{number}\b")))
        view.until_connection("live", "ended")
        return view

    def heading(self, name: str) -> Locator:
        """Return the title of a section."""
        return self.page.get_by_role("heading", name=name, exact=True)

    def table(self, name: str) -> Locator:
        """Return the table with this name."""
        return self.page.get_by_role("table", name=name, exact=True)

    def row(self, table: str, text: str | re.Pattern[str]) -> Locator:
        """Return the row of a table that contains this text."""
        return self.table(table).locator("tbody").get_by_role("row").filter(has_text=text)

    def filled(self, *tables: str) -> None:
        """Wait until these tables have rows; some are loaded by requests of their own."""
        for name in tables:
            expect(self.row(name, "").first).to_be_visible()

    def number(self, name: str) -> Locator:
        """Return an input for a number, such as `Limit of dave`."""
        return self.page.get_by_role("button", name=re.compile(f"^{re.escape(name)}: "))

    def type(self, name: str, text: str) -> Locator:
        """Change a number with the keyboard alone, and return its input."""
        self.number(name).focus()
        self.page.keyboard.press("Enter")
        field = self.page.get_by_role("textbox", name=name, exact=True)
        expect(field).to_be_focused()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")
        return field

    def button(self, name: str) -> Locator:
        """Return the button with exactly this name."""
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def said(self) -> Locator:
        """Return the message about the last action."""
        return self.page.locator(".dl-said-text")

    @property
    def alert(self) -> Locator:
        """Return the message about a lost connection or a refused action."""
        return self.page.get_by_role("alert")

    def shot(self, name: str) -> Path:
        """Save a screenshot among the artefacts."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        self.page.screenshot(path=path, animations="disabled")
        return path

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(REFUSALS):
            self.errors.append(f"console: {message.text}")
