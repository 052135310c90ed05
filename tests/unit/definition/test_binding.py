"""Test that each hyperparameter is given a value, searched, or has its default."""

from __future__ import annotations

import re

import pytest

from kernel_backend.definition.binding import Bound, bind_space
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.search.records import Search
from kernel_backend.spec.assignments import parse_line

SOURCE = """
from typing import Literal

def model(width: int, blocks=(), act: Literal["relu", "gelu"] = "relu", dropout=0.0): ...
def metrics(output, target, depth: int = 2, stages: int = 1): ...
def train_data(): ...
def validation_data(): ...
def loss(output, target): ...
def optimizer(params, lr: float, momentum=0.9, decay: float = None, nesterov: bool = False): ...
"""


def bound(line: str) -> Bound:
    given, space = parse_line(line.split())
    return bind_space(parse(SOURCE), given, space)


def test_what_is_neither_given_nor_searched_has_its_default():
    found = bound("width=32,64 lr=1e-4..1e-1:log dropout=0.5")
    assert [str(each) for each in found.space.parameters] == ["width=32,64", "lr=0.0001..0.1:log"]
    assert found.params == {
        "blocks": [],
        "act": "relu",
        "dropout": 0.5,
        "depth": 2,
        "stages": 1,
        "momentum": 0.9,
        "decay": None,
        "nesterov": False,
    }


def test_what_does_not_always_count_has_its_default_too():
    found = bound("width=8 act=relu,gelu dropout=0..0.5@act=gelu lr=0.1")
    assert found.params["dropout"] == 0.0
    assert "act" not in found.params


def test_a_given_value_that_others_hang_on_is_in_the_space():
    found = bound("width=8 lr=0.1 act=gelu dropout=0..0.5@act=gelu")
    assert "act" not in found.params
    assert [str(each) for each in found.space.parameters] == ["act=gelu", "dropout=0..0.5@act=gelu"]


def test_values_have_the_types_that_the_functions_take():
    found = bound("width=8.0,16.0 lr=1,2 decay=none,1").space.parameters
    assert [[(type(value), value) for value in each.domain.values] for each in found] == [  # type: ignore[union-attr]
        [(int, 8), (int, 16)],
        [(float, 1.0), (float, 2.0)],
        [(type(None), None), (float, 1.0)],
    ]


@pytest.mark.parametrize(("word", "whole"), [("lr=0..1", False), ("dropout=0..1", False), ("depth=1..6", True)])
def test_whole_ends_are_a_range_of_whole_numbers_where_the_function_takes_such(word: str, whole: bool):
    name = word.partition("=")[0]
    line = " ".join([word, *(each for each in ("width=8", "lr=0.1") if not each.startswith(name))])
    (parameter,) = bound(line).space.parameters
    assert parameter.domain.whole is whole  # type: ignore[union-attr]


def test_a_list_of_blocks_is_for_whoever_takes_a_list():
    found = bound("width=8 lr=0.1 blocks=1..3 block.kind=conv,res@each")
    assert found.space.names == ("blocks",)
    assert "blocks" not in found.params
    with pytest.raises(InvalidDefinition, match=r"stages=\[\]: stages \(line 5\) takes a whole number"):
        bound("width=8 lr=0.1 stages=1..3 stage.kind=conv,res@each")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("width=8 lr=0.1 widht=8..64", r"widht is no hyperparameter \(did you mean width\?\)"),
        ("width=0.5..8 lr=0.1", r"width=0.5..8: width=0.5: width \(line 4\) takes a whole number"),
        ("width=8,many lr=0.1", r"width=8,many: width='many': width \(line 4\) takes a whole number"),
        ("width=8 lr=0.1 act=relu,elu", r"takes one of 'relu', 'gelu' \(did you mean relu\?\)"),
        ("width=8 lr=0.1 nesterov=0..1", "nesterov=0..1: nesterov=0: .* takes true or false"),
        ("width=8 lr=0.1..1@act=gelu act=relu,gelu", "lr .line 9. counts only where act=gelu: write a default"),
        ("lr=1..3", r"width \(line 4\) has no value"),
        ("width=8 lr=0.1 kernel=3,5 heads=2,4", "kernel is no hyper.*\nheads is no hyper"),
        ("widht=8 lr=a,b", r"(?s)widht is no hyperparameter.*lr=a,b: lr='a': lr \(line 9\) takes a number"),
    ],
)
def test_what_does_not_fit_the_functions_is_told_all_at_once(line: str, said: str):
    with pytest.raises(InvalidDefinition, match=said):
        bound(line)


def test_what_is_both_given_and_searched_is_refused():
    given, space = parse_line(["width=8..64"])
    with pytest.raises(InvalidDefinition, match=r"width is both given, 8, and searched, 8..64"):
        bind_space(parse(SOURCE), {"width": 8, "lr": 0.1, **given}, space)


