"""Lead links to files outside of docs/ (code, tests, notebooks) to the repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class RepositoryLinks(SphinxTransform):
    """Replace each link to a file that is no page by a link to that file in the repository."""

    default_priority = 5  # before Sphinx copies what a page offers for download

    def apply(self, **_: Any) -> None:
        """Rewrite the links of one page."""
        page = Path(self.env.doc2path(self.env.docname))
        root = Path(self.app.srcdir).parent
        for node in list(self.document.findall(download_reference)):
            path = Path(os.path.normpath(page.parent / node["reftarget"]))
            if path.is_relative_to(root) and not path.is_relative_to(self.app.srcdir):
                url = f"{self.config.repository_url}/blob/main/{path.relative_to(root).as_posix()}"
                node.replace_self(nodes.reference("", "", *(child.deepcopy() for child in node.children), refuri=url))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform with Sphinx."""
    app.add_config_value("repository_url", "", "env")
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True}
