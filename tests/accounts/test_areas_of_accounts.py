"""Test the files that a user's agent handles in the user's workspace: code, artifacts, search classes, interpreters."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import psutil
import pytest

from kernel_backend.errors import NoEnvironment, NotFound, SearchFailed
from kernel_backend.home import artifact_folder, attempt_folder
from kernel_backend.model.environments import Interpreter
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.snapshot import Piece, Snapshot
from kernel_backend.snapshots.archive import pack_snapshot
from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.workspaces import AgentWorkspace, UnixUserWorkspaces
from kernel_backend.workspaces.base import SearchClass
from tests.engines.test_asker import CELL, GOOD, SETTINGS, SPACE
from tests.support.builders import share
from tests.support.world import NO_ENVIRONMENT


@pytest.fixture
def area(agents: Agents) -> AgentWorkspace:
    found = UnixUserWorkspaces(agents).of("dave")
    assert isinstance(found, AgentWorkspace)
    return found


def archive(source: str) -> bytes:
    piece = Piece(cell=4, line=1, count=source.count("\n"), cell_line=2)
    snapshot = Snapshot(version="0", numerics=1, pieces=(piece,), roles_from=1, environment=NO_ENVIRONMENT)
    return pack_snapshot(source, snapshot)[1]


def asked(cwd: Path) -> SearchClass:
    return SearchClass(experiment=7, python=sys.executable, cwd=str(cwd), locked=False, settings=SETTINGS, space=SPACE)


def test_the_code_of_an_attempt_lies_with_its_user_and_not_where_the_service_thinks(area, ourselves, tmp_path):
    job = LaunchSpec(
        experiment=3,
        trial=1,
        attempt=1,
        config=Config(slots=1, threads=1),
        params={},
        placement=(share(),),
        python=sys.executable,
        cwd="/nowhere/any/more",
        code=str(tmp_path / "of-the-service"),
        snapshot="0" * 64,
        checkpoints="",
        home=str(tmp_path),
    )
    working = area.unpack(job, archive(CELL))
    code = attempt_folder(ourselves.area("dave"), job.id) / "code"
    assert (code / "definition.py").read_text() == CELL
    assert working.cwd == str(code)
    assert not (tmp_path / "of-the-service").exists()


def test_an_artifact_comes_as_it_lies(area, ourselves, agents):
    agents.check("dave")
    folder = artifact_folder(ourselves.area("dave"), 3, 1)
    folder.mkdir(parents=True)
    (folder / "picture").write_bytes(b"\x89PNG" * 1_000_000)
    found = area.artifact(3, 1, "picture")
    assert found.size == 4_000_000
    assert b"".join(found.pieces) == b"\x89PNG" * 1_000_000
    with pytest.raises(NotFound):
        area.artifact(3, 1, "another")


def test_a_search_class_is_asked_as_its_user(area, ourselves, tmp_path):
    process = area.asker(asked(tmp_path), archive(CELL + GOOD))
    assert process.interval() == 2
    assert process.ask(1) == {"lr": pytest.approx(8e-4)}
    assert process.tell(1, {"lr": 0.1}, 2, 0.5) is None
    assert process.tell(1, {"lr": 0.1}, 4, math.nan) == "stop"
    agent = psutil.Process(ourselves.started[-1].pid)
    (child,) = [each for each in agent.children() if "kernel_backend.runner.search_process" in each.cmdline()]
    assert "made, and heard by nobody" in (ourselves.area("dave") / "searches/7/class.log").read_text()
    process.close()
    child.wait(timeout=60)


def test_a_search_class_that_raises_is_told_with_its_record(area, tmp_path):
    process = area.asker(asked(tmp_path), archive(CELL + GOOD.replace("self.told.append", "self.nothing.append")))
    with pytest.raises(SearchFailed, match="AttributeError") as raised:
        process.tell(1, {"lr": 0.1}, 2, 0.5)
    assert raised.value.details["failure"]["type"] == "AttributeError"
    process.close()


def test_a_search_class_whose_agent_dies_is_lost_and_says_so(area, ourselves, tmp_path):
    process = area.asker(asked(tmp_path), archive(CELL + GOOD))
    assert process.interval() == 2
    ourselves.started[-1].kill()
    with pytest.raises(SearchFailed, match="the process of Mine is lost: the files of dave cannot be reached"):
        process.ask(1)


def test_an_interpreter_is_asked_by_its_user(area):
    found = area.environments.present(Path(sys.executable))
    assert found.python.startswith("3.")
    assert "pydantic" in found.distributions
    with pytest.raises(NoEnvironment, match="the interpreter /no/such/python is gone"):
        area.environments.present(Path("/no/such/python"))
    assert area.environments.lock(found) is None
    assert area.environments.python(found) is None
    assert area.environments.version(found) is None


def test_the_agents_interpreter_replaces_one_that_is_not_on_its_machine(area):
    assert area.environments.interpreter(sys.executable, ["zzz_nowhere"]) == Interpreter(path=sys.executable)
    found = area.environments.interpreter("/mnt/python/bin/python", ["json", "zzz_nowhere", "os.path"])
    assert found == Interpreter(path=sys.executable, lacks=("zzz_nowhere",))


def test_the_numbers_that_folders_name_are_those_of_the_users_own_area(area, ourselves):
    assert (area.largest_number(), area.last_attempt(7, 1, 0)) == (0, 0)
    for number in (1, 2):
        attempt_folder(ourselves.area("dave"), AttemptId(7, 1, number)).mkdir(parents=True)
    (ourselves.area("dave") / "checkpoints" / "12").mkdir(parents=True)
    assert (area.largest_number(), area.last_attempt(7, 1, 0), area.last_attempt(7, 2, 0)) == (12, 2, 0)


def test_the_folders_of_an_experiment_are_measured_and_deleted_by_their_user(area, ourselves, tmp_path):
    home = ourselves.area("dave")
    assert area.usage(3) == {}
    for name in ("attempts/3.1-1/code/a.py", "attempts/3.1-12/rank-0.log", "artifacts/3/1/net", "attempts/31.1-1/b"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"x" * 100)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x" * 5000)
    (home / "attempts/3.1-1/link").symlink_to(outside)
    (home / "searches").mkdir(exist_ok=True)
    (home / "searches/3").symlink_to(outside)
    found = area.usage(3)
    assert found["artifacts"] == 100
    assert 200 <= found["attempts"] < 1000
    assert found["searches"] == 0
    disk = area.disk()
    assert disk.experiments[3] == found
    assert set(disk.experiments) == {3, 31}
    assert 0 <= disk.free <= disk.size
    area.remove_logs(3)
    assert area.usage(3) == {"attempts": 0, "artifacts": 100, "searches": 0}
    assert area.last_attempt(3, 1, 0) == 1  # numbers of attempts are not used again
    assert (outside / "precious").exists()
    area.remove(3)
    assert area.usage(3) == {}
    assert not (home / "searches/3").exists()
    assert (home / "attempts/31.1-1/b").exists()
    assert (outside / "precious").exists()
