"""Test which part of a definition travels with a model."""

from __future__ import annotations

import pytest
import torch

from kernel_backend.errors import InvalidRequest
from kernel_backend.export.code import needed_code

SOURCE = """\
from __future__ import annotations
import csv
import torch
from torch import nn

text = open("secret.txt").read()
chars = sorted(set(text))
table = torch.rand(3)
x = load()

def helper(x):
    return x + len(chars)

@staticmethod
def decorated(a): ...

class Net(nn.Module):
    # what it does
    def forward(self, x):
        return helper(x) * table

model = Net()
for epoch in range(3):
    scale = epoch
    loss = model(x).sum()
    loss.backward()
"""


def test_computed_values_are_written_and_their_sources_left_out() -> None:
    code = needed_code(SOURCE, {"Net"}, {"chars": ["a", "b"], "table": torch.ones(3), "x": torch.ones(9)})
    assert code.source.index("from __future__") < code.source.index("from torch import nn")
    assert "chars = ['a', 'b']\n" in code.source
    assert 'table = _values["table"]\n' in code.source
    assert "# what it does" in code.source
    assert list(code.tensors) == ["table"]
    for left_out in ("secret.txt", "load()", "import csv", "decorated", "Net()", "epoch"):
        assert left_out not in code.source
    compile(code.source, "definition.py", "exec")


def test_a_name_without_a_value_keeps_the_statement_that_makes_it() -> None:
    code = needed_code("import torch\ndevice = torch.device('cpu')\ndef f(): return device\n", {"f"}, {})
    assert "device = torch.device('cpu')" in code.source


def test_decorators_and_several_bindings_travel() -> None:
    optional = "import functools\ntry:\n    import fast\nexcept ImportError:\n    fast = None\n"
    source = optional + "\n\n@functools.cache\ndef f(): return fast\n"
    assert needed_code(source, {"f"}, {}).source.endswith(source)
    assert needed_code("a = 1; b = set()\ndef f(): return b\n", {"f"}, {}).source.endswith(
        "b = set()\n\n\ndef f(): return b\n"
    )


def test_what_the_training_changes_is_refused() -> None:
    source = SOURCE.replace("* table", "* scale")
    with pytest.raises(InvalidRequest, match=r"reads scale, which the training changes \(line 23\)"):
        needed_code(source, {"Net"}, {"chars": []})
