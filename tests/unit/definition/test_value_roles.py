"""Test roles that are assigned values: which they are, how they are called, and errors."""

from __future__ import annotations

import pytest

from kernel_backend.definition.parse import parse
from kernel_backend.definition.rewritten import as_function
from kernel_backend.errors import InvalidDefinition

VALUES = """\
net = Net()
criterion = nn.CrossEntropyLoss()
train_set, val_set = random_split(digits, [1500, 297])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=64)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
"""


def refused(source: str, **given: object) -> str:
    with pytest.raises(InvalidDefinition) as error:
        parse(source).bind(given)  # type: ignore[arg-type]
    return error.value.message


def test_assigned_values_are_roles_by_their_names_and_other_names():
    definition = parse(VALUES)
    assert definition.summary == (
        "functions: net (as model) criterion (as loss) train_loader (as train_data) "
        "val_loader (as validation_data) optimizer"
    )
    assert {name: each.attribute for name, each in definition.functions.items()} == {
        "model": "net",
        "loss": "criterion",
        "train_data": "train_loader",
        "validation_data": "val_loader",
        "optimizer": "optimizer",
    }
    assert definition.bind({}) == {}
    assert definition.unused == ()


def test_a_part_of_a_tuple_is_a_role_where_no_loader_is_made_of_it():
    assert "train_set (line 3) and train_loader (line 4) may each be train_data" in refused(
        VALUES.replace("DataLoader(train_set", "DataLoader(digits")
    )
    split = "train_set, test_set = random_split(digits, [1500, 297])\n"
    definition = parse(split + "def model(): ...\ndef loss(output, target): ...\n")
    assert definition.functions["train_data"].value == "random_split(digits, [1500, 297])[0]"
    assert definition.functions["test_data"].attribute == "test_set"


def test_values_and_functions_are_mixed_freely():
    definition = parse(
        "model = Net()\ntrain_data = digits\ndef loss(output, target): return criterion(output, target)\n"
        "criterion = nn.MSELoss()\ndef optimizer(params, lr=1e-3): ...\n"
    )
    assert definition.summary == "functions: model train_data loss optimizer"
    assert definition.bind({"lr": 0.1}) == {"lr": 0.1}


def test_functions_may_ask_for_values_of_other_roles():
    definition = parse(VALUES + "def on_epoch(model, train_data): ...\n")
    kinds = {each.name: each.kind for each in definition.functions["on_epoch"].parameters}
    assert kinds == {"model": "function", "train_data": "function"}


@pytest.mark.parametrize(
    ("written", "per"),
    [
        ("StepLR(optimizer, 5)", "epoch"),
        ("CosineAnnealingLR(optimizer, T_max=10)", "epoch"),
        ("CosineAnnealingLR(optimizer, T_max=10 * len(train_loader))", None),
        ("OneCycleLR(optimizer, 0.1, total_steps=100)", None),
        ("ReduceLROnPlateau(optimizer)", None),
    ],
)
def test_a_schedule_steps_as_pytorch_documents_its_class(written: str, per: str | None):
    definition = parse(f"{VALUES}scheduler = {written}\n")
    assert definition.settings.get("schedule_per") == per
    assert any("--schedule-per step" in each for each in definition.hints) == (per == "epoch")


def test_a_value_has_no_hyperparameters_and_the_message_writes_the_function():
    assert refused(VALUES, lr=0.1) == (
        "lr is no hyperparameter: optimizer (line 6) is a value. Write\n"
        "def optimizer(params, lr=0.001):\n    return torch.optim.Adam(params, lr=lr)"
    )
    assert refused(VALUES, width=3).startswith("width is no hyperparameter; there are: none. net (line 1), ")


@pytest.mark.parametrize(
    ("role", "value", "function"),
    [
        (
            "schedule",
            "StepLR(optim, 5, gamma=0.1)",
            "def schedule(optimizer):\n    return StepLR(optimizer, 5, gamma=0.1)",
        ),
        ("loss", "lambda a, b: a - b", "def loss(output, target):\n    return (lambda a, b: a - b)(output, target)"),
        ("optimizer", "Adam(groups(net))", "def optimizer(model):\n    return Adam(groups(net))"),
    ],
)
def test_a_value_is_written_as_a_function(role: str, value: str, function: str):
    assert as_function(role, value) == function


def test_an_optimizer_value_belongs_to_a_model_value():
    source = VALUES.replace("net = Net()", "def net(): ...")
    assert refused(source) == (
        "optimizer (line 6) is a value, and model (line 1) is a function, which makes another one for each training: "
        "write\ndef optimizer(params):\n    return torch.optim.Adam(params, lr=0.001)"
    )
    assert "schedule (line 7) is a value, and there is no optimizer" in refused(
        VALUES.replace("optimizer =", "opt =") + "schedule = StepLR(opt, 5)\n"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "net.fit(x, y)\n",
        "def run():\n    loss.backward()\nrun()\n",
        "class Trainer:\n    def go(self): loss.backward()\nTrainer().go()\n",
        "for epoch in range(5):\n    train_one_epoch(net, train_loader, optimizer)\n",
        "net, optimizer, train_loader = accelerator.prepare(net, optimizer, train_loader)\n",
    ],
)
def test_a_cell_that_trains_when_it_runs_is_refused(statement: str):
    message = refused(VALUES + statement)
    assert "this cell trains by itself (line " in message
    assert "take that statement away" in message


def test_written_out_values_are_no_roles():
    assert "metrics" not in parse(VALUES + "history = {}\noptim = 'adam'\nscheduler = None\n").roles
    assert "metrics is assigned on line 7" in refused(VALUES + "metrics = {'loss': []}\n")


def test_a_sampler_that_a_loader_uses_is_no_role():
    used = VALUES.replace("shuffle=True", "sampler=sampler")
    assert "sampler" not in parse(f"sampler = WeightedRandomSampler(weights, 100)\n{used}").roles
    assert "sampler" in parse(f"{VALUES}sampler = WeightedRandomSampler(weights, 100)\n").roles


def test_two_values_for_one_role_are_refused():
    assert refused(VALUES + "model = Other()\n") == (
        "net (line 1) and model (line 7) may each be model: rename the one that is not"
    )


def test_roles_come_from_the_submitted_cell():
    with pytest.raises(InvalidDefinition, match="this cell has no model"):
        parse(VALUES, roles_from=2)


def test_a_snapshot_of_an_earlier_contract_has_no_values():
    with pytest.raises(InvalidDefinition, match="optimizer is assigned on line 6, and a role is a function"):
        parse(VALUES, contract=3)
