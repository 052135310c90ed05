"""Test that it is known which nodes have the remote data of an experiment, also after a restart of the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.model import events
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.launch.nodes import GangNode
from kernel_backend.model.resources import Share
from kernel_backend.model.snapshot import Data, Snapshot
from kernel_backend.model.trial import Attempt
from kernel_backend.service.state import data_nodes
from kernel_backend.service.state.data_nodes import DataNodes
from kernel_backend.snapshots.archive import Archive, pack
from kernel_backend.store.base import NewExperiment, Store
from kernel_backend.store.sql import SqlStore
from tests.contract.store_contract import started
from tests.support.empty_database import empty_database
from tests.support.world import NO_ENVIRONMENT

ANY = (Share(node="any", kind="cpu", address="", slots=(0,)),)


class Site:
    """Store with experiments in the pool `gpu`, whose engine chooses the nodes."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = SqlStore(empty_database(folder / "daylight.db"))
        self.archive = Archive(folder / "snapshots")
        self.known = DataNodes(self.store, self.archive)

    def submit(self, *digests: str, **config: object) -> Experiment:
        """Submit an experiment that reads inputs `train0`, `train1`, ... with these digests of their lists."""
        data = tuple(
            Data(name=f"s3://{n}", into=f"train{n}", path=f"s3://{n}", files=1, bytes=1, digest=each, listed="")
            for n, each in enumerate(digests)
        )
        described = Snapshot(version="1", numerics=1, pieces=(), roles_from=1, environment=NO_ENVIRONMENT, data=data)
        id, packed = pack({"definition.py": b"", "snapshot.json": described.model_dump_json().encode()})
        self.archive.put(id, packed)
        settings = Config.model_validate({"slots": 1, **config})
        draft = NewExperiment(
            owner="ada", group="lab", snapshot=id, config=settings, params={}, python="python", cwd="/"
        )
        return self.store.add_experiment(draft, at=1.0)[0]

    def begin(self, experiment: Experiment, *nodes: str, trains: bool = True) -> Attempt:
        """Start an attempt on these nodes; without `trains` it still fetches."""
        attempt = self.store.add_attempt(experiment.number, 1, ANY, None, "digest", at=2.0, granted=False, pool="gpu")
        joined = tuple(GangNode(name=name, address="", kind="cpu", slots=1) for name in nodes)
        placed = self.store.advance_attempt(attempt.id, events.Placed(), 3.0, granted_at=3.0, nodes=joined)
        if trains:
            self.store.accept(attempt.id, [started()], at=4.0)
        return placed


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(data_nodes, "LOOK_S", 0.0)
    return Site(tmp_path)


def test_nodes_have_the_data_with_which_trainings_have_begun_there(site: Site) -> None:
    first, other = site.submit("a"), site.submit("b")
    assert site.known.of(first, ["gpu"]) == frozenset()
    site.begin(first, "n1", "n2")
    site.begin(other, "n3")
    again, both = site.submit("a"), site.submit("a", "b")
    for known in (site.known, DataNodes(site.store, site.archive)):  # that of a restarted service
        assert known.of(again, ["gpu", "another"]) == {"n1", "n2"}
        assert known.of(again, ["another"]) == known.of(both, ["gpu"]) == known.of(site.submit(), ["gpu"]) == set()


def test_an_attempt_that_has_not_fetched_its_data_says_nothing(site: Site) -> None:
    first = site.submit("a")
    attempt = site.begin(first, "n1", trains=False)
    assert site.known.of(first, ["gpu"]) == frozenset()
    site.store.accept(attempt.id, [started()], at=4.0)
    assert site.known.of(first, ["gpu"]) == {"n1"}


def test_a_rerun_that_reads_something_else_has_no_nodes(site: Site) -> None:
    site.begin(site.submit("a"), "n1")
    assert site.known.of(site.submit("a", data_at={"s3://0": "/local"}), ["gpu"]) == frozenset()


def test_a_note_says_that_the_nodes_of_a_gang_have_its_data(site: Site) -> None:
    first = site.submit("a", "b")
    attempt = site.begin(first, "n1", "n2", trains=False)
    assert site.known.note(attempt) == ""
    site.store.accept(attempt.id, [started()], at=4.0)
    for nodes, note in [
        (("n1",), "on n1, which has train0 and train1"),
        (("n2", "n1"), "on n2 and n1, which have train0 and train1"),
        (("n1", "n3"), ""),
    ]:
        assert site.known.note(site.begin(site.submit("a", "b"), *nodes, trains=False)) == note
