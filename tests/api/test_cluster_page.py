"""Test how the cluster page is served: with a strict security policy, and bundle names that depend on the content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kernel_backend.api import cluster_page, pages
from kernel_backend.api.cluster_page import PAGES
from tests.api.served import Served, StillEngine


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """Provide a client of a service whose bundle consists of two small files."""
    bundle = tmp_path / "static"
    bundle.mkdir()
    (bundle / "main-ABC123.js").write_text("draw()")
    (bundle / "main-DEF456.css").write_text("body {}")
    (bundle / "experiment-GHI789.js").write_text("draw(12)")
    (bundle / "experiment-JKL012.css").write_text("article {}")
    (bundle / "part-MNO345.js").write_text("search()")
    (tmp_path / "main-SECRET.js").write_text("no")
    for module in (cluster_page, pages):
        monkeypatch.setattr(module, "BUNDLE", bundle)
    (tmp_path / "home").mkdir()
    served = Served(tmp_path / "home", StillEngine(), pages=PAGES)
    with httpx.Client(base_url=served.url, trust_env=False, timeout=120) as client:
        yield client
    served.stop()


def test_the_document_names_its_bundle_and_allows_nothing_else(page):
    answer = page.get("/")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.headers["Cache-Control"] == "no-store"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert re.findall(r'(?:src|href)="(static/[^"]+)"', answer.text) == [
        "static/main-DEF456.css",
        "static/main-ABC123.js",
    ]
    assert not re.search(r"<script[^>]*>[^<]|<style|\son\w+=", answer.text)


def test_the_documents_of_experiments_are_the_same_whether_or_not_they_exist(page):
    one, other = page.get("/experiments/1"), page.get("/experiments/999999999")
    assert (one.status_code, one.text) == (200, other.text)
    assert re.findall(r'(?:src|href)="([./]*static/[^"]+)"', one.text) == [
        "../static/experiment-JKL012.css",
        "../static/experiment-GHI789.js",
    ]
    assert "img-src 'self' blob: data:" in one.headers["Content-Security-Policy"]
    assert page.get("/static/part-MNO345.js").text == "search()"
    assert page.get("/experiments/one").status_code == 401


def test_a_bundle_is_kept_for_good_and_only_bundles_are_there(page):
    script, style = page.get("/static/main-ABC123.js"), page.get("/static/main-DEF456.css")
    assert (script.text, style.text) == ("draw()", "body {}")
    assert script.headers["Content-Type"].startswith("text/javascript")
    assert style.headers["Content-Type"].startswith("text/css")
    assert "immutable" in script.headers["Cache-Control"]
    gone = page.get("/static/main-0LD.js")
    assert (gone.status_code, gone.headers["Cache-Control"]) == (404, "no-store")
    for path in ("/static/", "/static/..%2Fmain-SECRET.js", "/static/%2e%2e/main-SECRET.js", "/static/main-SECRET.js"):
        assert page.get(path).status_code in (401, 404), path


def test_what_was_not_built_says_how(page):
    for path in pages.BUNDLE.iterdir():
        path.unlink()
    answer = page.get("/")
    assert answer.status_code == 404
    assert "npm run build" in answer.text


def test_its_api_is_for_nobody_without_a_token(page):
    assert page.get("/api/nodes").status_code == 401
