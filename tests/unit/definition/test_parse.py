"""Test what a cell may contain, and the errors where something is missing."""

from __future__ import annotations

import pytest

from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition

SMALL = "def model(width=64): ...\ndef train_data(): ...\ndef loss(output, target): ...\n"


def refused(source: str, roles_from: int = 1) -> str:
    with pytest.raises(InvalidDefinition) as error:
        parse(source, roles_from)
    return error.value.message


def unbound(source: str, **given: object) -> str:
    with pytest.raises(InvalidDefinition) as error:
        parse(source).bind(given)  # type: ignore[arg-type]
    return error.value.message


def test_roles_are_found_in_written_order_and_summed_up():
    definition = parse("def optimizer(params, lr=1e-2): ...\n" + SMALL)
    assert definition.roles == ("optimizer", "model", "train_data", "loss")
    assert definition.summary == "functions: optimizer model train_data loss"


def test_every_argument_is_a_loop_value_a_shared_result_or_a_hyperparameter():
    source = SMALL + "def dataset(root='data'): ...\ndef validation_data(dataset, share=0.1, rank=0): ...\n"
    definition = parse(source)
    kinds = {each.name: each.kind for each in definition.functions["validation_data"].parameters}
    assert kinds == {"dataset": "function", "share": "hyperparameter", "rank": "loop"}
    assert definition.bind({}) == {"width": 64, "root": "data", "share": 0.1, "lr": 1e-3}


def test_run_is_a_loop_value_of_every_function():
    definition = parse("def dataset(run): ...\n" + SMALL.replace("def model(", "def model(run, dataset, "))
    assert [each.kind for each in definition.functions["model"].parameters[:2]] == ["loop", "function"]
    assert definition.bind({}) == {"width": 64, "lr": 1e-3}


def test_functions_above_the_cell_are_helpers_unless_a_role_asks_for_their_result():
    above = "def dataset(size=10): ...\ndef metrics(output, target): ...\ndef unused(speed=3): ...\n"
    definition = parse(above + "def validation_data(dataset): ...\n" + SMALL, roles_from=4)
    assert definition.roles == ("validation_data", "model", "train_data", "loss")
    assert set(definition.functions) == {*definition.roles, "dataset"}
    assert set(definition.hyperparameters) == {"size", "width", "lr"}


def test_a_default_keeps_a_function_of_the_same_name_out():
    definition = parse(SMALL + "def width(): ...\n")
    assert definition.hyperparameters["width"].default == 64


def test_steps_with_a_key_are_roles_and_may_ask_for_the_parts_of_a_model():
    definition = parse(
        "def model(): return {'gen': 1, 'disc': 2}\ndef train_data(): ...\n"
        "def optimizer(gen, disc, g_lr=1e-3): ...\n"
        "def step_disc(gen, disc, batch): ...\ndef step_gen(gen, disc, batch): ..."
    )
    assert definition.roles[-2:] == definition.steps == ("step_disc", "step_gen")
    assert definition.models == ("gen", "disc")
    assert definition.bind({}) == {"g_lr": 1e-3}


@pytest.mark.parametrize(
    "made",
    [
        "return dict(gen=1, disc=2)",
        "return nn.ModuleDict({'gen': 1, 'disc': 2})",
        "nets = {'gen': 1, 'disc': 2}\n    return nets",
    ],
)
def test_the_names_of_several_models_are_found_however_the_dict_is_written(made: str):
    steps = "def step(gen, disc, batch, weight=2.0): ...\ndef optimizer(gen, disc, lr): ...\n"
    definition = parse(f"def model():\n    {made}\ndef train_data(): ...\n{steps}")
    assert definition.models == ("gen", "disc")
    assert definition.hyperparameters.keys() == {"weight", "lr"}


