"""Test that plots which a program shows, or leaves open at its end, are kept as artifacts of rank 0."""

from __future__ import annotations

from pathlib import Path

import pytest
from gang import Attempt, Trial

from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import ArtifactSaved, Fact, Note
from tests.support import forkservers

pytestmark = pytest.mark.distributed

LOOP = """
import matplotlib.pyplot as plt
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(16, 4)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for rows in x.split(8):
        loss = net(rows).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    fig, (one, two) = plt.subplots(1, 2)
    one.plot(losses)
    two.hist(losses)
    plt.show()
    assert not plt.get_fignums()
plt.figure()  # empty, as no notebook would display it
plt.figure()
plt.plot(losses)
plt.title("$\\\\oops$" if BROKEN else "losses")
"""


class Plotting(Trial):
    """Trial with its own home, for its artifacts, and a shared forkserver."""

    def job(self, resume_from: str | None = None) -> LaunchSpec:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        forkservers.share(home)
        return super().job(resume_from).model_copy(update={"home": str(home)})

    def bytes_of(self, name: str) -> bytes:
        return (self.folder / "home" / "artifacts" / "1" / "1" / name).read_bytes()


def told(attempt: Attempt) -> list[str]:
    return [each.name for each in attempt.records if isinstance(each, ArtifactSaved) and each.media == "image/png"]


@pytest.mark.parametrize("slots", [1, 2])
def test_shown_plots_and_those_left_open_are_kept_once_with_their_steps(tmp_path: Path, slots: int) -> None:
    trial = Plotting(tmp_path / "trial", "BROKEN = False" + LOOP, slots=slots, epochs=2)
    ran = trial.run()
    assert ran.codes == [0] * slots, ran.logs()
    assert told(ran) == ["plot 1 2", "plot 1 4", "plot 2 4"]
    assert all(trial.bytes_of(name).startswith(b"\x89PNG") for name in told(ran))
    observed = [each.value for each in ran.records if isinstance(each, Fact) and each.name == "observed"]
    assert not any("ttf" in str(each) for each in observed), "fonts are no data"
    assert "non-interactive" not in "".join(ran.logs())


def test_a_plot_that_cannot_be_drawn_is_a_warning(tmp_path: Path) -> None:
    ran = Plotting(tmp_path / "trial", "BROKEN = True" + LOOP, slots=1, epochs=2).run()
    assert ran.codes == [0], ran.logs()
    assert told(ran) == ["plot 1 2", "plot 1 4"]
    warnings = [each.text for each in ran.records if isinstance(each, Note) and each.level == "warning"]
    assert any(each.startswith("plot 2 4 was not kept: ValueError:") for each in warnings), warnings
