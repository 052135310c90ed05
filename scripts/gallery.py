"""Execute the notebooks of `binder/` and store them with their outputs in `docs/tutorials/`, for the documentation.

python scripts/gallery.py [NAME ...]     without names, all except `keras-tensorflow`; some minutes each

`keras-tensorflow` needs a Python with TensorFlow (`tests/support/tensorflow.py` makes one).
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import demo  # noqa: E402

from tests.support.object_store import object_store  # noqa: E402

GALLERY = ROOT / "docs" / "tutorials"
NAMES = (
    "quickstart", "search", "predict", "judge", "bucket", "architectures", "gan", "reinforce", "lightning",
    "hugging-face", "cnn", "text", "time-series", "contrastive", "diffusion", "lora", "keras", "raw-loop",
)  # fmt: skip
COLOURS = 64  # of a picture: a repository keeps every version of it
EXPERIMENT = "application/vnd.daylight.experiment+json"


def smaller(png: str) -> str:
    """Return the picture with fewer colours."""
    stored = io.BytesIO()
    Image.open(io.BytesIO(b64decode(png))).convert("RGB").quantize(COLOURS).save(stored, "png", optimize=True)
    return b64encode(stored.getvalue()).decode()


def without_view(output: Any) -> Any:
    """Return the parts of an output that a page without JupyterLab can show."""
    data = output.get("data", {})
    if data.pop(EXPERIMENT, None) is not None and "image/png" in data:
        del data["text/html"]  # the same picture once more
    if "image/png" in data:
        data["image/png"] = smaller(data["image/png"])
    return output


def page(notebook: Any) -> Any:
    """Return an executed notebook as a page: outputs that any browser shows, links from its place in docs/.

    What libraries write to stderr is left out, such as warnings with paths of this machine.
    """
    for cell in notebook.cells:
        cell.metadata = {}
        cell.source = cell.source.replace("](../docs/", "](../")
        if cell.cell_type == "code":
            cell.outputs = [without_view(output) for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


@contextmanager
def store(name: str, folder: str) -> Iterator[None]:
    """Provide the bucket that a notebook reads, and a folder for what is fetched."""
    if name != "bucket":
        yield
        return
    with object_store() as url:
        os.environ |= {"BUCKET": f"{url}/digits", "DAYLIGHT_CACHE": f"{folder}/cache"}
        yield


def main(names: list[str]) -> int:
    """Execute and store the notebooks; stop at the first that fails."""
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder, store(name, folder):
            if demo.main(Path(folder), name):
                return 1
            executed = nbformat.read(Path(folder) / f"{name}.executed.ipynb", as_version=4)
        nbformat.write(page(executed), GALLERY / f"{name}.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