SEVERAL = "def model(): return {'gen': 1, 'disc': 2}\ndef train_data(): ...\n"


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (
            "def loss(batch): ...",
            "model (line 1) returns several models (gen, disc), and no function says how they train: write "
            "def step_gen(gen, disc, batch) for each optimizer, or one def step(gen, disc, batch)",
        ),
        (
            "def step(gen, batch): ...\ndef loss(output, target): ...",
            "loss (line 4) asks for output, the output of one model, and model returns several (gen, disc): leave loss",
        ),
        (
            "def step(gen, batch): ...\ndef metrics(output, target): ...",
            "metrics (line 4) asks for output, the output of one model, and model returns several (gen, disc): have it "
            "ask for gen, disc and batch",
        ),
    ],
)
def test_several_models_need_steps_and_have_no_output(rest: str, says: str):
    assert says in refused(SEVERAL + rest)


def test_a_cell_without_a_model_is_told_what_was_found_and_what_to_write():
    message = refused("class Net: ...\ndef train_data(): ...\ndef loss(output, target): ...")
    assert "no model" in message
    assert "train_data, loss, class Net" in message
    assert "def model(" in message


def test_missing_train_data_and_loss_are_told_together():
    message = refused("def model(): ...")
    assert "no train_data and no loss" in message


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("loss = nn.MSELoss()", "assigned"),
        ("class loss: ...", "a class"),
        ("from losses import loss", "imported"),
    ],
)
def test_a_role_that_is_no_function_is_an_error_and_not_ignored(line: str, how: str):
    assert f"loss is {how} on line 4" in refused(SMALL + line)


def test_one_name_is_one_hyperparameter_and_two_defaults_name_both_places():
    assert parse(SMALL + "def optimizer(params, width): ...").bind({}) == {"width": 64}
    message = refused(SMALL + "def optimizer(params, width=32): ...")
    assert "64 in model (line 1)" in message
    assert "32 in optimizer (line 4)" in message


def test_a_hyperparameter_without_a_value_and_an_unknown_name_are_told_at_once():
    message = unbound(SMALL + "def optimizer(params, lr): ...", widht=3)
    assert "widht is no hyperparameter (did you mean width?); there are: width lr" in message
    assert "lr (line 4) has no value" in message


@pytest.mark.parametrize(
    ("signature", "given", "value"),
    [
        ("x=1e-2", 1, 1.0),
        ("x=0", 0.1, 0.1),
        ("x: int = 0", 1e3, 1000),
        ("x: float", 1, 1.0),
        ("x: 'float | None' = None", None, None),
        ("x: int | None = None", 3, 3),
        ("x: Optional[float] = 1.0", None, None),
        ("x: Literal['relu', 'gelu'] = 'relu'", "gelu", "gelu"),
        ("x: Literal['auto'] | int = 'auto'", 4, 4),
        ("x=(0.9, 0.99)", [0.8, 0.9], [0.8, 0.9]),
        ("x: Positive = 1e-2", 2, 2.0),
        ("x=None", "anything", "anything"),
        ("x=()", [{"kind": "conv"}], [{"kind": "conv"}]),
        ("x: list[dict] = [{'kind': 'conv', 'width': 2**5}]", [{}], [{}]),
        ("x: dict = {'a': (1, 2)}", {"b": None}, {"b": None}),
        ("x=4 * 128", 4, 4),
        ("*, x=-1", 4, 4),
    ],
)
def test_annotations_and_defaults_give_the_type(signature: str, given: object, value: object):
    bound = parse(SMALL + f"def optimizer(params, {signature}): ...").bind({"x": given})["x"]  # type: ignore[dict-item]
    assert bound == value
    assert type(bound) is type(value)


