"""Test that `daylight submit --as-script` prints a script and sends nothing."""

from __future__ import annotations

import ast

from kernel_backend.cli import main

CELL = """
import torch
def train_data(): return [(torch.zeros(1), torch.zeros(1))]
def model(width=8): return torch.nn.Linear(1, 1)
def loss(output, target): return (output - target).square().mean()
"""


def test_a_file_is_printed_as_a_script(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(CELL)
    assert main(["submit", "train.py", "--as-script", "--epochs", "3", "width=16"]) == 0
    printed = capsys.readouterr().out
    ast.parse(printed)
    assert CELL.strip() in printed
    assert 'parser.add_argument("--width", type=int, default=16)' in printed
    assert '"--epochs", type=int, default=3' in printed


def test_a_search_is_no_script(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(CELL + "def validation_data(): return train_data()\n")
    assert main(["submit", "train.py", "--as-script", "--search", "grid", "width=16,32"]) == 2
    assert "a search trains several trials" in capsys.readouterr().err
