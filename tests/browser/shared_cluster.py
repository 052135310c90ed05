"""Run a service for several users of a hub, on two nodes, with methods for their actions outside of the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_backend.api.cluster_page import PAGES
from kernel_backend.client import Client
from kernel_backend.engines.base import GangStatus
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, report, started, submit, token_of
from tests.support.world import until

NODES = [Node(name=name, kind="cuda", address=f"10.0.0.{slots}", slots=slots) for name, slots in (("n1", 4), ("n2", 8))]
MEMBERS = {"dave": ("vision",), "danielle": ("vision",), "eve": ("speech",)}
GROUPS = {"vision": Quota(limit=10, guarantee=4), "speech": None}


class Cluster:
    """Service with the cluster page."""

    def __init__(self, folder: Path, pools: Mapping[str, Sequence[Node]] | None = None) -> None:
        """Start the service; `pools` has the nodes of additional pools."""
        others = {name: StillEngine(nodes) for name, nodes in (pools or {}).items()}
        settings = {name: {"engine": "slurm"} for name in others}
        self.served = Served(folder, StillEngine(NODES), identity=FakeHub(), pages=PAGES, pools=settings, others=others)
        self.give(MEMBERS)
        self._clients: dict[str, Client] = {}

    def client(self, name: str) -> Client:
        """Return a client of this user."""
        return self._clients.setdefault(name, self.served.client(name))

    def trains(self, name: str, slots: int, called: str = "digits", pool: str | None = None) -> int:
        """Let a user's training run, and return its number."""
        number = submit(self.client(name), called, slots=slots, pool=pool).experiment.number
        until(lambda: self.state(number) in ("starting", "running"), f"#{number} starts")
        return number

    def reports(self, name: str, number: int, *losses: float) -> None:
        """Let a user's training that has just started report these losses, one after each epoch."""
        key = AttemptId(number, 1, 1)
        said = [report(epoch + 1, float(epoch), loss=loss) for epoch, loss in enumerate(losses, 1)]
        self.client(name).deliver(key, token_of(self.served, key), Delivery(records=(started(), *said)))

    def waits(self, name: str, slots: int, called: str = "digits") -> int:
        """Let a user's training wait, and return its number."""
        number = submit(self.client(name), called, slots=slots).experiment.number
        until(lambda: self.client("ada").experiment(number).wait is not None, f"#{number} waits")
        return number

    def lose(self, number: int, pool: str, times: int) -> None:
        """Lose the first attempts of a training together with their nodes."""
        engine = self.served.others[pool]
        for attempt in range(1, times + 1):
            key = AttemptId(number, 1, attempt)
            until(lambda key=key: key in engine.jobs, f"attempt {key} starts")
            engine.ended[key] = GangStatus(key=key, phase="ended", outcome=Outcome.LOST)

    def state(self, number: int) -> str:
        """Return the state of an experiment."""
        return self.client("ada").experiment(number).state

    def stop(self, name: str, number: int) -> None:
        """Stop a user's training, and wait until its slots are free."""
        self.client(name).stop(number)
        until(lambda: self._gone(number), f"#{number} is gone")

    def _gone(self, number: int) -> bool:
        engine = self.served.engine
        for key in [key for key in engine.jobs if key.experiment == number]:
            engine.step_aside(key)
        return self.state(number) == "stopped"

    def give(self, members: dict[str, tuple[str, ...]]) -> None:
        """Add these users to the hub."""

        async def learn() -> None:
            self.served.service.quotas.learn(Directory(members=members, groups=GROUPS))

        self.served.run(learn())

    def clear(self) -> None:
        """Stop all trainings, and reset all quotas and nodes."""
        ada = self.client("ada")
        for each in NODES:
            ada.undrain(each.name)
        for account in ada.accounts():
            if account.changed:
                ada.clear_quota(account.kind, account.name)
        for name in ("dave", "danielle", "eve", "ada"):
            for found in self.client(name).experiments(state="active"):
                self.stop(name, found.experiment.number)
        until(lambda: all(node.used == 0 for node in ada.nodes()), "nothing runs")

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self.served.stop()
