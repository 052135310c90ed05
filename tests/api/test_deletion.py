"""Test that experiments are deleted, restored, and purged after a day, with a real service and real files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, Forbidden, NotFound
from kernel_backend.home import attempt_folder
from kernel_backend.model.disk import UNDO_S
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.reports import Delivery
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Choices, Parameter, Space
from tests.api.committed import commit, names
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, archive, ended, keep, report, started, submit, token_of
from tests.support.world import until

KEY = AttemptId(1, 1, 1)


@pytest.fixture
def completed(served: Served, client: Client, tmp_path: Path) -> Client:
    """Provide a completed experiment #1 with two checkpoints, an artifact, a log and a report."""
    complete(served, client, tmp_path)
    return client


def complete(served: Served, client: Client, home: Path) -> None:
    submit(client)
    token_of(served, KEY)
    for step in (10, 20):
        commit(home, step, loss=1 / step)
    keep(served, {"net": b"x" * 1000})
    log = attempt_folder(home, KEY) / "rank-0.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"y" * 500)
    ended(served, client, KEY)


def committed(home: Path) -> set[str]:
    return {name for name in names(home) if name[0].isdigit()}


def after_a_day(served: Served) -> None:
    served.run(served.service.deletion.purge(time.time() + UNDO_S + 1))


def test_a_deleted_experiment_is_in_no_list_and_can_be_brought_back(completed: Client):
    overview = completed.delete_experiment(1)
    assert (overview.state, overview.ended) == ("deleted", True)
    assert completed.experiments() == completed.history() == []
    assert [each.experiment.number for each in completed.experiments(state="deleted")] == [1]
    assert completed.experiment(1).state == "deleted"  # it can still be looked at
    for change in (
        lambda: completed.label(1, LabelEdit(name="x")),
        lambda: completed.rerun(1),
        lambda: completed.pin(1, 1, "20-1"),
        lambda: completed.collect(1),
    ):
        with pytest.raises(Conflict, match="#1 is deleted: daylight undelete 1"):
            change()
    assert completed.undelete(1).state == "completed"
    assert [each.experiment.number for each in completed.experiments()] == [1]


def test_what_runs_is_not_deleted(served: Served, client: Client):
    submit(client)
    with pytest.raises(Conflict, match=r"#1 has not ended: .*daylight stop 1"):
        client.delete_experiment(1)


def test_after_a_day_its_disk_is_freed_and_its_number_is_gone_for_good(
    served: Served, completed: Client, tmp_path: Path
):
    usage = completed.usage_of(1)
    assert usage.bytes["artifacts"] == 1000
    assert usage.bytes["attempts"] >= 500
    assert usage.frees == usage.total > 1500
    completed.delete_experiment(1)
    served.run(served.service.deletion.purge(time.time() + UNDO_S - 60))
    assert completed.usage_of(1) == usage
    after_a_day(served)
    assert committed(tmp_path) == set()
    kinds = ("attempts", "artifacts", "checkpoints", "snapshots")
    assert [each.name for kind in kinds for each in (tmp_path / kind).iterdir()] == []
    with pytest.raises(NotFound, match="no experiment #1 any more: it was deleted"):
        completed.experiment(1)
    with pytest.raises(NotFound):
        completed.undelete(1)
    assert completed.experiments(state="deleted") == []
    assert served.service._store.reports(1, 1) == []
    assert submit(completed).experiment.number == 2
    after_a_day(served)  # again changes nothing


def test_it_cannot_be_brought_back_once_its_day_is_over(served: Served, completed: Client):
    completed.delete_experiment(1)
    store = served.service._store
    store.update_experiment(1, time.time(), lambda before: ({"deleted_at": time.time() - UNDO_S - 9}, None))
    with pytest.raises(Conflict, match="more than a day ago: it cannot be brought back"):
        completed.undelete(1)


def test_a_checkpoint_that_another_begins_from_stays_for_as_long_as_that_is_there(
    served: Served, completed: Client, tmp_path: Path
):
    assert completed.retrain(1).experiment.begins_from == "1.1/10-1"
    usage = completed.usage_of(1)
    assert usage.needed == (
        "checkpoint 1/10-1 stays: #2 begins from it",
        "its snapshot stays: #2 has the same",
    )
    assert 0 < usage.frees < usage.total
    completed.delete_experiment(1)
    after_a_day(served)
    assert committed(tmp_path) == {"10-1"}
    assert list((tmp_path / "snapshots").glob("*.zip"))
    second = AttemptId(2, 1, 1)
    token_of(served, second)
    completed.stop(2)
    served.engine.step_aside(second)
    until(lambda: completed.experiment(2).ended, "#2 has ended")
    completed.delete_experiment(2)
    after_a_day(served)
    after_a_day(served)  # #1 is looked at before #2
    assert committed(tmp_path) == set()
    with pytest.raises(NotFound):
        completed.experiment(1)


