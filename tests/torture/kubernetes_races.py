"""Three gangs at once for the GPUs of two nodes of a real Kubernetes, again and again: none keeps a half of its nodes.

    python -m tests.torture.kubernetes_races --count 200

Kubernetes' scheduler knows no gangs: of two gangs of two pods each may get a node, and wait for the other's. The engine
ends one that has held a part of its nodes for the time-out of placement. Sizes, GPUs, order and haste are drawn anew
for each race; a gang that has all of its nodes keeps them for some seconds. Some races run beside each other, each on a
pair of nodes of its own. It prints how many gangs were ended, and for how long the slowest of them kept a part.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kernel_backend.engines.base import GangStatus, Unconfirmed
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.model.states import Outcome
from tests.engines.contract import specifications
from tests.engines.kubernetes_gangs import sleeping_engine
from tests.support.kubernetes_control_plane import control_plane
from tests.support.kubernetes_site import KubernetesSite, kubernetes_site

GANGS, GPUS, PLACEMENT_S, PATIENCE_S, LANES = 3, 3, 2, 180.0, 6


class Race:
    """Gangs that compete for the nodes of one pair."""

    def __init__(self, engine: KubernetesEngine, site: KubernetesSite, gangs: Sequence[LaunchSpec], seed: int) -> None:
        self._engine, self._site = engine, site
        self._chance = random.Random(seed)
        self._gangs = {gang.id: gang for gang in gangs}
        self._halves: dict[AttemptId, float] = {}  # since when a gang has had a part of its nodes
        self._leaves: dict[AttemptId, float] = {}  # when a gang with all of its nodes has trained enough
        self.whole = 0
        self.kept: list[float] = []  # for how long each of the others had a part of its nodes

    async def run(self) -> None:
        """Act like a service until each gang has had all of its nodes, or was ended because it had only a part."""
        await asyncio.gather(*map(self._submit, self._gangs.values()))
        deadline = time.monotonic() + PATIENCE_S
        while self._gangs:
            assert time.monotonic() < deadline, f"neither run nor end: {list(self._gangs)}, halves: {self._halves}"
            await asyncio.to_thread(self._look)
            for each in await self._engine.statuses(list(self._gangs)):
                if each.phase == "ended":
                    _check(each)
                    await self._end(each.key)
            for key in [key for key, until in self._leaves.items() if time.monotonic() > until]:
                self.whole += await self._end(key)
            await asyncio.sleep(0.1)

    async def _submit(self, gang: LaunchSpec) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        await self._engine.submit(gang, f"token {gang.id}")

    def _look(self) -> None:
        """Record which gangs have all of their nodes, and which only a part."""
        pods = self._site.pods()
        for key, gang in self._gangs.items():
            names = [each["spec"].get("nodeName") for each in pods if _is_of(each["metadata"]["labels"], gang)]
            held = len([name for name in names if name])
            if held == len(gang.placement):
                self._leaves.setdefault(key, time.monotonic() + self._chance.uniform(0, 2 * PLACEMENT_S))
                self._halves.pop(key, None)
            elif held:
                self._halves.setdefault(key, time.monotonic())

    async def _end(self, key: AttemptId) -> bool:
        """Kill and forget a gang like a service does; return False if that must be repeated."""
        try:
            await self._engine.kill(key)
        except Unconfirmed:
            return False
        await self._engine.forget(key)
        del self._gangs[key]
        if self._leaves.pop(key, None) is None and key in self._halves:
            self.kept.append(time.monotonic() - self._halves.pop(key))
        return True


def _is_of(labels: dict[str, str], gang: LaunchSpec) -> bool:
    return labels.get("daylight/attempt") == str(gang.id)


def _check(status: GangStatus) -> None:
    assert status.outcome is Outcome.LOST, status
    assert status.result is not None
    assert status.result.failure is not None
    assert status.result.failure.type == "NotPlaced", status


def drawn(folder: Path, lane: int, race: int) -> list[LaunchSpec]:
    """Return three gangs of one or two pods, of one to three GPUs each."""
    chance, made = random.Random(race), specifications(folder, folder / "home", "python")(1)
    found = []
    for number in range(1, GANGS + 1):
        pods, gpus = chance.choice((1, 2, 2, 2)), tuple(range(chance.randint(1, GPUS)))
        nodes = [f"lane{lane}-n{n}" for n in range(1, pods + 1)]
        shares = tuple(Share(node=name, kind="cuda", address="127.0.0.1", slots=gpus) for name in nodes)
        fields = {"experiment": race, "trial": number, "placement": shares, "pool": "cloud"}
        found.append(made.model_copy(update=fields))
    return found


def lane_of(site: KubernetesSite, folder: Path, lane: int) -> KubernetesEngine:
    """Add two nodes, and return an engine for only these."""
    folder.mkdir()
    for number in (1, 2):
        site.nodes.add(f"lane{lane}-n{number}", cpus=64, gpus=GPUS, labels={"lane": str(lane)})
    chosen = {"node_selector": [f"lane={lane}"], "placement_timeout": PLACEMENT_S}
    return sleeping_engine(folder, service=f"lane{lane}", gpus=True, **chosen)


async def races(site: KubernetesSite, folder: Path, engine: KubernetesEngine, lane: int, seeds: range) -> list[Race]:
    """Run races one after another on one pair of nodes."""
    found = []
    for seed in seeds:
        found.append(Race(engine, site, drawn(folder, lane, seed), seed))
        await found[-1].run()
        print(f"race {seed}: {found[-1].whole} whole, {len(found[-1].kept)} ended", flush=True)
    return found


async def _all(site: KubernetesSite, folder: Path, count: int) -> list[Race]:
    lanes = []
    for lane in range(LANES):
        engine = lane_of(site, folder / f"lane{lane}", lane)
        seeds = range(lane + 1, count + 1, LANES)
        lanes.append(races(site, folder / f"lane{lane}", engine, lane, seeds))
    return [race for found in await asyncio.gather(*lanes) for race in found]


def main() -> None:
    """Run the races, and print the outcomes of the gangs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as name, control_plane() as plane, kubernetes_site(plane, Path(name)) as site:
        os.environ["KUBECONFIG"] = str(site.config)
        found = asyncio.run(_all(site, Path(name), count))
    kept = sorted(each for race in found for each in race.kept)
    print(f"{len(found)} races: {sum(race.whole for race in found)} gangs had all of their nodes, {len(kept)} a part")
    if kept:
        print(f"a part was kept for {kept[len(kept) // 2]:.1f} s (median), {kept[-1]:.1f} s at most")
    print(f"placement_timeout {PLACEMENT_S} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
