"""Run a script that saves all the time, to be killed during a save."""

from __future__ import annotations

from multiprocessing.connection import Connection

import torch

from kernel_backend import checkpoints

SIZE = 200_000


def state_of(step: int) -> dict[str, object]:
    """Return the state to save at a step; every value in it follows from the step."""
    return {"step": step, "weights": torch.full((SIZE,), float(step)), "more": {"half": torch.full((3,), step / 2)}}


def script(where: str, said: Connection) -> None:
    """Resume from the newest checkpoint, and save without end; print each step after its save."""
    begin = checkpoints.load(where)["step"] if checkpoints.latest(where) else 0
    said.send(begin)
    step = begin
    while True:
        step += 1
        checkpoints.save(where, state_of(step), step)
        said.send(step)
