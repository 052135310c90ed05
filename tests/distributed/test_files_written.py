"""Test that files of loss, metrics and steps exist once, and that files written by all ranks are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from gang import DIGITS, HOME, Trial

pytestmark = pytest.mark.distributed

LOSS = "return nn.functional.cross_entropy(output, target)"
METRICS = 'def metrics(output, target): return {"accuracy": (output.argmax(1) == target).float()}'
WRITES = """
    value = nn.functional.cross_entropy(output, target)
    with open("log.csv", "a") as file:
        file.write(f"{torch.is_grad_enabled()},{len(output)}\\n")
    if lines:
        assert open("log.csv").read().count("\\n") >= lines[-1]
    lines.append(len(open("log.csv").readlines()))
    return value
lines = []
LINES = open("both.txt", "w")
"""
SAVES = """
def metrics(output, target):
    torch.save(output, "output.tmp")
    os.replace("output.tmp", "output.pt")
    assert len(torch.load("output.pt")) == len(output)
    return {"accuracy": (output.argmax(1) == target).float()}
"""
SOURCE = DIGITS.replace(LOSS, WRITES).replace(METRICS, SAVES)


class Elsewhere(Trial):
    """Trial whose working folder has no files of Daylight."""

    @property
    def cwd(self) -> Path:
        return self.folder.parent / "work"

    def job(self, resume_from=None):
        self.cwd.mkdir(exist_ok=True)
        return super().job(resume_from).model_copy(update={"cwd": str(self.cwd)})


def written(trained: Elsewhere) -> set[str]:
    return {path.name for path in trained.cwd.iterdir()}


def test_step_functions_write_on_rank_0_alone(tmp_path):
    trained = Elsewhere(tmp_path / "trial", source=SOURCE, epochs=1)
    trained.cwd.mkdir()
    (trained.cwd / "log.csv").write_text("head\n")
    ran = trained.run()
    assert ran.codes == [0, 0], ran.logs()
    # Each rank has half of a batch; the comparison of the first batch with its shares has left no line.
    steps, validation = ["True,6"] * 5 + ["True,5"], ["False,6", "False,4"]
    assert (trained.cwd / "log.csv").read_text().splitlines() == ["head", *steps, *validation]
    assert written(trained) == {"output.pt", "log.csv", "both.txt"}
    assert not list(HOME.glob("attempts/*/rank-*.files"))
    told = [text.split(":")[0] for text in ran.notes() if "written by" in text]
    assert [text.split(", as")[0] for text in told] == [
        "log.csv is written by rank 0 of 2 alone",
        "both.txt was written by 2 ranks at once",
    ]


def test_code_that_names_its_rank_writes_on_each(tmp_path):
    source = SOURCE.replace('"log.csv"', 'f"log{rank}.csv"').replace("loss(output, target", "loss(output, target, rank")
    trained = Elsewhere(tmp_path / "trial", source=source.replace(SAVES, METRICS), epochs=1)
    ran = trained.run()
    assert ran.codes == [0, 0], ran.logs()
    assert written(trained) == {"log0.csv", "log1.csv", "both.txt"}
    assert not [text for text in ran.notes() if "written by rank 0" in text]
