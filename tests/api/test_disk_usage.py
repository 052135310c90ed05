"""Report the disk usage of real files by a real service."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from traitlets import TraitError

from kernel_backend.app import Daylight
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Forbidden
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.disk import UNDO_S
from kernel_backend.service import storage_limits
from kernel_backend.snapshots.archive import Archive
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace
from tests.api.people import FakeHub
from tests.api.served import DEFINITION, Served, StillEngine, archive, submit
from tests.api.test_deletion import complete, people

__all__ = ["people"]


def test_users_see_their_own_disk_and_admins_that_of_all(people: tuple[Served, dict[str, Client]]):
    served, client = people
    complete(served, client["dave"], served.home)
    eve = submit(client["eve"], "other").experiment.number
    (served.home / "attempts" / f"{eve}.1-1" / "log").parent.mkdir(parents=True, exist_ok=True)
    (served.home / "attempts" / f"{eve}.1-1" / "log").write_bytes(b"x" * 300)
    (served.home / "environments").mkdir()
    (served.home / "environments" / "lock").write_bytes(b"x" * 70)
    (served.home / "artifacts" / "99").mkdir()
    (served.home / "artifacts" / "99" / "old").write_bytes(b"x" * 40)

    own = client["dave"].disk()
    (digits,) = own.experiments
    assert (digits.experiment, digits.owner, digits.bytes["artifacts"]) == (1, "dave", 1000)
    assert digits.bytes["checkpoints"] > 0
    assert digits.bytes["attempts"] >= 500
    assert [(each.name, each.total) for each in own.users] == [("dave", digits.total)]
    assert own.shared == {"environments": 70}
    assert 0 <= (own.free or 0) <= (own.size or 0)
    assert own.size
    with pytest.raises(Forbidden, match="only admins see"):
        client["dave"].disk(everyone=True)

    headers = {"Authorization": "Bearer dave"}
    listed = httpx.get(f"{served.url}/api/disk?largest=0", headers=headers, timeout=120, trust_env=False).json()
    assert (listed["experiments"], len(listed["users"])) == ([], 1)

    everyone = client["ada"].disk(everyone=True)
    assert (everyone.users[0].name, everyone.users[0].total) == ("dave", digits.total)
    assert {each.name for each in everyone.users} == {"dave", "eve"}
    assert everyone.users[1].total >= 300
    assert everyone.shared["unknown"] == 40
    assert everyone.shared["database"] > 0
    client["dave"].delete_experiment(1)
    assert client["dave"].disk().experiments == own.experiments  # until its day is over


def test_a_workspace_that_cannot_be_looked_at_is_named(
    people: tuple[Served, dict[str, Client]], monkeypatch: pytest.MonkeyPatch
):
    served, client = people
    submit(client["dave"])

    monkeypatch.setattr(served.service.disk, "_workspaces", SingleWorkspace(OwnWorkspace(served.home / "away")))
    report = client["dave"].disk()
    (warning,) = report.warnings
    assert re.match("the disk of dave could not be measured: .*No such file or directory: .*away", warning)
    assert (report.size, [each.total for each in report.experiments]) == (None, [len(archive()[1])])


def test_the_verb_lists_the_largest_first(service: Served, capsys: pytest.CaptureFixture[str]):
    client = service.client()
    complete(service, client, service.home)
    (service.home / "artifacts" / "2" / "1").mkdir(parents=True)
    (service.home / "artifacts" / "2" / "1" / "net").write_bytes(b"x" * 5_000_000)
    submit(client, "large")
    assert main(["du", "--limit", "1"]) == 0
    said = capsys.readouterr().out
    head, large, *rest = said.splitlines()
    assert head.split()[:3] == ["no", "name", "owner"]
    assert large.split()[:2] == ["2", "large"]
    assert "5.0 MB" in large
    assert rest[0].startswith("and 1 more: ")
    assert any(line.startswith("free: ") for line in rest)
    assert main(["du", "1", "2"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if line[0] == "#"] == [
        "#1 digits",
        "#2 large",
    ]
    assert main(["du", "--all", "--json"]) == 0
    assert [each["experiment"] for each in json.loads(capsys.readouterr().out)["experiments"]] == [2, 1]
    assert main(["du", "1.1"]) == 2
    assert "takes whole experiments" in capsys.readouterr().err


def test_a_storage_limit_warns_then_refuses_until_there_is_room(
    people: tuple[Served, dict[str, Client]], monkeypatch: pytest.MonkeyPatch
):
    served, client = people
    complete(served, client["dave"], served.home)
    used = client["dave"].disk().experiments[0].total
    client["ada"].set_quota("user", "dave", {"storage": used * 10})
    assert not any("on disk" in each for each in submit(client["dave"], "small").warnings)

    client["ada"].set_quota("user", "dave", {"storage": used * 5 // 4})
    (warning,) = submit(client["dave"], "larger").warnings
    assert warning.startswith("your experiments have ")
    assert "daylight delete" in warning

    client["ada"].set_quota("user", "dave", {"storage": used})
    before = [each.experiment.number for each in client["dave"].experiments()]
    with pytest.raises(Forbidden, match=r"your experiments have .* on disk, and the limit is .*: daylight du"):
        submit(client["dave"], "too much")
    assert [each.experiment.number for each in client["dave"].experiments()] == before
    submit(client["eve"], "another user")

    client["dave"].delete_experiment(1)
    with pytest.raises(Forbidden):  # it can be brought back for a day
        submit(client["dave"], "too much")
    served.run(served.service.deletion.purge(time.time() + UNDO_S + 1))
    assert submit(client["dave"], "room").state == "queued"


def upload(client: Client, size: int, number: int) -> str:
    """Store a snapshot of about `size` bytes, another one for each number; return its id."""
    id, data = archive(DEFINITION + "# " + f"{number}" * size + "\n")
    client.upload_snapshot(id, data)
    return id


def test_snapshots_count_before_they_are_stored_and_also_without_an_experiment(
    people: tuple[Served, dict[str, Client]],
):
    served, client = people
    client["ada"].set_quota("user", "dave", {"storage": "1MB"})
    upload(client["dave"], 400_000, 1)
    upload(client["dave"], 400_000, 2)
    with pytest.raises(
        Forbidden, match=r"have 8\d\d\.\d kB on disk and are to have 4\d\d\.\d kB more, and the limit is 1\.0 MB"
    ):
        upload(client["dave"], 400_000, 3)
    assert len(list((served.home / "snapshots").glob("*.zip"))) == 2
    assert 800_000 < client["dave"].disk().shared["uploads"] < 900_000
    assert "uploads" not in client["eve"].disk().shared
    upload(client["eve"], 400_000, 3)
    upload(client["dave"], 400_000, 3)  # there already


def test_many_snapshots_at_once_do_not_pass_a_limit_together(people: tuple[Served, dict[str, Client]]):
    served, client = people
    client["ada"].set_quota("user", "dave", {"storage": "1MB"})

    def stored(number: int) -> bool:
        try:
            return bool(upload(client["dave"], 400_000, number))
        except Forbidden:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(stored, range(8))) <= 2
    assert len(list((served.home / "snapshots").glob("*.zip"))) <= 2


def test_a_snapshot_that_no_experiment_uses_is_removed_after_a_day(people: tuple[Served, dict[str, Client]]):
    served, client = people
    unused, small, stored = upload(client["dave"], 1000, 1), archive()[0], Archive(served.home / "snapshots")
    submit(client["dave"])
    purge = served.service.deletion.purge
    served.run(purge(time.time() + UNDO_S - 60))
    assert stored.has(unused)
    served.run(purge(time.time() + UNDO_S + 60))
    assert not stored.has(unused)
    assert stored.has(small)
    assert stored.uploads() == []


async def _learn(served: Served, directory: Directory) -> None:
    served.service.quotas.learn(directory)


def test_a_groups_storage_is_that_of_its_members_in_it(people: tuple[Served, dict[str, Client]]):
    served, client = people
    complete(served, client["dave"], served.home)
    members = {"dave": ("vision",), "danielle": ("vision",)}
    served.run(_learn(served, Directory(members=members, groups={"vision": None})))
    client["ada"].set_quota("group", "vision", {"storage": "1kB"})
    for name in ("dave", "danielle"):
        with pytest.raises(
            Forbidden, match=r"the experiments of group vision have .* on disk, and the limit is 1\.0 kB"
        ):
            submit(client[name], "more")
    client["ada"].set_quota("group", "vision", {"storage": "none"})
    submit(client["danielle"], "more")


def test_a_service_may_have_a_storage_limit_for_each_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(storage_limits, "FRESH_S", 0.0)  # the first submission has measured an empty disk
    served = Served(tmp_path, StillEngine(), identity=FakeHub(), each_user=Quota(storage=1000))
    dave, eve, ada = (served.client(name, patience=5) for name in ("dave", "eve", "ada"))
    try:
        complete(served, dave, served.home)
        with pytest.raises(Forbidden, match=r"your experiments have .* on disk, and the limit is 1\.0 kB"):
            submit(dave, "more")
        submit(eve, "within the limit")

        assert ada.set_quota("user", "dave", {"storage": "none"}).quota.storage is None
        submit(dave, "more")

        cleared = ada.set_quota("user", "dave", {"storage": None})
        assert (cleared.quota.storage, cleared.changed) == (1000, {})
        with pytest.raises(Forbidden):
            submit(dave, "even more")
    finally:
        for each in (dave, eve, ada):
            each.close()
        served.stop()


def test_a_storage_limit_that_is_no_size_keeps_the_service_from_starting():
    with pytest.raises(TraitError, match="user_storage: 'much' is no size: write 200MB, 1GB or 2TB"):
        Daylight(user_storage="much")
