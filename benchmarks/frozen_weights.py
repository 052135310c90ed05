"""Measure the bytes of a LoRA fine-tune's checkpoints, with the base model written once and written each time.

    python benchmarks/frozen_weights.py [--checkpoints 20]

The model is a small BERT made from its config, with LoRA of rank 4 on queries and values (peft), trained with AdamW.
`trained` are the adapter and classifier with their optimizer state. The export is `merge_and_unload` of a model that
was loaded from the newest checkpoint, against that of the model in memory, bit by bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification

from kernel_backend.checkpoints.base import FROZEN, Manifest
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import load_model
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer, Position
from kernel_backend.runner.checkpoint.contents import TrainingContents
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.ranks.backends import SingleRank
from tests.unit.runner.test_checkpointer import CPU, job


def adapted() -> Any:
    """Return a BERT of 4 million parameters, of which 25 thousand are trained."""
    torch.manual_seed(0)
    config = BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    lora = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    return get_peft_model(BertForSequenceClassification(config), lora)


def train(model: Any, folder: Path, checkpoints: int) -> Directory:
    """Train that many steps and save a checkpoint after each; return their folder."""
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-3)
    home = Directory(folder / "1" / "1")
    parts = {"model": Model(model), "optimizer": Optimizer(optimizer)}
    contents = TrainingContents(parts, LogicalRanks(model, range(1), 1), None, SingleRank(), 0)
    spool = Spool(folder / "spool", 0)
    saver = Checkpointer(job(folder), SingleRank(), spool, home, contents, {}, HostCopy(CPU), eager=True)
    for step in range(1, checkpoints + 1):
        words = torch.randint(0, 1000, (8, 16))
        optimizer.zero_grad()
        model(input_ids=words, labels=words[:, 0] % 2).loss.backward()
        optimizer.step()
        saver.finish(Position(step, step / 10, {}, {}))
    return home


def exported(model: Any) -> dict[str, torch.Tensor]:
    """Return the weights of the merged model."""
    return dict(model.merge_and_unload().state_dict())


def sizes(manifest: Manifest) -> tuple[int, int]:
    """Return the bytes of the parts that each checkpoint writes, and of those that checkpoints share."""
    shared = sum(part.size for part in manifest.parts if part.name.endswith(FROZEN))
    return manifest.bytes - shared, shared


def main() -> None:
    """Measure the sizes, and compare the exported weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=20)
    count = parser.parse_args().checkpoints
    with tempfile.TemporaryDirectory() as folder:
        model = adapted()
        home = train(model, Path(folder), count)
        newest = home.committed()[-1]
        files = {each.stat().st_ino for each in Path(home.where).glob(f"*/*{FROZEN}.safetensors")}
        each, once = sizes(newest)
        trained = sum(3 * parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
        loaded = adapted()
        loaded.load_state_dict(load_model(home, newest))
        mine, its = exported(model), exported(loaded)
    print(f"trained, with optimizer state:   {trained / 1e3:,.0f} kB")
    print(f"all of it in each checkpoint:    {(each + once) / 1e3:,.0f} kB ({(each + once) / trained:.1f} x)")
    print(
        f"the base written once:           {each / 1e3:,.0f} kB ({each / trained:.2f} x), and once {once / 1e3:,.0f} kB"
    )
    print(f"{count} checkpoints: {(each * count + once) / 1e6:.1f} MB against {(each + once) * count / 1e6:.1f} MB")
    print(f"files of the base among those that stay: {len(files)}")
    same = mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)
    print(f"merged export equal to the bit: {same}")


if __name__ == "__main__":
    main()
