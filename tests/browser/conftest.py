"""Provide a browser, Jupyter applications shared by all tests, and pages whose console errors fail the test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from playwright.sync_api import Browser, BrowserContext, Playwright, expect, sync_playwright

from tests.browser import chromium
from tests.browser.jupyter import LABEXTENSION, Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, Gate, submitting, write
from tests.browser.view import SOON
from tests.support import forked_kernels
from tests.support.world import World

_count = itertools.count(1)
expect.set_options(timeout=SOON)


def cannot(why: str) -> NoReturn:
    """Skip the test with a reason; in CI, fail instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    # No longer than for this folder: it keeps an event loop running, and other tests want one of their own.
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = chromium.launch(playwright)
    if browser is None:
        cannot(chromium.MISSING)
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide one home for all Jupyter applications."""
    world = World(tmp_path_factory.mktemp("browser") / "home", shared_forkserver=True)
    world.serve()
    yield world
    world.close()


@pytest.fixture(scope="package")
def applications(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Jupyter]]:
    """Provide a function that returns an application by name, starting it at its first use."""
    started: dict[str, Jupyter] = {}

    def application(name: str, **options: Any) -> Jupyter:
        if name not in started:
            if options.get("ours", True) and not (LABEXTENSION / "package.json").exists():
                cannot("jupyter_ext/labextension is not built: run npm run build")
            started[name] = Jupyter(world, tmp_path_factory.mktemp(name), **options)
            forked_kernels.write_kernelspec(started[name].extra_data, world.home)
            started[name].start()
        return started[name]

    yield application
    for jupyter in started.values():
        jupyter.close()


@pytest.fixture
def jupyterlab(applications: Callable[..., Jupyter]) -> Jupyter:
    return applications("lab")


@pytest.fixture(scope="package")
def profile(browser: Browser) -> BrowserContext:
    """Provide the browser profile of all pages of JupyterLab, whose code is then fetched and compiled once."""
    # Without motion: drawing the pulse of a live view in software takes a sixth of a core.
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(SOON)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    return context


def fresh_pages(
    profile: BrowserContext, request: pytest.FixtureRequest, world: World
) -> Iterator[Callable[[Jupyter], Lab]]:
    """Open new pages, which begin with nothing stored in the browser; errors in their consoles fail the test."""
    made: list[Lab] = []

    def page(jupyter: Jupyter) -> Lab:
        tab = profile.new_page()
        tab.goto(f"{jupyter.url}api")  # where there is no page that would store anything
        tab.evaluate("localStorage.clear()")
        made.append(Lab(tab, jupyter))
        return made[-1]

    yield page
    failed = getattr(request.node, "failed", False)
    for number, lab in enumerate(made):
        if failed and not lab.page.is_closed():
            lab.shot(f"failed-{request.node.name}-{number}")
        if not lab.page.is_closed():
            lab.page.close()
    for jupyter in {lab.jupyter for lab in made}:
        jupyter.end_kernels()
    world.serve()  # a test may have ended where nobody was left to miss a service that it had killed
    complaints = [error for lab in made for error in lab.errors]
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def pages(profile: BrowserContext, request: pytest.FixtureRequest, world: World) -> Iterator[Callable[[Jupyter], Lab]]:
    """Provide new pages to one test."""
    yield from fresh_pages(profile, request, world)


@pytest.fixture(scope="module")
def lasting_pages(
    profile: BrowserContext, request: pytest.FixtureRequest, world: World
) -> Iterator[Callable[[Jupyter], Lab]]:
    """Provide new pages to all tests of a file, as loading a page takes seconds."""
    yield from fresh_pages(profile, request, world)


@pytest.fixture
def lab(pages: Callable[[Jupyter], Lab], jupyterlab: Jupyter) -> Lab:
    """Provide a page of JupyterLab that has not been opened yet."""
    return pages(jupyterlab)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Provide a gate that holds a test's experiments; it opens at the end, so that all of them finish."""
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()


@pytest.fixture
def notebook(jupyterlab: Jupyter, gate: Gate) -> str:
    """Provide a notebook whose second cell submits an experiment that the gate holds."""
    path = jupyterlab.notebooks / f"n{next(_count)}.ipynb"
    return write(path, LOAD, submitting(gate.definition))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    for node in filter(None, (item, item.getparent(pytest.Module))):
        node.failed = getattr(node, "failed", False) or report.failed  # type: ignore[attr-defined]
    return report
