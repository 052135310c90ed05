"""Test that roles are called with the values that their arguments name, and that invalid results raise errors."""

from __future__ import annotations

import collections
import dataclasses
import pickle
import re
import sys
import types

import pytest
import torch
from torch import nn

from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.definition.functions import Functions, loss_and_logged, step_result
from kernel_backend.runner.definition.load import Loaded, load
from kernel_backend.runner.loop.batch_rule import BatchRule
from kernel_backend.runner.loop.objective import assigned

BASIC = """
import torch
from torch import nn
calls = []
def shared():
    calls.append("shared")
    return 4
def train_data(shared): return [(torch.ones(shared), torch.ones(2))] * 3
def model(shared, width=2, device="cpu"): return nn.Linear(shared, width)
def loss(output, target, weight=0.5): return weight * (output - target).square().mean()
"""


def functions(source, **params):
    module = types.ModuleType("definition")
    exec(source, module.__dict__)
    return Functions(Loaded(module, parse(source)), params, 0, {"device": "cpu", "rank": 0, "world": 1})


def test_arguments_come_by_name_and_shared_values_are_made_once():
    made = functions(BASIC, width=3)
    assert made.model().out_features == 3
    assert len(made.result("train_data")) == 3
    assert made._module.calls == ["shared"]
    assert made.params == {"width": 3, "weight": 0.5, "lr": 1e-3}


VALUES = """
import torch
from torch import nn
train_set = [(torch.ones(4), torch.ones(2))] * 3
net = nn.Linear(4, 2)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
"""


def test_roles_that_are_values_are_taken_as_they_are_and_a_loss_is_called_by_position():
    made = functions(VALUES)
    module = made._module
    assert made.model() is module.net
    assert made.result("train_data") is module.train_set
    optimizers = made.optimizers(module.net)
    assert optimizers[""] is module.optimizer
    assert made.schedules(optimizers)[""] is module.scheduler
    output, target = torch.tensor([1.0]), torch.tensor([3.0])
    assert made.step_function("loss")(output=output, target=target, input=None, batch=None, epoch=0) == 4.0
    assert made.asked("loss") == {"output", "target"}


class Count:
    """Minimal metric object, with `update`, `compute` and `reset`."""

    def update(self, output, target): ...
    def compute(self): ...
    def reset(self): ...


@pytest.mark.parametrize(
    ("metrics", "asked"),
    [("Count()", set()), ("{'n': Count()}", set()), ("{'n': torch.add}", {"output", "target"})],
)
def test_metrics_that_are_values_are_metric_objects_or_called(metrics, asked):
    made = functions(f"from {__name__} import Count\n{VALUES}metrics = {metrics}\n")
    assert made.asked("metrics") == asked
    if asked:
        assert made.step_function("metrics")(output=torch.ones(1), target=torch.ones(1)) == {"n": 2.0}
    else:
        assert made.step_function("metrics")(epoch=0) is made._module.metrics


def test_a_function_of_scikit_learn_gets_the_target_first():
    made = functions(f"from sklearn.metrics import r2_score\n{VALUES}metrics = {{'r2': r2_score}}\n")
    output, target = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 5.0])
    assert made.step_function("metrics")(output=output, target=target) == {"r2": pytest.approx(1 - 4 / (26 / 3))}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("= nn.Linear(4, 2)", "= [nn.Linear(4, 2)]", r"net \(line 5\) is a list of 1; it must be an nn\.Module"),
        ("nn.MSELoss()", "nn.MSELoss", r"criterion \(line 6\) is the class MSELoss; it must be callable with output"),
        ("SGD(net.", "SGD(nn.Linear(3, 5).", r"optimizer \(line 7\) has parameters that are not the model's"),
        ("LR(optimizer", "LR(torch.optim.SGD(net.parameters())", r"scheduler \(line 8\) is of another optimizer"),
    ],
)
def test_a_value_that_cannot_be_its_role_is_told_by_name_and_line(old, new, says):
    source = VALUES.replace("net.parameters()", "net[0].parameters()") if new.startswith("= [") else VALUES

    def use():
        made = functions(source.replace(old, new))
        made.step_function("loss")
        made.schedules(made.optimizers(made.model()))

    with pytest.raises(InvalidDefinition, match=says):
        use()


def test_a_step_function_takes_only_the_loop_values_that_it_names():
    loss = functions(BASIC).step_function("loss")
    value = loss(output=torch.ones(2), target=torch.zeros(2), input=None, batch=None, epoch=3)
    assert value == 0.5


