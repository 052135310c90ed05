"""Take the pictures of README and docs from a real run: real training, a real JupyterLab, a real Chromium.

python scripts/screenshots.py      writes lab, view, view-dark, compare, search, experiments, diff, cluster, quotas

They are PNG files in docs/images/. `make screenshots` sets up first.

It controls the browser by the same methods as the browser tests.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from playwright.sync_api import Browser, Locator, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernel_backend.client import Client  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.browser.cluster_page import ClusterPage  # noqa: E402
from tests.browser.jupyter import Jupyter  # noqa: E402
from tests.browser.lab import Lab  # noqa: E402
from tests.browser.notebooks import LOAD, write  # noqa: E402
from tests.browser.shared_cluster import Cluster  # noqa: E402
from tests.support.world import World, until  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SEARCHING_S = 900.0
COLOURS = 128  # of a picture: it shows an interface, and a repository keeps every version of it
README = re.compile(r"```python\n%%dlsubmit[^\n]*\n(.*?)```", re.DOTALL)
LESLIE = """%%dlsubmit --data samples --epochs 20 --quiet --wait --name leslie lr=0.05
def train_data():
    rows = [torch.load(file) for file in sorted(Path("samples").glob("*.pt"))]
    return torch.utils.data.TensorDataset(scaled(torch.stack(rows)), torch.stack(rows).sum(1, keepdim=True))
def validation_data():
    rows = torch.linspace(-1, 1, 64).reshape(16, 4)
    return torch.utils.data.TensorDataset(scaled(rows), rows.sum(1, keepdim=True))
