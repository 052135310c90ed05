"""Test which names of values are read in the source of a program, and the refusal of a metric that is none of them."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.definition.reported.source import names_in_source
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config, Metric
from kernel_backend.model.search.records import Search

LOOP = """
import torch
from torch import nn
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
print(net)
for epoch in range(3):
    net.train()
    for x, y in data:
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    score = evaluate(net)
    print({})
"""
FUNCTIONS = """
from torch import nn
def model(): return nn.Linear(4, 1)
def train_data(): return data
def validation_data(): return data
def loss(output, target): return (output - target).square().mean()
def metrics(output, target): return {}
"""
LIGHTNING = """
import lightning as L
class Net(L.LightningModule):
    def training_step(self, batch, batch_idx): ...
    def validation_step(self, batch, batch_idx): self.log({}, 0.5)
    def configure_optimizers(self): ...
    def train_dataloader(self): ...
L.Trainer(max_epochs=1).fit(Net())
"""
OWN = """
def train(run):
    for epoch in run.epochs(3):
        run.report({}, validation=True)
"""


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('print(f"Epoch {e}: Loss: {l}, Val: {v}")', ["loss", "val"]),
        ('print("Loss:", loss, "Val:", val)', ["loss", "val"]),
        ('for epoch in range(3): print(epoch, "loss", l)', ["loss"]),
        ('print("loss %.3f acc %s" % (a, b))', ["loss", "acc"]),
        ('print("Train Epoch: {} [{}/{} ({:.0f}%)]\\tLoss: {:.6f}".format(e, b, c, d, f))', ["loss"]),
        ('print(f"Epoch [{epoch + 1}/{EPOCHS}], Step [{i}/{n}], Loss: {loss.item():.4f}")', ["loss"]),
        ('print(f"mAP@0.5:0.95 {m:.3f}  F1 {f}")', ["map@0.5_0.95", "f1"]),
        ('logger.info("loss %.3f f1 %.2f", a, b)', ["loss", "f1"]),
        ('wandb.log({"val/acc": a})', ["val/acc"]),
        ('writer.add_scalar("Loss/train", loss, epoch)', ["Loss/train"]),
        ("bar.set_postfix(loss=a, acc=f'{b:.2f}')", ["loss", "acc"]),
        ("print('-' * 30); x = torch.log(y) + y.log()", []),
        ("net.eval(); print('done')", []),
    ],
)
def test_names_in_calls_that_print_and_log_are_read(source: str, names: list[str]) -> None:
    assert names_in_source({"": ast.parse(source)}) == tuple(names)


@pytest.mark.parametrize(
    "source",
    [
        "print(report)",
        "for name, value in results.items(): print(name, value)",
        'print(f"{split} acc: {value:.3f}")',
        'print(f"top{k}: {value:.3f}")',
        'print(f"Best {name}: {value}")',
        'print("{}: {}".format(name, value))',
        'print("acc", end=" "); print(value)',
        "print(*row)",
        "wandb.log(values)",
        "logger.log(values)",
        "bar.set_postfix(**values)",
        'writer.add_scalar(f"{split}/acc", value)',
        "import fastai",
        "from .helpers import show",
        'exec("print(1)")',
        "mlflow.autolog()",
    ],
)
def test_a_source_that_does_not_show_all_names_tells_none(source: str) -> None:
    assert names_in_source({"": ast.parse(source)}) is None


SEARCH = Search(method="random", trials=2)
VALUES = {"script": 'f"Loss: {loss}, Val: {score}"', "functions": '{"accuracy": 1}', "lightning": '"val_acc"'}
SOURCES = {"script": LOOP, "functions": FUNCTIONS, "lightning": LIGHTNING, "loop": OWN}


@pytest.mark.parametrize(
    ("form", "written", "message"),
    [
        (
            "script",
            VALUES["script"],
            "only loss val score{why} choose one of these, or print it after each epoch, such",
        ),
        ("functions", '{"accuracy": 1}', "only loss accuracy{why} choose one of these, or have metrics() return it"),
        (
            "lightning",
            '"val_acc"',
            "only val_acc{why} choose one of these, or log it in validation_step, such as self.log",
        ),
        (
            "loop",
            "acc=0.5",
            "only acc{why} choose one of these, or report it in each epoch, such as run.report(F1",
        ),
    ],
)
def test_a_metric_that_the_source_never_reports_is_refused_with_the_advice_of_its_form(form, written, message) -> None:
    definition = parse(SOURCES[form].replace("{}", written))
    assert definition.form == form
    metric = Metric(name="F1", mode="max")
    for config, why in ((Config(metric=metric), ":"), (Config(metric=metric, search=SEARCH), "; a search goes by it:")):
        with pytest.raises(InvalidDefinition) as caught:
            check_options(definition, config)
        assert caught.value.message.startswith("--metric F1: the validation reports no such metric, ")
        assert message.format(why=why) in caught.value.message


@pytest.mark.parametrize(
    ("form", "written", "metric"),
    [
        ("script", VALUES["script"], "Val"),
        ("script", VALUES["script"], "score"),  # a variable of the loop
        ("script", 'f"mAP@0.5:0.95 {score:.3f}"', "mAP@0.5:0.95"),
        ("script", "values", "anything"),
        ("functions", '{"accuracy": 1}', "Accuracy"),
        ("functions", "{name: 1}", "anything"),
        ("lightning", '"val_acc"', "VAL_ACC"),
        ("lightning", 'f"{stage}_acc"', "val_acc"),
        ("loop", "acc=0.5", "ACC"),
        ("loop", "values", "acc"),
    ],
)
def test_a_metric_that_a_source_reports_or_may_report_is_taken(form: str, written: str, metric: str) -> None:
    definition = parse(SOURCES[form].replace("{}", written))
    check_options(definition, Config(metric=Metric(name=metric, mode="max"), search=SEARCH))


def test_a_search_by_the_default_metric_names_what_is_printed_instead() -> None:
    definition = parse(LOOP.replace("{}", 'f"Val: {score}"').replace("score = evaluate(net)", "pass"))
    with pytest.raises(
        InvalidDefinition, match="val is reported, no loss, and a search goes by it: write --metric val"
    ):
        check_options(definition, Config(search=SEARCH))
    check_options(definition, Config())
