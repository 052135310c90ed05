"""Settings of the documentation's site: `make docs` builds it from these pages, without a network."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_ext")]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Documentation"].partition("/tree/")[0]
OWNER, NAME = REPOSITORY.split("/")[-2:]

project = "Daylight"
author = PROJECT["authors"][0]["name"]
copyright = author
release = version = PROJECT["version"]

extensions = [
    "myst_nb",
    "numpydoc",
    "repository_links",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "state_diagrams",
]
exclude_patterns = ["README.md", "_build", "_ext"]
nitpicky = True
# What annotations name beyond Daylight: no other project's index is fetched.
nitpick_ignore_regex = [("py:.*", r"(?!daylight\b).*")]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
repository_url = REPOSITORY

# The notebooks are stored with their outputs: to run them takes minutes (scripts/gallery.py).
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autosummary_generate = True
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "Daylight"
html_static_path = ["_static"]
html_css_files = ["daylight.css"]
html_copy_source = False
html_show_sourcelink = False
html_context = {
    "github_user": OWNER,
    "github_repo": NAME,
    "github_version": "main",
    "doc_path": "docs",
    "default_mode": "auto",
}
html_theme_options = {
    "github_url": REPOSITORY,
    "use_edit_page_button": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc", "edit-this-page"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
