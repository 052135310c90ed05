"""Operate the side panel in a browser, by the roles and names of its elements."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.view import SOON


class Panel:
    """Side panel of one page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.tab = page.locator(".jp-SideBar .lm-TabBar-tab[title^='Daylight']")
        self.root = page.get_by_role("region", name="Daylight", exact=True)

    @property
    def search(self) -> Locator:
        """Return the search box of the panel."""
        return self.root.get_by_role("searchbox", name="Search experiments")

    @property
    def group_by(self) -> Locator:
        """Return the control that groups the experiments."""
        return self.root.get_by_role("combobox", name="Group by")

    @property
    def queue(self) -> Locator:
        """Return the button that opens and closes the queue and the quotas."""
        return self.root.locator("summary", has_text="Queue and quota")

    @property
    def items(self) -> Locator:
        """Return the list items of the experiments."""
        return self.root.get_by_role("list", name="Experiments").get_by_role("listitem")

    @property
    def meter(self) -> Locator:
        """Return the display of the slots in use."""
        return self.root.get_by_role("meter", name="Slots in use")

    @property
    def alert(self) -> Locator:
        """Return the alert that is shown while the service cannot be reached."""
        return self.root.get_by_role("alert")

    def item(self, number: int) -> Locator:
        """Return the button that opens an experiment."""
        return self.root.get_by_role("button", name=re.compile(rf"^#{number}\b"))

    def entry(self, number: int) -> Locator:
        """Return the text of an experiment in the list."""
        return self.items.filter(has=self.page.get_by_role("checkbox", name=f"Compare #{number}", exact=True))

    def chosen(self, number: int) -> Locator:
        """Return an experiment's checkbox for comparisons."""
        return self.root.get_by_role("checkbox", name=f"Compare #{number}", exact=True)

    def button(self, name: str) -> Locator:
        """Return the button with exactly this name."""
        return self.root.get_by_role("button", name=name, exact=True)

    def filter(self, state: str) -> Locator:
        """Return the chip that filters experiments by a state."""
        return self.root.locator("button[aria-pressed]", has_text=re.compile(rf"^{state}", re.IGNORECASE))

    def open(self) -> Panel:
        """Click the panel's icon in the side bar, unless the panel is open."""
        if not self.root.is_visible():
            self.tab.click()
            expect(self.root).to_be_visible(timeout=SOON)
        return self