def test_what_a_step_function_asks_for_is_known_whatever_its_arguments_are_called():
    made = functions(BASIC + "def metrics(pred, y, epoch, scale=1.0): return {}\n")
    assert made.asked("loss") == {"output", "target"}
    assert made.asked("metrics") == {"output", "target", "epoch"}


def test_without_an_optimizer_it_is_adamw_with_the_lr_of_the_definition():
    made = functions(BASIC)
    optimizer = made.optimizers(made.model())[""]
    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.param_groups[0]["lr"] == 1e-3
    made = functions(BASIC, lr=0.2)
    assert made.optimizers(made.model())[""].param_groups[0]["lr"] == 0.2
    made = functions(BASIC.replace("width=2", "width=2, lr=0.3"))
    assert made.optimizers(made.model())[""].param_groups[0]["lr"] == 0.3


def test_roles_by_other_names_are_called_with_what_their_arguments_mean():
    source = BASIC.replace("def train_data(", "def train_loader(").replace(
        "def loss(output, target", "def criterion(a, b"
    )
    source = source.replace("(output - target)", "(a - b)")
    source += "def optim(parameters, lr=0.2): return torch.optim.SGD(parameters, lr=lr)\n"
    source += "def scheduler(opt): return torch.optim.lr_scheduler.StepLR(opt, 1)\n"
    source += "def valid_data(train_loader): return train_loader[:1]\n"
    source += "def metrics(y_true, y_pred): return {'error': y_pred - 2 * y_true}\n"
    made = functions(source)
    optimizer = made.optimizers(made.model())[""]
    assert (type(optimizer), optimizer.param_groups[0]["lr"]) == (torch.optim.SGD, 0.2)
    assert made.schedules({"": optimizer})[""].optimizer is optimizer
    assert len(made.result("validation_data")) == 1
    step = {"output": torch.ones(2), "target": torch.zeros(2), "input": None, "batch": None, "epoch": 0}
    assert made.step_function("loss")(**step) == 0.5
    assert torch.equal(made.step_function("metrics")(**step)["error"], torch.ones(2))


def test_an_optimizer_may_ask_for_named_parameters():
    source = BASIC + "def optimizer(named_params, lr=0.2): return torch.optim.SGD(dict(named_params).values(), lr=lr)\n"
    made = functions(source)
    assert made.optimizers(made.model())[""].param_groups[0]["lr"] == 0.2


def test_an_optimizer_of_parameters_that_are_not_the_models_is_told():
    own = "def optimizer(params, criterion): return torch.optim.SGD([*params, *criterion.parameters()], lr=0.1)\n"
    made = functions(BASIC + "def criterion(): return nn.Linear(3, 5)\n" + own)
    says = r"not the model's \(of shape \(5, 3\), \(5,\)\): make the module that has them a part of the model"
    with pytest.raises(InvalidDefinition, match=says):
        made.optimizers(made.model())


def test_initial_weights_depend_on_nothing_but_the_seed():
    one, two = functions(BASIC), functions(BASIC)
    two.result("train_data")
    torch.rand(5)
    assert torch.equal(one.model().weight, two.model().weight)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("return nn.Linear(shared, width)", "return [{i: nn.Linear(1, 1) for i in 'ab'}][0]"),
            r"several models \(a, b\), and there is no step that says how they train: write def step\(model, batch\)",
        ),
        (
            ("return nn.Linear(shared, width)", "return [{'keys': nn.Linear(1, 1)}][0]"),
            r"model\(\) calls one of its models keys: .*give it another name",
        ),
        (
            ("return nn.Linear(shared, width)", "return [{'a': nn.Linear(1, 1), 'b': None}][0]"),
            r"model\(\) returned a dict; it must return an nn.Module, or a dict of them",
        ),
        (("return nn.Linear(shared, width)", "return 5"), "model\\(\\) returned a int; it must return an nn.Module"),
    ],
)
def test_what_cannot_be_run_is_told_before_training(change, says):
    with pytest.raises(InvalidDefinition, match=says):
        functions(BASIC.replace(*change)).model()


def test_a_loop_value_that_a_role_cannot_have_is_named_with_those_it_can():
    with pytest.raises(InvalidDefinition, match=r"loss \(line 10\) takes run, and can have: batch device epoch"):
        functions(BASIC.replace("loss(output", "loss(run, output")).step_function("loss")


def test_classes_of_a_definition_can_be_pickled_by_its_own_name(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "definition", raising=False)
    (tmp_path / "beside.py").write_text("ANSWER = 42\n")
    (tmp_path / "definition.py").write_text(f"from beside import ANSWER\nclass Thing: ...\n{BASIC}")
    module, definition, *_ = load(tmp_path, tmp_path)
    assert (module.__name__, module.ANSWER) == ("definition", 42)
    assert type(pickle.loads(pickle.dumps(module.Thing()))) is module.Thing
    assert definition.roles == ("train_data", "model", "loss")
    monkeypatch.delitem(sys.modules, "definition")