@pytest.mark.parametrize(
    ("signature", "given", "wanted"),
    [
        ("x: int", 1.5, "a whole number"),
        ("x: float = 1.0", True, "a number"),
        ("x: bool", 1, "true or false"),
        ("x=1e-2", "abc", "a number"),
        ("x: float", None, "a number"),
        ("x: Literal['relu', 'gelu']", "rel", "one of 'relu', 'gelu' (did you mean relu?)"),
        ("x: int | None", "a", "a whole number or none"),
        ("x=[1]", 3, "a list"),
        ("x: str", 3, "text"),
        ("x: dict", [1], "a dictionary"),
        ("x=()", {"a": 1}, "a list"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_what_is_wanted(signature: str, given: object, wanted: str):
    message = unbound(SMALL + f"def optimizer(params, {signature}): ...", x=given)
    assert f"x={given!r}" in message
    assert message.endswith(f"takes {wanted}")


def test_a_default_may_be_a_list_of_dictionaries():
    definition = parse(SMALL + "def optimizer(params, blocks=[{'kind': 'conv', 'sizes': (3, 5)}], lr=0.1): ...")
    values = definition.bind({})
    assert values["blocks"] == [{"kind": "conv", "sizes": [3, 5]}]
    assert definition.functions["optimizer"].hyperparameters(values)["blocks"] == values["blocks"]


def test_a_tuple_default_reaches_the_function_as_a_tuple_again():
    definition = parse(SMALL + "def optimizer(params, betas=(0.9, 0.99), lr=0.1): ...")
    values = definition.bind({})
    assert values["betas"] == [0.9, 0.99]
    assert definition.functions["optimizer"].hyperparameters(values) == {"betas": (0.9, 0.99), "lr": 0.1}


@pytest.mark.parametrize("signature", ["act=nn.ReLU", "sizes={1, 2}", "path=Path('a')", "x=9**9**9"])
def test_a_default_that_is_no_literal_is_refused_with_a_way_out(signature: str):
    message = refused(SMALL + f"def optimizer(params, {signature}): ...")
    assert signature.split("=", 1)[0] in message
    assert "line 4" in message
    assert "use" in message


@pytest.mark.parametrize("signature", ["*args", "**kwargs", "a, /"])
def test_arguments_without_names_are_refused(signature: str):
    assert "by name" in refused(SMALL + f"def optimizer({signature}): ...")


def test_values_of_the_loop_cannot_be_sizes_of_a_model():
    message = refused("def model(input=784): ...\ndef train_data(): ...\ndef loss(output, target): ...")
    assert "input_size" in message


def test_results_that_wait_for_each_other_are_named():
    message = refused(SMALL + "def a(b): ...\ndef b(a): ...\ndef validation_data(a): ...")
    assert "a -> b -> a" in message


def test_a_syntax_error_has_its_line_and_text():
    with pytest.raises(InvalidDefinition) as error:
        parse("x = 1\ndef model(:\n    ...")
    assert error.value.details == {"line": 2, "text": "def model(:"}
    assert "line 2" in error.value.message


def test_a_function_that_is_a_little_like_a_role_is_a_hint():
    assert parse(SMALL + "def my_model(): ...").hints == (
        "my_model (line 4) is no role, and nothing uses it (did you mean model?)",
    )
    assert parse(SMALL + "def my_model(a): ...\ndef metrics(output, target): return my_model(output)").hints == ()


def test_definitions_travel_as_json():
    definition = parse(SMALL)
    assert type(definition).model_validate(definition.to_json()) == definition


def test_prepare_may_have_hyperparameters_and_results_of_functions_that_ask_for_nothing_else():
    definition = parse(SMALL + "def prepare(root, url='u'): ...\ndef root(at='.'): ...\ndef dataset(url): ...\n")
    assert definition.bind({"at": "data"}) == {"width": 64, "url": "u", "at": "data", "lr": 1e-3}
    assert [each.name for each in definition.needs("prepare")] == ["prepare", "root"]
    assert parse(SMALL + "def prepare(loss='mse', model='resnet'): ...").bind({})["model"] == "resnet"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def prepare(rank): ...", "prepare (line 4) takes rank, and prepare runs before there is any"),
        ("def prepare(train_data): ...", "prepare (line 4) takes train_data"),
        ("def root(device): ...\ndef prepare(root): ...", "root (line 4) takes device, and prepare"),
        ("def prepare(batch): ...", "exists only while a model trains"),
        (
            "def prepare(): ...\ndef validation_data(prepare): ...",
            "validation_data (line 5) takes what prepare returns",
        ),
    ],
)
def test_what_prepare_cannot_have_or_give_is_told(source: str, says: str):
    assert says in refused(SMALL + source)


def test_a_helper_named_prepare_is_a_function_as_any_other():
    definition = parse("def prepare(): ...\n" + SMALL + "def validation_data(prepare): ...\n", roles_from=2)
    assert "prepare" in definition.functions
    assert "prepare" not in definition.roles


@pytest.mark.parametrize(
    ("function", "gets"),
    [
        ("def collate(batch): ...", "batch"),
        ("def collate_fn(samples, pad=0): ...", "batch"),
        ("def augment(images): ...", "batch"),
        ("def sampler(train_data): ...", "train_data"),
        ("def sampler(data_source): ...", "train_data"),
        ("def on_epoch(model): ...", "model"),
    ],
)
def test_roles_around_the_model_get_what_their_first_argument_means(function, gets):
    definition = parse(SMALL + function)
    assert definition.functions[definition.roles[-1]].parameters[0].value_of == gets
    assert "pad" not in definition.bind({}) or definition.bind({})["pad"] == 0


@pytest.mark.parametrize("name", ["collate", "augment", "sampler", "on_epoch"])
def test_a_function_of_such_a_name_that_the_cell_calls_by_itself_is_a_helper(name):
    definition = parse(SMALL.replace("train_data(): ...", f"train_data(): return {name}(3)") + f"def {name}(x): ...")
    assert definition.roles == ("model", "train_data", "loss")
    assert "x" not in definition.hyperparameters


def test_on_epoch_may_ask_for_several_models_by_name():
    source = "def model(): return {'gen': 1, 'disc': 2}\ndef train_data(): ...\ndef step(gen, disc, batch): ...\n"
    function = parse(source + "def on_epoch(gen, epoch, run): ...").functions["on_epoch"]
    assert [each.kind for each in function.parameters] == ["loop"] * 3


LOOP = "def train(run, lr=1e-3, epochs=5): ...\n"


def test_a_function_train_that_takes_run_is_a_loop_and_its_arguments_are_hyperparameters():
    definition = parse("def model(width=64): ...\n" + LOOP)
    assert (definition.form, definition.summary) == ("loop", "loop: train")
    assert definition.bind({"lr": 0.1}) == {"lr": 0.1, "epochs": 5}


def test_a_loop_is_given_results_of_functions_and_what_it_names_of_its_job():
    source = "def dataset(root='data'): ...\ndef prepare(root='data'): ...\n"
    definition = parse(source + "def train(run, dataset, device, epochs, batch, *, size=8): ...\n", roles_from=2)
    kinds = {each.name: each.kind for each in definition.functions["train"].parameters}
    assert (kinds["dataset"], kinds["device"], kinds["epochs"]) == ("function", "loop", "loop")
    assert (kinds["batch"], kinds["size"]) == ("hyperparameter", "hyperparameter")
    assert definition.roles == ("prepare", "train")
    assert set(definition.hyperparameters) == {"root", "batch", "size"}


@pytest.mark.parametrize("other", ["def train(x, y): ...", "def train(): ...", "train = 3", "class train: ..."])
def test_other_things_called_train_are_no_loop(other):
    assert parse(SMALL + other).form == "functions"


def test_a_loop_above_the_cell_is_a_helper_and_one_of_an_old_snapshot_too():
    assert parse(LOOP + SMALL, roles_from=2).form == "functions"
    assert parse(LOOP + SMALL, contract=2).form == "functions"


@pytest.mark.parametrize(
    ("calls", "settings"),
    [
        ("for e in run.epochs(10): ...", {"epochs": 10}),
        ("for e in run.epochs(count=10): ...", {"epochs": 10}),
        ("for e in run.epochs(): ...", {}),
        ("for e in run.epochs(lr): ...", {}),
        ("for e in run.epochs(3): ...\n  for e in run.epochs(2): ...", {}),
    ],
)
def test_epochs_written_in_a_loop_are_those_of_its_job(calls, settings):
    assert parse(f"def train(run, lr=1):\n  {calls}").settings == settings