def test_results_that_a_search_begins_with_stay(served: Served, client: Client, tmp_path: Path):
    space = Space(parameters=(Parameter(name="lr", domain=Choices(values=[0.1, 0.2])),))
    id, data = archive()
    client.upload_snapshot(id, data)

    def search(method: str, **options: object) -> int:
        config = Config(search=Search(method=method, trials=2, parallel=1, **options))
        asked = Submission(snapshot=id, config=config, space=space, python="/usr/bin/python3", cwd="/", again=True)
        return client.submit(asked).experiment.number

    first = search("random")
    until(lambda: AttemptId(first, 1, 1) in served.engine.tokens, "its first trial runs")
    key = AttemptId(first, 1, 1)
    told = Delivery(records=(started(), report(9).model_copy(update={"number": 2})))
    client.deliver(key, token_of(served, key), told)
    client.stop(first)
    served.engine.step_aside(key)
    until(lambda: client.experiment(first).ended, "it has ended")
    second = search("tpe", warm=(str(first),))
    assert client.usage_of(first).needed[0] == f"its results stay: #{second} searches with them"
    client.delete_experiment(first)
    after_a_day(served)
    assert served.service._store.validations(first)


def test_a_pinned_checkpoint_is_unpinned_first(completed: Client):
    completed.pin(1, 1, "20-1")
    with pytest.raises(Conflict, match=r"1\.1/20-1 is pinned: daylight checkpoint unpin 1\.1 --step 20 first"):
        completed.delete_experiment(1)
    completed.pin(1, 1, "20-1", pinned=False)
    assert completed.delete_experiment(1).state == "deleted"


def test_the_slots_that_it_held_are_counted_all_the_same(served: Served, completed: Client):
    before = [each for each in completed.accounts() if each.kind == "user"]
    completed.delete_experiment(1)
    after_a_day(served)
    spells = served.service._store.held("user", before[0].name, 0.0, time.time())
    assert len(spells) == 1


@pytest.fixture
def people(tmp_path: Path) -> Iterator[tuple[Served, dict[str, Client]]]:
    served = Served(tmp_path, StillEngine(), identity=FakeHub())
    made = {name: served.client(name, patience=5) for name in ("dave", "danielle", "eve", "ada")}
    yield served, made
    for each in made.values():
        each.close()
    served.stop()


def test_owner_and_admin_delete_and_the_admins_deletion_is_audited(people: tuple[Served, dict[str, Client]]):
    served, client = people
    complete(served, client["dave"], served.home)
    for act in (client["danielle"].delete_experiment, client["danielle"].undelete):
        with pytest.raises(Forbidden, match="dave's"):
            act(1)
    with pytest.raises(NotFound):
        client["eve"].delete_experiment(1)
    assert client["danielle"].usage_of(1).total
    with pytest.raises(NotFound):
        client["eve"].usage_of(1)
    client["dave"].delete_experiment(1)
    client["dave"].undelete(1)
    assert client["ada"].audit() == []
    client["ada"].delete_experiment(1)
    client["ada"].delete_experiment(1)  # changes nothing
    client["ada"].undelete(1)
    assert [(each.who, each.act, each.on, each.detail) for each in client["ada"].audit()] == [
        ("ada", "undelete", "#1", "of dave"),
        ("ada", "delete", "#1", "of dave"),
    ]


def test_the_verbs_of_the_command_line(service: Served, capsys: pytest.CaptureFixture[str]):
    client = service.client()
    complete(service, client, service.home)
    assert main(["delete", "1"]) == 0  # nobody sits at a terminal: the line is the answer
    said = capsys.readouterr()
    assert "#1 digits: " in said.err
    assert "deleted: #1; daylight undelete 1 brings it back until 20" in said.out
    assert main(["list", "--state", "deleted"]) == 0
    assert "digits  deleted" in capsys.readouterr().out
    assert main(["undelete", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["undeleted"][0]["state"] == "completed"
    assert main(["delete"]) == 2
    assert "takes whole experiments: write daylight delete 12" in capsys.readouterr().err
    assert main(["delete", "1.1"]) == 2