class Text(nn.Module):
    def forward(self, ids, mask=None):
        return ids


def test_a_tuple_batch_is_inputs_and_then_the_target():
    inputs = BatchRule(Text()).split([1, 2, 3])
    assert (inputs.positional, inputs.target, inputs.value) == ((1, 2), 3, (1, 2))
    assert BatchRule(Text()).split((1, 2)).value == 1


def test_a_dict_batch_goes_by_the_names_of_forward():
    inputs = BatchRule(Text()).split({"ids": 1, "mask": 2, "labels": 3, "other": 4})
    assert (inputs.named, inputs.target, inputs.value) == ({"ids": 1, "mask": 2}, 3, {"ids": 1, "mask": 2})
    assert BatchRule(Text()).split({"ids": 1, "target": 5}).target == 5


def forward_of(written):
    space = {"nn": nn}
    exec(f"class Made(nn.Module):\n    def forward(self, {written}): ...", space)
    return space["Made"]()


@dataclasses.dataclass
class Sample:
    image: int
    label: int


NAMED = collections.namedtuple("NAMED", "x y")


@pytest.mark.parametrize(
    ("forward", "batch", "expected"),
    [
        ("x", (1, 2, 3, 4), ((1,), {}, (2, 3, 4))),  # mixup
        ("x, t", (1, 2, 3), ((1, 2), {}, 3)),
        ("src, tgt", (1, 2), ((1, 2), {}, 2)),
        ("*inputs", (1, 2, 3), ((1, 2), {}, 3)),
        ("x", NAMED(1, 2), ((1,), {}, 2)),
        ("image", {"image": 1, "label": 2}, ((), {"image": 1}, 2)),
        ("x", {"image": 1, "label": 2}, ((1,), {}, 2)),
        ("image", Sample(1, 2), ((), {"image": 1}, 2)),
        ("**kwargs", {"ids": 1, "labels": 2}, ((), {"ids": 1}, 2)),
        ("batch", {"a": 1, "b": 3, "y": 2}, (({"a": 1, "b": 3, "y": 2},), {}, 2)),
        ("*, ids, mask", {"ids": 1, "mask": 3, "target": 2}, ((), {"ids": 1, "mask": 3}, 2)),
    ],
)
def test_a_batch_is_split_by_what_forward_takes(forward, batch, expected):
    assert tuple(BatchRule(forward_of(forward)).split(batch)) == expected


@pytest.mark.parametrize(
    ("forward", "batch", "says"),
    [
        ("x, mask=None", (1, 2, 3, 4), "a batch has 4 items, and the model's forward takes 1 to 2 of them"),
        ("*, ids", (1, 2), "takes ids by name alone"),
        ("x", {"a": 1, "b": 2, "y": 3}, "a batch has a, b, y, and the model's forward takes x"),
    ],
)
def test_a_batch_that_forward_may_take_in_two_ways_is_told_with_what_to_write(forward, batch, says):
    with pytest.raises(InvalidDefinition, match=says) as error:
        BatchRule(forward_of(forward)).split(batch)
    assert "def loss(model, batch)" in error.value.message


@pytest.mark.parametrize(
    ("forward", "by_model", "expected"),
    [
        ("images, targets=None", True, ((1, 2), {}, 2)),
        ("images, targets=None", False, ((1,), {}, 2)),
        ("images, mask=None", True, ((1,), {}, 2)),
    ],
)
def test_a_model_that_computes_the_loss_gets_the_target(forward, by_model, expected):
    assert tuple(BatchRule(forward_of(forward), by_model=by_model).split((1, 2))) == expected


@pytest.mark.parametrize("batch", [torch.ones(3), (1,), {"words": 1}, 5])
def test_a_batch_that_fits_no_rule_is_told_with_the_rule(batch):
    with pytest.raises(InvalidDefinition, match=r"target|forward takes ids, mask"):
        BatchRule(Text()).split(batch)


def test_a_loss_is_a_scalar_with_or_without_values_to_log():
    assert loss_and_logged(torch.ones(1))[0].shape == ()
    assert loss_and_logged((torch.tensor(2.0), {"a": 1}))[1] == {"a": 1}
    for wrong in (torch.ones(3), 0.5, None, (torch.tensor(1.0), 2)):
        with pytest.raises(InvalidDefinition, match="scalar tensor"):
            loss_and_logged(wrong)