def test_a_search_needs_a_validation_to_go_by():
    definition = parse(SOURCE.replace("def validation_data(): ...\n", ""))
    with pytest.raises(InvalidDefinition, match="a search goes by the validation, and there is none"):
        check_options(definition, Config(search=Search(method="random")))
    check_options(definition, Config(search=Search(method="random"), await_evaluation=True))
    assert bind_space(definition, {"width": 3, "lr": 0.1}, parse_line([]).space).params["width"] == 3


PREPARED = SOURCE + "def root(width): ...\ndef prepare(root, blocks=()): ...\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("width=32,64 lr=0.1", "root (line 10) takes width, which is searched (width=32,64), and prepare runs once"),
        ("width=8 lr=0.1 blocks=2 block.act=relu,gelu@each", "prepare (line 11) takes blocks, which is searched"),
        ("width=8@act=gelu act=relu,gelu lr=0.1", "root (line 10) takes width, which is searched"),
    ],
)
def test_prepare_and_what_it_asks_for_take_nothing_that_is_searched(line: str, says: str):
    source = PREPARED.replace("width: int", "width: int = 4")
    given, space = parse_line(line.split())
    with pytest.raises(InvalidDefinition) as error:
        bind_space(parse(source), given, space)
    assert says in error.value.message
    bind_space(parse(source.replace("def prepare", "def ready")), given, space)


def test_prepare_takes_what_all_trials_have():
    given, space = parse_line(["width=8", "lr=0.1,0.2", "dropout=0..0.5@width=8"])
    assert bind_space(parse(PREPARED), given, space).space.names == ("width", "lr", "dropout")


STEPS = """
def model(): return {"gen": 1}
def train_data(): ...
def step(gen, batch): ...
def metrics(gen, batch): ...
"""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gather_loss": True}, "--gather-loss is for loss(output, target), and step() computes its loss"),
        (
            {"strategy": "fsdp2"},
            "--strategy fsdp2 shards one model, and this definition has several: leave one of them out",
        ),
        ({"ema": 0.9}, "metrics (line 5) asks for gen, which has the plain weights, and --ema validates averaged ones"),
    ],
)
def test_options_that_a_definition_with_steps_cannot_have_are_refused(options, says):
    with pytest.raises(InvalidDefinition, match=re.escape(says)):
        check_options(parse(STEPS), Config(**options))
    check_options(parse(SOURCE), Config(**options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gather_loss": True, "accumulate": 2}, "--gather-loss computes the loss over the whole batch at once"),
        ({"sync_bn": True, "accumulate": 2}, "--sync-bn takes statistics of the whole batch at once, and --accumulate"),
        ({"sync_bn": True, "logical_workers": 2}, "a slot computes its --logical-workers one after the other"),
        ({"sync_bn": True, "compile": True}, "--sync-bn exchanges statistics inside of the model, where --compile"),
        ({"strategy": "fsdp2", "backend": "horovod"}, "is torch's own, and --backend horovod has nothing of the kind"),
        ({"strategy": "fsdp2", "logical_workers": 2}, "sums gradients over the slots, and not in the tree"),
        ({"strategy": "fsdp2", "compile": True}, "exchanges parameters inside of the model, where --compile"),
        ({"strategy": "fsdp2", "amp": "fp16"}, "has no scaler of gradients for --amp fp16, and needs none with bf16"),
        (
            {"on_nan": "go_back"},
            "goes back to a step that does not depend on the clock: add --checkpoint-every",
        ),
        ({"patience": 3, "search": {"method": "random"}}, "--patience ends a training by its own progress"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, says):
    with pytest.raises(InvalidDefinition, match=re.escape(says)):
        check_options(parse(SOURCE), Config.model_validate(options))


def test_programs_whose_batches_depend_on_the_slots_keep_their_number():
    elastic = Config(slots=4, least_slots=1)
    check_options(parse(SOURCE), elastic)
    for form, reason in (
        ("trainer", "per_device_train_batch_size is that of one slot"),
        ("command", "divides its work"),
    ):
        definition = parse(SOURCE).model_copy(update={"form": form})
        with pytest.raises(InvalidDefinition, match=f"--slots 1..4 changes the number of slots, and .*{reason}"):
            check_options(
                definition, Config(slots=4, least_slots=1, form="command" if form == "command" else "functions")
            )


@pytest.mark.parametrize(
    ("flag", "options"),
    [
        ("--patience", {"patience": 3}),
        ("--validate-every", {"validate_every": {"steps": 5}}),
        ("--validate-first", {"validate_first": True}),
    ],
)
def test_options_about_validations_need_validation_data(flag, options):
    config = Config.model_validate(options)
    with pytest.raises(InvalidDefinition, match=f"{flag} goes by validations, and there are none"):
        check_options(parse(SOURCE.replace("def validation_data(): ...\n", "")), config)
    check_options(parse(SOURCE), config)
