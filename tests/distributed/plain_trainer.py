"""Train a cell with a Trainer of Hugging Face without Daylight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file


def plainly_trained(cell: str, model: str, folder: Path) -> dict[str, bytes]:
    """The weights of the variable `model` that the cell trains by itself, with the settings of a rank."""
    target, path = folder / "plain.safetensors", folder / "plain.py"
    save = f"save_file({{name: each.clone() for name, each in {model}.state_dict().items()}}, {str(target)!r})\n"
    head = "import torch\nfrom safetensors.torch import save_file\ntorch.set_num_threads(1)\n"
    path.write_text(head + cell + save)
    subprocess.run([sys.executable, str(path)], check=True, cwd=folder)
    return {name: each.numpy().tobytes() for name, each in load_file(target).items()}
