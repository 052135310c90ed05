"""Test which frameworks a forkserver imports before it forks ranks."""

from __future__ import annotations

import pytest

from kernel_backend.launch.forkserver import cache_key
from kernel_backend.launch.forkserver.frameworks import framework_variables, frameworks

KERAS = "import keras\ndef model():\n    net = keras.Sequential()\n    net.compile(loss='mse')\n    return net"
TRAINER = "from transformers import Trainer, TrainingArguments"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import lightning as L", ("lightning.pytorch",)),
        ("import lightning.pytorch as pl", ("lightning.pytorch",)),
        ("import torch\nfrom pytorch_lightning import Trainer", ("pytorch_lightning",)),
        (KERAS, ("keras",)),
        ("import keras\nnet = keras.Sequential()\nnet.compile(loss='mse')\nnet.fit(x, y)", ("keras",)),
        ("import keras\nimages, labels = keras.datasets.mnist.load_data()", ()),
        (TRAINER, ("transformers.trainer",)),
        ("from transformers import AutoTokenizer", ()),
        (
            "import lightning\nfrom torchmetrics.classification import BinaryAUROC",
            ("lightning.pytorch", "torchmetrics"),
        ),
        ("import torch", ()),
        ("from .lightning import L", ()),
        ("def model():\n    import lightning", ()),
        ("import os\nos.environ['HF_HOME'] = '/data'\nimport lightning", ()),
        ("import lightning as", ()),
    ],
)
def test_frameworks_are_those_that_a_definition_imports_at_its_top(tmp_path, source, expected):
    (tmp_path / "definition.py").write_text(source)
    assert frameworks(tmp_path, tmp_path / "elsewhere") == expected


@pytest.mark.parametrize("place", ["code", "cwd"])
def test_a_module_of_the_users_own_is_no_framework(tmp_path, place):
    code, cwd = tmp_path / "code", tmp_path / "cwd"
    for folder in (code, cwd):
        folder.mkdir()
    (code / "definition.py").write_text("import lightning")
    (tmp_path / place / "lightning.py").touch()
    assert frameworks(code, cwd) == ()


@pytest.mark.parametrize("source", [KERAS, TRAINER, "import sklearn, torchmetrics"])
def test_what_looks_for_gpus_when_it_is_imported_is_not_imported_for_jobs_on_gpus(tmp_path, source):
    (tmp_path / "definition.py").write_text(source)
    assert frameworks(tmp_path, tmp_path, gpus=True) == ()


def test_keras_on_tensorflow_is_imported_by_its_ranks_alone(tmp_path):
    (tmp_path / "definition.py").write_text("import tensorflow as tf\n" + KERAS)
    assert frameworks(tmp_path, tmp_path) == ()


def test_keras_is_imported_on_torch_as_the_ranks_do():
    assert framework_variables(["lightning.pytorch", "keras"]) == {"KERAS_BACKEND": "torch"}


def test_no_definition_needs_no_framework(tmp_path):
    assert frameworks(tmp_path, tmp_path) == ()


def test_a_forkserver_with_a_framework_is_another_one():
    assert cache_key.key({}) != cache_key.key({}, ["lightning.pytorch"])
