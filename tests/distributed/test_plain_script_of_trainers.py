"""Test that an `--as-script` script with a framework's Trainer computes the job's bits without Daylight."""

from __future__ import annotations

import pytest
import torch
from gang import Trial
from test_plain_script import without_daylight

from jupyter_ext.plain_script.script import plain_script
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config

__all__ = ["without_daylight"]  # a fixture of the tests below
pytestmark = pytest.mark.distributed

TRAINER = """
from __future__ import annotations
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
ids = torch.randint(5, 60, (40, 6))
samples = [dict(input_ids=each, labels=int(each[0] > 30)) for each in ids]
model = BertForSequenceClassification(BertConfig(
    vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
))
args = TrainingArguments("out", per_device_train_batch_size=8, num_train_epochs=1,  # short
                         learning_rate=1e-3, report_to="none", save_strategy="no")
trainer = Trainer(model=model, args=args, train_dataset=samples)
trainer.train()
"""
LIGHTNING = """
import lightning as L
import torch
from torch import nn
torch.manual_seed(3)
class Lit(L.LightningModule):
    def __init__(self, width=4, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)
x = torch.randn(30, 2)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=6)
model = Lit(width=8)
trainer = L.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, accelerator="cpu")
trainer.fit(model, loader)
"""
CASES = {
    "trainer": (TRAINER, {"learning_rate": 5e-3}, "learning_rate=0.005, report_to"),
    "lightning": (LIGHTNING, {"width": 6, "lr": 0.05}, "Lit(width=6, lr=0.05)"),
}


def script_of(source, config, params):
    definition = parse(source)
    return plain_script(source, definition, config, definition.bind(params), "%%dlsubmit")


@pytest.mark.parametrize("case", CASES)
def test_a_script_of_a_trainer_computes_the_same_bits(tmp_path, without_daylight, case):
    source, params, written = CASES[case]
    trial = Trial(tmp_path / "trial", source=source, slots=1, epochs=2, params=params)
    attempt = trial.run()
    assert attempt.codes == [0], attempt.logs()
    script = script_of(source, attempt.job.config, params)
    assert written in script
    (tmp_path / "train.py").write_text(script + "torch.save(model.state_dict(), 'weights.pt')\n")
    without_daylight(tmp_path, "train.py")
    weights = torch.load(tmp_path / "weights.pt")
    assert weights.keys() == trial.model().keys()
    assert all(torch.equal(each, trial.model()[name]) for name, each in weights.items())


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        (TRAINER, {"clip": 2.0}, "write --clip into its arguments"),
        (LIGHTNING.replace("trainer.fit(model, loader)", "def train_data(): ..."), {}, "trainer.fit"),
        ("def train(run): ...", {}, "DataLoader in place of run.loader"),
        (
            "import keras\ndef train_data(): ...\ndef model():\n    net = keras.Sequential([])\n"
            "    net.compile(loss=1)\n    return net\n",
            {},
            r"write model\(\).fit",
        ),
    ],
)
def test_of_other_forms_the_reason_is_told(source, options, told):
    with pytest.raises(InvalidRequest, match=told):
        script_of(source, Config(**options), {})