def model(width=8): return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))
def optimizer(params, lr): return torch.optim.SGD(params, lr=lr)
def loss(output, target): return nn.functional.mse_loss(output, target)
def metrics(output, target): return {"error": (output - target).abs().squeeze(1)}
"""
HELPER = "from pathlib import Path\nimport torch\nfrom torch import nn\n\ndef scaled(rows):\n    return rows * {}"
MORE = "for number in range(48, 60):\n    torch.save(torch.full((4,), 0.5), f'samples/{number:03}.pt')"
SUBMIT = "%%dlsubmit --slots 2 --epochs 300 --batch-size 64 --name digits width=64 lr=1e-2\n"


def definition() -> str:
    """Return the cell of the README, which the pictures illustrate."""
    found = README.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None, "README.md has no %%dlsubmit cell"
    return found[1]


def take(picture: Locator | Lab, name: str) -> None:
    """Save a screenshot as the PNG `name`, with few colours so that the file is small."""
    path = IMAGES / f"{name}.png"
    (picture.page if isinstance(picture, Lab) else picture).screenshot(path=path, animations="disabled")
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1000} kB")


def opened(browser: Browser, jupyter: Jupyter, notebook: str | None, width: int = 1360, height: int = 860) -> Lab:
    """Open a page of JupyterLab at 1.5 times the usual resolution."""
    context = browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=1.5)
    context.set_default_timeout(60_000)
    return Lab(context.new_page(), jupyter).open(notebook)


def past(world: World) -> tuple[int, int]:
    """Train two experiments to compare, and one that fails."""
    source = definition()
    slow = world.submit(source, name="digits, small", epochs=40, batch_size=64, width=16, lr=0.003).experiment.number
    fast = world.submit(source, name="digits, wide", epochs=40, batch_size=64, width=256, lr=0.01).experiment.number
    wrong = source.replace("cross_entropy(output, target)", "cross_entropy(output, target - 1)")
    failed = world.submit(wrong, name="digits, wrong labels", max_restarts=0).experiment.number
    for number in (slow, fast, failed):
        world.ended(number)
    return slow, fast


def show(world: World, browser: Browser, folder: Path) -> None:
    """Show the notebook with a running experiment beside the panel, then two compared, then the dark theme."""
    small, wide = past(world)
    jupyter = Jupyter(world, folder / "light")
    write(jupyter.notebooks / "digits.ipynb", LOAD, SUBMIT + definition())
    jupyter.start()
    try:
        lab = opened(browser, jupyter, "digits.ipynb")
        lab.panel.open()
        lab.run(0, 1)
        view = lab.view()
        view.until_state("running")
        world.submit(definition(), name="digits, next", epochs=5)
        view.until_it_moves(1500)
        view.root.scroll_into_view_if_needed()
        take(lab, "lab")
        take(view.root, "view")
        lab.panel.chosen(small).check()
        lab.panel.chosen(wide).check()
        lab.panel.button("Compare").click()
        expect(lab.page.get_by_role("article", name=re.compile("^Compare"))).to_be_visible()
        time.sleep(2)  # curves are drawn a frame after they are there
        take(lab, "compare")
    finally:
        jupyter.close()
    dark = Jupyter(world, folder / "dark", theme="JupyterLab Dark")
    dark.start()
    try:
        lab = opened(browser, dark, None)
        view = lab.tab(wide)
        view.until_connection("ended")
        time.sleep(2)
        take(view.root, "view-dark")
    finally:
        dark.close()


def searched(world: World, browser: Browser, folder: Path) -> None:
    """Show a search that is done: the best loss over time, the rungs, the table; then the table of experiments."""
    line = "lr=1e-4..1e-1:log width=16,32,64,128 dropout=0..0.5"
    asked = {"search": {"method": "asha", "trials": 48, "eta": 3}, "metric": {"name": "accuracy", "mode": "max"}}
    size = {"epochs": 27, "slots": 1, "batch_size": 64}
    number = world.submit(definition(), name="digits, searched", space=line, **asked, **size).experiment.number
    until(lambda: world.overview(number).ended, "the search ends", patience=SEARCHING_S)
    jupyter = Jupyter(world, folder / "searched")
    jupyter.start()
    try:
        lab = opened(browser, jupyter, None, 1360, 1700)
        view = lab.tab(number)
        expect(view.root.get_by_role("table", name="Trials").locator("tbody tr")).to_have_count(48)
        time.sleep(2)
        take(view.root, "search")
        lab.command("daylight:table")
        lab.page.set_viewport_size({"width": 1440, "height": 400})
        table = lab.page.get_by_role("article", name="Experiments")
        expect(table.locator("tbody tr").first).to_be_visible()
        time.sleep(1)
        take(table, "experiments")
    finally:
        jupyter.close()


def tell_apart(world: World, browser: Browser, folder: Path) -> None:
    """Show the differences of two trainings of the same notebook, months apart, in a cell."""
    jupyter = Jupyter(world, folder / "why")
    samples = jupyter.notebooks / "samples"
    samples.mkdir(parents=True)
    for number in range(48):
        torch.save(torch.sin(torch.arange(4.0) + number), samples / f"{number:03}.pt")
    later = LESLIE.replace("name leslie lr=0.05", "name dave")
    later = later.replace("params, lr)", "params, lr=0.2)")
    cells = [HELPER.format("2.0"), LESLIE, HELPER.format("1.8"), MORE, later]
    write(jupyter.notebooks / "why.ipynb", LOAD, *cells, "%dl history --limit 2", "")
    jupyter.start()
    try:
        lab = opened(browser, jupyter, "why.ipynb", 1000, 1000)
        lab.run(0, 1, 2, 3, 4, 5)
        newest = Client.connect(start=False, home=world.home).experiments(limit=1)[0].experiment.number
        lab.cell(7).locator(".cm-content").click()
        lab.page.keyboard.type(f"%dl diff {newest - 1} {newest}")
        lab.run(7)
        take(lab.cell(7).locator(".jp-OutputArea-output").last, "diff")
    finally:
        jupyter.close()


def shared(browser: Browser, folder: Path) -> None:
    """Show the cluster page as an admin sees it: what runs and waits, and the quotas."""
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.trains("dave", 8, "resnet")
        cluster.trains("eve", 2, "whisper")
        cluster.waits("danielle", 4, "segmenter")
        cluster.waits("eve", 6, "wav2vec")
        admin = cluster.client("ada")
        admin.set_quota("group", "speech", {"limit": 6, "slot_hours": "500/7d"})
        admin.set_quota("user", "danielle", {"weight": 2})
        context = browser.new_context(viewport={"width": 1240, "height": 660}, device_scale_factor=1.5)
        page = ClusterPage(context).open(f"{cluster.served.url}/#token=ada")
        expect(page.row("Queue", "wav2vec")).to_be_visible()
        take(page.page.locator("body"), "cluster")
        page.go("Users and groups").type("Limit of dave", "8")
        expect(page.said).to_be_visible()
        take(page.page.locator("body"), "quotas")
    finally:
        cluster.close()


def main() -> int:
    """Take all pictures in a temporary DAYLIGHT_HOME, and end every process."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        if browser is None:
            print(chromium.MISSING, file=sys.stderr)
            return 1
        world = World(Path(folder) / "home")
        world.serve()
        try:
            show(world, browser, Path(folder))
            searched(world, browser, Path(folder))
            tell_apart(world, browser, Path(folder))
            shared(browser, Path(folder) / "shared")
        finally:
            browser.close()
            world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
