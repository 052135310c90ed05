"""Test `run.artifact` on two ranks: only rank 0 saves files, and a restarted attempt saves them again."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import xxhash
from gang import DIGITS, Attempt, Trial

from kernel_backend.durable import TEMPORARY
from kernel_backend.model.facts import Observed
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import ArtifactSaved, Fact
from tests.support import forkservers

pytestmark = pytest.mark.distributed

MODEL, METRICS = "def model(width=24", "def metrics(output, target): "
assert MODEL in DIGITS
assert METRICS in DIGITS
KEEPING = (
    DIGITS.replace(MODEL, "def network(width=24").replace(METRICS, "def judged(output, target): ")
    + """
from pathlib import Path

def model(run, rank, network, width=24):
    if rank == 0:
        (run.folder / "net.txt").write_text(f"{width} wide")
    run.artifact("architecture", run.folder / "net.txt")
    return network

def metrics(run, rank, output, target):
    report = Path("report")
    if rank == 0:
        report.mkdir(exist_ok=True)
        (report / "classes.csv").write_text(str(output.shape[1]))
    run.artifact("report", "report")
    return judged(output, target)
"""
)


class Keeping(Trial):
    """Trial with its own home, for its artifacts, and a shared forkserver."""

    def job(self, resume_from: str | None = None) -> LaunchSpec:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        forkservers.share(home)
        return super().job(resume_from).model_copy(update={"home": str(home)})

    @property
    def kept(self) -> Path:
        return self.folder / "home" / "artifacts" / "1" / "1"


def told(attempt: Attempt) -> list[ArtifactSaved]:
    return [each for each in attempt.records if isinstance(each, ArtifactSaved)]


def test_of_two_ranks_one_keeps_and_tells(tmp_path: Path) -> None:
    trial = Keeping(tmp_path / "trial", KEEPING, epochs=1)
    attempt = trial.run()
    assert attempt.codes == [0, 0], attempt.logs()
    assert sorted(each.name for each in trial.kept.iterdir()) == ["architecture", "report.zip"]
    assert (trial.kept / "architecture").read_text() == "24 wide"
    with zipfile.ZipFile(trial.kept / "report.zip") as archive:
        assert archive.read("classes.csv") == b"2"
    net, report, *_ = told(attempt)
    assert (net.name, net.size, net.media, net.file, net.step) == (
        "architecture",
        7,
        "text/plain",
        "architecture.txt",
        0,
    )
    assert net.digest == xxhash.xxh3_128_hexdigest(b"24 wide")
    assert (report.name, report.step, report.file) == ("report.zip", 6, "report.zip")
    assert report.digest == xxhash.xxh3_128_hexdigest((trial.kept / "report.zip").read_bytes())


def test_what_was_kept_is_no_data_that_the_training_depends_on(tmp_path: Path) -> None:
    lines = 'Path(DATA, "read.csv").read_text()', 'run.artifact("kept", Path(DATA, "kept.csv"))', 'run.artifact("arch'
    source = f"DATA = {str(tmp_path)!r}\n" + KEEPING.replace(lines[-1], "\n    ".join(lines))
    trial = Keeping(tmp_path / "trial", source, epochs=1, slots=1)
    for name in ("read.csv", "kept.csv"):
        (tmp_path / name).write_text("was there before")
    attempt = trial.run()
    assert attempt.codes == [0], attempt.logs()
    (fact,) = [each for each in attempt.records if isinstance(each, Fact) and each.name == "observed"]
    names = {Path(each.path).name for each in Observed.model_validate(fact.value).files}
    assert names == {"read.csv"}


def test_an_attempt_after_a_kill_keeps_the_same_again_and_sweeps(tmp_path: Path) -> None:
    trial = Keeping(tmp_path / "trial", KEEPING, epochs=2, every="3step", params={"pause": 0.05})
    first = trial.start(hold=8).reaches(4).kill(0)
    (trial.kept / f"{TEMPORARY}report.zip").write_bytes(b"half")
    second = trial.run(trial.pinned())
    assert second.codes == [0, 0], second.logs()
    assert [each.name for each in told(first)][:1] == [each.name for each in told(second)][:1] == ["architecture"]
    assert told(first)[0].digest == told(second)[0].digest
    assert sorted(each.name for each in trial.kept.iterdir()) == ["architecture", "report.zip"]


def test_a_mistake_ends_the_training_at_the_users_own_line(tmp_path: Path) -> None:
    source = KEEPING.replace('run.artifact("arch', 'run.artifact("../arch')
    attempt = Keeping(tmp_path / "trial", source, slots=1).run()
    failure = attempt.failures()[0]
    assert failure.type == "InvalidRequest"
    assert "'../architecture' is no name of an artifact" in failure.message
    assert failure.frames[-1].function == "model"
    assert "run.artifact" in failure.frames[-1].text


def test_where_there_is_no_room_a_note_says_so_and_training_goes_on(tmp_path: Path) -> None:
    trial = Keeping(tmp_path / "trial", KEEPING, epochs=1, slots=1)
    trial.kept.parent.mkdir(parents=True)
    trial.kept.symlink_to("/dev/full")
    attempt = trial.run()
    assert attempt.codes == [0], attempt.logs()
    assert told(attempt) == []
    assert any("artifact architecture of step 0 was not kept: " in each for each in attempt.notes()), attempt.notes()
