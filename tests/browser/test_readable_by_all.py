"""Test by axe-core that panel and view have no serious accessibility problems in both themes; save screenshots."""

from __future__ import annotations

import pytest

from tests.browser.jupyter import ROOT
from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.support.world import DEFINITION, World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async selectors => {
  const found = await axe.run({ include: selectors.map(each => [each]) });
  const said = node => `${node.html} ${node.any.map(each => each.message).join(' ')}`;
  return found.violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => `${each.id}: ${each.help}: ${each.nodes.map(said).join('; ')}`);
}"""
PANEL = "[role=region][aria-label=Daylight]"
LOSS = "return nn.functional.mse_loss(output, target)"


def test_nothing_serious_is_found_in_the_panel_and_the_views(lab: Lab, gate: Gate, world: World):
    raising = DEFINITION.replace(LOSS, "raise ValueError('boom')")
    failed = world.submit(raising, name="failing", slots=1, max_restarts=0).experiment.number
    running = gate.submit(world, name="running")
    world.ended(failed)
    lab.open()
    lab.page.add_script_tag(path=AXE)
    for theme in ("Dark", "Light"):
        lab.use_theme(f"JupyterLab {theme}")
        for number, state in ((failed, "failed"), (running, "running")):
            view = lab.tab(number)
            view.until_state(state)
            if state == "running":
                view.until_it_moves(by=3)
                view.button("Stop").click()
            view.open_log()
            view.button("More actions").press("Enter")
            lab.shot(f"{theme.lower()}-{state}")
            found = lab.page.evaluate(
                RUN, ["[role=region][aria-label=Daylight]", f"article[aria-label^='Experiment #{number} ']"]
            )
            assert not found, "\n".join(found)
