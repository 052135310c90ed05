"""Test functions and arguments with other common names: they are accepted by their meaning, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from jupyter_ext.capture import capture_cell, capture_file
from jupyter_ext.submit.submit import SubmitOptions, check, describe, read
from kernel_backend.definition.contract import CONTRACT, Definition
from kernel_backend.definition.parse import parse
from kernel_backend.errors import CaptureError, InvalidDefinition
from kernel_backend.model.search.domains import Range
from tests.support.builders import parse_options

MODEL = "def model(width=64): ...\n"
DATA = "def train_data(): ...\n"
LOSS = "def loss(output, target): ...\n"
SMALL = MODEL + DATA + LOSS


def meant(source: str, role: str) -> dict[str, str]:
    """Return the loop value to which each argument of the roles is mapped."""
    return {each.name: each.value_of for each in parse(source).functions[role].parameters if each.kind == "loop"}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("scheduler", "schedule"),
        ("lr_scheduler", "schedule"),
        ("valid_data", "validation_data"),
        ("val_data", "validation_data"),
        ("val_loader", "validation_data"),
        ("validloader", "validation_data"),
        ("optim", "optimizer"),
        ("configure_optimizers", "optimizer"),
        ("metric", "metrics"),
    ],
)
def test_an_optional_role_by_another_name_is_taken_and_said_in_the_summary(name: str, role: str):
    definition = parse(SMALL + f"def {name}(): ...")
    assert definition.roles[-1] == role
    assert definition.summary == f"functions: model train_data loss {name} (as {role})"
    assert (definition.hints, definition.unused) == ((), ())


@pytest.mark.parametrize(
    ("source", "summary"),
    [
        (MODEL + "def train_dataset(): ...\n" + LOSS, "model train_dataset (as train_data) loss"),
        (MODEL + "def train_loader(): ...\n" + LOSS, "model train_loader (as train_data) loss"),
        (MODEL + "def trainset(): ...\n" + LOSS, "model trainset (as train_data) loss"),
        (MODEL + DATA + "def criterion(output, target): ...", "model train_data criterion (as loss)"),
        (MODEL + DATA + "def loss_fn(output, target): ...", "model train_data loss_fn (as loss)"),
        ("def build_model(): ...\n" + DATA + LOSS, "build_model (as model) train_data loss"),
        (
            MODEL + "def train_set(): ...\ndef train_loader(): return train_set()\n" + LOSS,
            "model train_loader (as train_data) loss",
        ),
    ],
)
def test_a_required_role_by_another_name_is_taken(source: str, summary: str):
    assert parse(source).summary == f"functions: {summary}"


def test_a_function_that_is_taken_as_a_role_may_be_shared_by_its_own_name():
    source = MODEL + "def train_set(size=9): ...\ndef val_set(train_set): ...\n" + LOSS
    definition = parse(source + "def optim(params): ...\ndef scheduler(optim): ...\n")
    (shared,) = definition.functions["validation_data"].parameters
    assert (shared.kind, shared.value_of, shared.name) == ("function", "train_data", "train_set")
    assert definition.functions["schedule"].parameters[0].value_of == "optimizer"
    assert set(definition.functions) == set(definition.roles)


def test_a_name_that_is_used_is_a_helper():
    source = MODEL + DATA + "def criterion(a, b): ...\ndef loss(output, target): return criterion(output, target)\n"
    definition = parse(source + "def scheduler(step): ...\ndef optimizer(params): LambdaLR(1, scheduler)\n")
    assert definition.summary == "functions: model train_data loss optimizer"
    assert definition.unused == ()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def criterion(a, b): ...", "criterion (line 4) is no role, and nothing uses it: did you mean loss?"),
        ("def optimzer(params): ...", "optimzer (line 4) is no role, and nothing uses it: did you mean optimizer?"),
        ("def val_data(): ...\ndef val_set(): ...", "val_set (line 5) is no role, and nothing uses it"),
        ("def training_step(batch): ...", "did you mean step?"),
        (
            "val_loader = []",
            "val_loader is assigned on line 4, and nothing uses it: write def validation_data(...) that returns it",
        ),
        (
            "import torchmetrics as tm\nf1, auc = 1, 2\nf1 = tm.F1Score()\nauc = tm.classification.AUROC()",
            'f1 (line 6) is a metric that nothing uses: write metrics = {"f1": f1, "auc": auc}.',
        ),
        (
            "from torchmetrics import Accuracy as A\ndef metrics(output, target): ...\nacc = A()",
            "acc (line 6) is a metric that nothing uses: return it from metrics.",
        ),
    ],
)
def test_what_is_named_like_a_role_and_used_by_nothing_is_told(source: str, says: str):
    assert says in "\n".join(parse(SMALL + source).unused)


@pytest.mark.parametrize(
    "line",
    [
        "from torch import optim",
        "net = model()",
        "criterion = nn.MSELoss()",
        "from torchmetrics import Accuracy\nacc = Accuracy()\ndef metrics(output, target): return {'acc': acc(1, 2)}",
    ],
)
def test_what_is_imported_or_of_a_role_that_is_there_may_stay_unused(line: str):
    assert parse(SMALL + line).unused == ()


def test_a_submission_is_refused_for_it_unless_it_is_allowed():
    capture = capture_cell(["x = 1"], SMALL + "def criterion(a, b): ...\n", line=2)
    with pytest.raises(CaptureError) as refused:
        check(capture, {})
    assert refused.value.message == (
        "criterion (cell [2] line 5) is no role, and nothing uses it: did you mean loss? "
        "Rename it, use it, or add --allow-unused."
    )
    allowed = check(capture, {}, SubmitOptions(allow_unused=True))
    assert "criterion (cell [2] line 5) is no role" in "".join(allowed.warnings)
    asked = read(parse_options(["--allow-unused"], "terminal"))
    assert asked.wanted.allow_unused
    assert asked.wanted.words() == ["--allow-unused"]


def test_a_helper_of_another_cell_is_no_role_by_any_name():
    above = "def val_data(): ...\ndef criterion(a, b): ...\n"
    definition = parse(above + SMALL, roles_from=3)
    assert (definition.roles, definition.unused) == (("model", "train_data", "loss"), ())


@pytest.mark.parametrize("role", ["loss", "metrics"])
@pytest.mark.parametrize(
    ("signature", "values"),
    [
        ("pred, y", {"pred": "output", "y": "target"}),
        ("a, b, weight=0.5", {"a": "output", "b": "target"}),
        ("y_true, y_pred", {"y_true": "target", "y_pred": "output"}),
        ("labels, logits", {"labels": "target", "logits": "output"}),
        ("y, t", {"y": "output", "t": "target"}),
        ("input, target", {"input": "output", "target": "target"}),
        ("input, output", {"input": "input", "output": "output"}),
        ("output, y", {"output": "output", "y": "target"}),
        ("x, target", {"x": "output", "target": "target"}),
        ("pred", {"pred": "output"}),
        ("output, alpha", {"output": "output"}),
        ("alpha, output, target", {"output": "output", "target": "target"}),
    ],
)
def test_a_loss_gets_output_and_target_by_place(role: str, signature: str, values: Mapping[str, str]):
    source = MODEL + DATA + (LOSS if role == "metrics" else "") + f"def {role}({signature}): ..."
    assert meant(source, role) == values


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("loss(model, batch)", {"model": "model", "batch": "batch"}),
        ("loss(batch, model)", {"batch": "batch", "model": "model"}),
        ("loss(model, x, y)", {"model": "model", "x": "input", "y": "target"}),
        ("loss(net, inputs, targets)", {"net": "model", "inputs": "input", "targets": "target"}),
        ("criterion(model, data, beta=0.1)", {"model": "model", "data": "batch"}),
        ("training_step(model, batch, batch_idx)", {"model": "model", "batch": "batch", "batch_idx": "index"}),
        ("step(network, images, labels)", {"network": "model", "images": "input", "labels": "target"}),
    ],
)
def test_a_loss_that_takes_the_model_is_a_training_step(written: str, values: Mapping[str, str]):
    definition = parse(MODEL + DATA + f"def {written}: ...")
    assert definition.steps == ("step",)
    function = definition.functions["step"]
    assert function.attribute == written.partition("(")[0]
    taken = {each.name: each.value_of for each in function.parameters if each.kind != "hyperparameter"}
    assert taken == values


@pytest.mark.parametrize("signature", ["pred, y, model", "a, b, model", "model, output, target", "logits, model"])
def test_a_loss_that_takes_the_output_beside_the_model_stays_a_loss(signature: str):
    assert parse(MODEL + DATA + f"def loss({signature}): ...").roles == ("model", "train_data", "loss")


def test_a_loss_of_several_models_is_their_step():
    source = "def model(): return {'gen': 1, 'disc': 2}\ndef train_data(): ...\ndef loss(gen, disc, batch): ..."
    assert parse(source).summary == "functions: model train_data loss (as step)"


def test_a_loss_of_the_model_that_a_step_calls_is_a_helper():
    source = "def loss(model, batch): ...\ndef step(model, batch): return loss(model, batch)"
    assert parse(MODEL + DATA + source).roles == ("model", "train_data", "step")


def test_a_loss_of_the_model_in_an_older_snapshot_is_read_as_it_was():
    assert parse(MODEL + DATA + "def loss(model, batch): ...", contract=4).steps == ()


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("loss(output, y_a, y_b, lam)", "def loss(output, batch) gets the whole batch, to be taken apart there"),
        ("loss(model, images, masks, labels)", "def loss(model, batch) gets the whole batch"),
    ],
)
def test_a_loss_of_more_items_than_can_be_told_apart_is_refused_with_what_to_write(written: str, instead: str):
    with pytest.raises(InvalidDefinition) as error:
        parse(MODEL + DATA + f"def {written}: ...").bind({})
    assert instead in error.value.message


def test_what_is_taken_by_place_is_said():
    definition = parse(MODEL + DATA + "def loss(pred, y): ...")
    assert definition.hints == ("pred, y of loss (line 3): taken as output, target",)
    assert definition.bind({}) == {"width": 64, "lr": 1e-3}


@pytest.mark.parametrize(
    ("source", "role", "values"),
    [
        ("def optimizer(parameters, lr=1e-2): ...", "optimizer", {"parameters": "params"}),
        ("def optimizer(lr, params): ...", "optimizer", {"params": "params"}),
        ("def optimizer(model, lr): ...", "optimizer", {}),
        ("def schedule(opt): ...", "schedule", {"opt": "optimizer"}),
        ("def schedule(opt, steps): ...", "schedule", {"opt": "optimizer", "steps": "steps"}),
    ],
)
def test_an_optimizer_and_a_schedule_get_what_they_are_about_by_place(
    source: str, role: str, values: Mapping[str, str]
):
    assert meant(SMALL + source, role) == values


def test_an_argument_of_a_loss_without_a_value_is_told_with_what_a_loss_can_have():
    with pytest.raises(InvalidDefinition) as error:
        parse(MODEL + DATA + "def loss(x, pred, y): ...").bind({})
    assert "x (line 3) has no value" in error.value.message
    assert "By name loss can have output, target, input, batch, epoch" in error.value.message


def test_without_an_optimizer_there_is_the_lr_of_adamw():
    definition = parse(SMALL)
    assert definition.bind({"lr": 0.1}) == {"width": 64, "lr": 0.1}
    with pytest.raises(InvalidDefinition, match=r"lr='x': lr \(of AdamW, as there is no optimizer\) takes a number"):
        definition.bind({"lr": "x"})
    assert "lr" not in parse(SMALL + "def optimizer(params): ...").hyperparameters
    assert parse(SMALL.replace("width=64", "lr=3")).hyperparameters["lr"].default == 3


def test_a_snapshot_of_before_is_read_as_it_was():
    source = SMALL + "def scheduler(optimizer): ...\ndef valid_data(): ...\n"
    before = parse(source, contract=1)
    assert before.roles == ("model", "train_data", "loss")
    assert set(before.hyperparameters) == {"width"}


def test_a_snapshot_says_by_which_contract_it_is_read(tmp_path: Path):
    (tmp_path / "train.py").write_text(SMALL)
    assert describe(check(capture_file(tmp_path / "train.py"), {})).contract == CONTRACT


def test_definitions_with_other_names_travel_as_json():
    definition = parse(MODEL + "def train_set(): ...\ndef criterion(a, b): ...")
    assert Definition.model_validate(definition.to_json()) == definition


def test_the_lr_of_adamw_can_be_searched():
    from kernel_backend.definition.binding import bind_space
    from kernel_backend.spec.assignments import parse_line

    bound = bind_space(parse(SMALL + "def val_set(): ..."), {}, parse_line(["lr=1e-4..1e-1:log"]).space)
    assert isinstance(bound.space.parameters[0].domain, Range)
    assert bound.params == {"width": 64}


@pytest.mark.parametrize(
    ("helper", "role"),
    [
        ("def test_loader(): ...", "test_data"),
        ("def get_test_data(): ...", "test_data"),
        ("def collate_fn(x): ...", "collate"),
    ],
)
def test_names_that_a_contract_does_not_know_yet_stand_in_nobodys_way(helper: str, role: str):
    before, now = parse(SMALL + helper, contract=2), parse(SMALL + helper)
    assert before.roles == ("model", "train_data", "loss")
    assert now.roles == (*before.roles, role)
    assert before.bind({}) == now.bind({}) == {"width": 64, "lr": 1e-3}
    assert now.unused == ()


def test_of_two_names_of_a_role_the_one_that_the_other_asks_for_is_a_function():
    definition = parse(MODEL + "def train_set(): ...\ndef train_loader(train_set): ...\n" + LOSS)
    assert definition.summary == "functions: model train_loader (as train_data) loss"
    assert definition.functions["train_data"].parameters[0].kind == "function"


def test_an_optimizer_gets_the_model_by_another_name_and_no_number_is_taken_for_its_parameters():
    (net, _) = parse(SMALL + "def optimizer(net, lr): ...").functions["optimizer"].parameters
    assert (net.kind, net.value_of) == ("function", "model")
    assert meant(SMALL + "def optimizer(lr): ...", "optimizer") == {}
    assert meant(SMALL + "def optimizer(rate: float, weights): ...", "optimizer") == {"weights": "params"}


def test_a_snapshot_of_the_first_contract_has_hyperparameters_of_any_name():
    source = MODEL + DATA + "def loss(output, y): ..."
    assert parse(source, contract=1).functions["loss"].parameters[1].kind == "hyperparameter"
    assert parse(source).functions["loss"].parameters[1].kind == "loop"
