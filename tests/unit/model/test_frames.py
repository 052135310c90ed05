"""Test which frames of a stack are the user's, and how they are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.model.frames import Call, Sources, users_frame
from kernel_backend.model.snapshot import Environment, Piece, Project, Snapshot


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/ada/net/jobs/train.py", "train.py"),  # the working folder
        ("/home/ada/net/scripts/train.py", "scripts/train.py"),  # elsewhere in the project
        ("/attempt/code/project/scripts/helpers.py", "scripts/helpers.py"),
        ("/home/ada/net/.venv/lib/python3.11/site-packages/torch/nn.py", None),
        ("/home/ada/others/train.py", None),
    ],
)
def test_a_frame_is_named_by_its_place_in_the_working_folder_or_the_project(file: str, shown: str | None) -> None:
    environment = Environment(python="3", implementation="CPython", platform="linux", cpu="", cores=1, distributions={})
    snapshot = Snapshot(
        version="test",
        numerics=1,
        pieces=(Piece(cell=None, file="train.py", line=1, count=30, cell_line=1),),
        roles_from=1,
        environment=environment,
        project=Project(root="/home/ada/net", cwd="jobs", paths=(".",)),
    )
    frame = users_frame(Call(file, 7, "f"), Sources(Path("/attempt/code"), Path("/home/ada/net/jobs"), snapshot))
    assert (frame and (frame.file, frame.line)) == (shown and (shown, 7))
