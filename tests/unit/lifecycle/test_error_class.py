"""Test which errors follow from the user's code alone, so that a trial is not tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.lifecycle.error_class import of_code, would_repeat
from kernel_backend.model.trial import Failure
from kernel_backend.runner.failure import describe

OF_CODE = [
    "1 + 'a'",
    "int('x')",
    "undefined",
    "{}['loss']",
    "[][3]",
    "None.shape",
    "assert False",
    "1 / 0",
    "raise NotImplementedError",
    "torch.ones(2, 3) @ torch.ones(2, 3)",
    "torch.nn.Linear(2, 3)(torch.ones(1, 5))",
    "torch.ones(2) + torch.ones(3)",
    "torch.ones(()).backward()",
    "torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.ones(4).long())",
]
OF_THE_MACHINE = [
    "open('missing')",
    "raise MemoryError",
    "raise ConnectionError('reset by peer')",
    "raise TimeoutError",
    "raise RuntimeError('CUDA error: device-side assert triggered')",
    "raise torch.OutOfMemoryError('CUDA out of memory')",
    "raise RuntimeError('unable to open shared memory object')",
    "raise RuntimeError('Gloo connectFullMesh failed')",
    "raise ValueError('the connection to the hub timed out')",
    "import json; json.loads('{')",
    "import os; os.environ['TOKEN']",
    "import nothing_of_this_name",
]


def raised(folder: Path, line: str, step: int | None = 1) -> Failure:
    """Return the failure of a definition in whose function this line raises."""
    path = folder / "definition.py"
    path.write_text(f"import torch\ndef loss():\n    {line}\n")
    scope: dict[str, object] = {}
    try:
        exec(compile(path.read_text(), str(path), "exec"), scope)
        scope["loss"]()  # type: ignore[operator]
    except Exception as error:
        return describe(error, 0, step, folder, folder, None)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("line", OF_CODE)
def test_an_error_of_code_and_values_is_not_tried_again_unless_the_trial_got_further(tmp_path: Path, line: str) -> None:
    failure = raised(tmp_path, line)
    assert of_code(failure)
    assert would_repeat(failure, None, progress=False)
    assert not would_repeat(failure, None, progress=True)
    assert would_repeat(failure, failure, progress=True)


@pytest.mark.parametrize("line", OF_THE_MACHINE)
def test_an_error_of_the_machine_or_of_another_package_is_tried_again(tmp_path: Path, line: str) -> None:
    failure = raised(tmp_path, line)
    assert not of_code(failure)
    assert not would_repeat(failure, None, progress=False)


def test_an_error_of_ours_is_tried_again(tmp_path: Path) -> None:
    failure = raised(tmp_path, "1 / 0").model_copy(update={"frames": ()})
    assert not of_code(failure)