COSINE = """
def schedule(optimizer, steps, floor=0.0):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, floor)
"""


def test_a_schedule_is_made_over_the_optimizer_and_may_ask_for_all_steps():
    made = functions(BASIC + COSINE, floor=0.5)
    made.know(steps=40)
    optimizer = made.optimizers(made.model())[""]
    schedule = made.schedules({"": optimizer})[""]
    assert (schedule.T_max, schedule.eta_min, schedule.optimizer) == (40, 0.5, optimizer)
    assert functions(BASIC).schedules({"": optimizer}) == {}


def test_a_schedule_that_is_none_is_told():
    made = functions(BASIC + "def schedule(optimizer): return 0.1\n")
    with pytest.raises(InvalidDefinition, match=r"returned a float; it must return a torch\.optim\.lr_scheduler"):
        made.schedules(made.optimizers(made.model()))


def test_a_schedule_that_waits_for_validations_asks_for_some():
    plateau = "def schedule(optimizer): return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"
    made = functions(BASIC + plateau)
    with pytest.raises(InvalidDefinition, match="there is no validation_data: add it"):
        made.schedules(made.optimizers(made.model()))


TWO = BASIC.replace("return nn.Linear(shared, width)", "return {'gen': nn.Linear(1, 1), 'disc': nn.Linear(2, 2)}")
TWO = TWO[: TWO.index("def loss(")] + "def step_gen(gen, batch): ...\ndef step_disc(disc, batch): ...\n"


def test_without_an_optimizer_each_step_has_an_adamw_of_its_model():
    made = functions(TWO, lr=0.3)
    model = made.model()
    optimizers = made.optimizers(model)
    assert list(optimizers) == ["gen", "disc"]
    assert optimizers["disc"].param_groups[0]["params"] == list(model["disc"].parameters())
    assert {type(each) for each in optimizers.values()} == {torch.optim.AdamW}
    assert optimizers["gen"].param_groups[0]["lr"] == 0.3
    says = (
        "step_adv trains no model: model\\(\\) returns gen, disc. Write optimizer\\(\\), which returns a dict with adv"
    )
    with pytest.raises(InvalidDefinition, match=says):
        (other := functions(TWO.replace("step_disc", "step_adv"))).optimizers(other.model())


@pytest.mark.parametrize(
    ("steps", "names", "expected"),
    [
        ([], [""], {"loss": [""]}),
        (["step"], [""], {"step": [""]}),
        (["step"], ["a", "b"], {"step": ["a", "b"]}),
        (["step_a"], [""], {"step_a": [""]}),
        (["step_b", "step_a"], ["a", "b"], {"step_b": ["b"], "step_a": ["a"]}),
        (["step", "step_a"], ["a", "b"], {"step": ["b"], "step_a": ["a"]}),
        (["step_a"], ["a", "b"], "optimizer() returns a, b, and no step trains b: write def step_b(...)"),
        (["step_a", "step_c"], ["a"], "step_c() trains c, and optimizer() returns a: return a dict with c in it"),
        (["step_a", "step_b"], [""], "step_a() trains a, and optimizer() returns one optimizer: return a dict with a"),
        (["step", "step_a"], ["a"], "optimizer() returns a, and each has a step of its own: none is left for step()"),
    ],
)
def test_optimizers_belong_to_the_steps_of_their_names(steps, names, expected):
    optimizers = {name: torch.optim.SGD([nn.Parameter(torch.zeros(1))]) for name in names}
    if isinstance(expected, str):
        with pytest.raises(InvalidDefinition, match=re.escape(expected)):
            assigned(steps, optimizers)
    else:
        assert {role: list(own) for role, own in assigned(steps, optimizers).items()} == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, None),
        (torch.tensor([2.0]), (2.0, {})),
        ({"loss": torch.tensor(2.0), "a": 1}, (2.0, {"a": 1})),
        ((torch.tensor(2.0), {"a": 1}), (2.0, {"a": 1})),
        ({"box": torch.tensor(1.0), "mask": torch.tensor(2.0)}, (3.0, {"box": 1.0, "mask": 2.0})),
    ],
)
def test_a_training_step_returns_a_loss_and_what_it_logs(result, expected):
    found = step_result("step", result)
    assert found == expected


@pytest.mark.parametrize("result", [3.0, {}, {"loss": torch.ones(2)}, (torch.tensor(1.0), 3)])
def test_another_result_of_a_training_step_is_told(result):
    with pytest.raises(
        InvalidDefinition, match=r"step_gen\(\) returned .* as its loss; it must return a scalar tensor"
    ):
        step_result("step_gen", result)
