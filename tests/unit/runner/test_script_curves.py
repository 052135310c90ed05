"""Test which variables of a program become curves: of a step, or of a validation outside the innermost loop."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from kernel_backend.definition.reported.bound import bound_in
from kernel_backend.definition.reported.labels import labelled
from kernel_backend.definition.script.loops import TrainingLoop, training_loops
from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import Kind
from kernel_backend.runner.external_loop.training import LoopPosition
from kernel_backend.runner.forms.script.curves import curves
from kernel_backend.runner.forms.script.curves.bound import number_of
from kernel_backend.runner.forms.script.curves.curves import Curves
from kernel_backend.runner.forms.script.events import Events

PROGRAM = """history = {"acc": []}
for epoch in range(2):
    total = 0.0
    for x in (1.0, 2.0):
        loss = w * x
        loss.backward()
        total += loss.item()
    val_acc = 0.25 + epoch / 2
    seen = 7
    history["acc"].append(val_acc)
    SAY
END
"""


class Told:
    """Training that stores its reports as kind, step and values."""

    def __init__(self) -> None:
        self.position = LoopPosition()
        self.reports: list[tuple[str, int, dict[str, float]]] = []

    def report(self, kind: Kind, values: Mapping[str, Any], step: int | None = None) -> None:
        label = self.position.step if step is None else step
        self.reports.append((kind, label, {name: float(value) for name, value in values.items()}))

    def of(self, kind: str) -> list[tuple[int, dict[str, float]]]:
        return [(step, values) for each, step, values in self.reports if each == kind]


class Program:
    """Program that signals the iterations of its loops, like the runner's rewritten ones."""

    def __init__(self, source: str, config: Config) -> None:
        self.tree, self.told, self.events = ast.parse(source), Told(), Events()
        self.loops = {each.line: each for each in training_loops(self.tree)}
        self.active: list[TrainingLoop] = []
        self.length: int | None = None
        self.curves = Curves(self.told, config, {"": self.tree}, self.events, lambda: self.active, lambda: self.length)

    def over(self, line: int, items: Any) -> Iterator[Any]:
        self.active.append(self.loops[line])
        for each in items:
            yield each
            self.events.iteration(self.loops[line], sys._getframe(1))
            if self.events.backwards:
                self.told.position.step += 1
                self.events.step(self.told.position.step)
        self.active.pop()

    def run(self, **names: Any) -> Told:
        for each in ast.walk(self.tree):
            if isinstance(each, ast.For) and each.lineno in self.loops:
                call = f"over({each.lineno}, {ast.unparse(each.iter)})"
                each.iter = ast.copy_location(ast.parse(call, mode="eval").body, each.iter)
        code = compile(ast.fix_missing_locations(self.tree), "train.py", "exec")
        exec(
            code, {"__name__": "__main__", "over": self.over, "say": self.events.output, "events": self.events, **names}
        )
        self.curves.finish()
        return self.told


@pytest.fixture
def run() -> Iterator[Callable[..., Told]]:
    made: list[Program] = []

    def ran(source: str, config: Config = Config(), **names: Any) -> Told:  # noqa: B008
        made.append(Program(source, config))
        return made[-1].run(w=torch.ones((), requires_grad=True), **names)

    yield ran
    for each in made:
        each.events.close()
        each.curves.close()


def program(say: str = "pass", end: str = "pass") -> str:
    return PROGRAM.replace("SAY", say).replace("END", end)


def test_the_loss_at_backward_is_reported_with_its_step(run: Callable[..., Told]):
    assert run(program()).of("training") == [(step, {"loss": 1.0 + (step - 1) % 2}) for step in (1, 2, 3, 4)]


def test_names_that_an_epoch_binds_are_a_validation_but_counts_and_constants_are_not(run: Callable[..., Told]):
    assert run(program()).of("validation") == [(2, {"val_acc": 0.25, "acc": 0.25}), (4, {"val_acc": 0.75, "acc": 0.75})]


def test_printed_numbers_are_a_validation_outside_of_the_innermost_loop(run: Callable[..., Told]):
    told = run(program(r"say(f'Epoch {epoch}: '); say(f'Val acc: {100 * val_acc:.1f}%\n')"))
    assert told.of("validation") == [(2, {"val_acc": 25.0}), (4, {"val_acc": 75.0})]


def test_a_bound_name_that_is_the_metric_counts_whatever_was_printed(run: Callable[..., Told]):
    config = Config.model_validate({"metric": {"name": "acc", "mode": "max"}})
    told = run(program(r"say(f'hits {100 * val_acc:.1f}%\n')"), config)
    assert [values for _, values in told.of("validation")] == [
        {"hits": 25.0, "acc": 0.25},
        {"hits": 75.0, "acc": 0.75},
    ]


def test_an_unfinished_line_that_is_too_long_is_not_read_and_the_next_one_is(run: Callable[..., Told]):
    told = run(program(r"for _ in range(99): say('val loss 0.5 ' * 9)" + "\n    say('\\nVal acc: 0.125\\n')"))
    assert told.of("validation")[0] == (2, {"val_acc": 0.125, "acc": 0.25})


def test_numbers_in_a_printed_traceback_are_no_validation(run: Callable[..., Told]):
    lines = ("Traceback (most recent call last):", "  File a, line 15", "E: size 4", "val f1 1")
    told = run(program("; ".join(f"say({each + chr(10)!r})" for each in lines)))
    assert told.of("validation")[0][1].keys() == {"val_f1", "val_acc", "acc"}


def test_a_line_that_is_written_over_by_a_carriage_return_is_read(run: Callable[..., Told]):
    told = run(program(r"for each in range(99): say(f'\rval f1: {each}')"))
    assert told.of("validation")[0][1]["val_f1"] == 97


def test_of_very_many_prints_in_a_step_the_first_and_the_newest_are_read(
    run: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
):
    read: list[str] = []
    monkeypatch.setattr(curves, "labelled", lambda text: read.append(text) or labelled(text))
    many = program(r"for each in range(5000): say(f'row {each}: hello\n')" + "\n    say('Val f1: 0.5\\n')")
    told = run(many)
    assert [values["val_f1"] for _, values in told.of("validation")] == [0.5, 0.5]
    assert len(read) == 2 * (200 + 50)


def test_the_groups_of_other_languages_are_told_apart(run: Callable[..., Told]):
    told = run(program(r"say('训练 损失 0.5 | 验证 损失 0.25\n')"))
    assert told.of("validation")[0][1]["验证_损失"] == 0.25
    assert "训练_损失" not in told.of("validation")[0][1]


@pytest.mark.parametrize("name", ["Val", "val", "VAL"])
def test_the_metric_is_found_whatever_the_case_of_its_name(name: str, run: Callable[..., Told]):
    config = Config.model_validate({"metric": {"name": name, "mode": "max"}, "search": {"method": "random"}})
    told = run(program(r"say(f'Loss: 0.5, Val: {val_acc}\n')"), config)
    assert [values[name] for _, values in told.of("validation")] == [0.25, 0.75]


@pytest.mark.parametrize("printed", ["mAP@0.5:0.95", "mAP@0.5", "F1", "Val Acc", "精度"])
def test_the_metric_may_be_named_as_it_is_printed(printed: str, run: Callable[..., Told]):
    config = Config.model_validate({"metric": {"name": printed, "mode": "max"}, "search": {"method": "random"}})
    told = run(program(rf"say('{printed}: 0.5\n')"), config)
    assert [values[printed] for _, values in told.of("validation")] == [0.5, 0.5]


def test_what_is_printed_after_the_loops_joins_the_last_validation(run: Callable[..., Told]):
    told = run(program("pass", r"say('test accuracy: 0.9\n')"))
    assert told.of("validation")[-1] == (4, {"val_acc": 0.75, "acc": 0.75, "test_accuracy": 0.9})


def test_what_is_printed_again_after_the_loops_changes_no_value_of_the_last_step(run: Callable[..., Told]):
    told = run(program("pass", r"say('best val_acc: 0.9, val_acc: 0.5\n')"))
    assert told.of("validation")[-1] == (4, {"val_acc": 0.75, "acc": 0.75, "best_val_acc": 0.9})


def test_what_is_printed_before_the_loops_is_no_curve(run: Callable[..., Told]):
    assert run(r"say('lr: 0.1\n')" + f"\n{program()}").of("validation")[0] == (2, {"val_acc": 0.25, "acc": 0.25})


def test_nothing_is_taken_of_a_program_that_runs_again(run: Callable[..., Told]):
    told = run(program(r"events.muted = epoch == 0; say('f1: 0.5\n')"))
    assert [("f1" in values) for _, values in told.of("validation")] == [False, True]


def test_a_loss_that_is_scaled_for_the_gradients_is_reported_as_it_was(run: Callable[..., Told]):
    made = "    loss = w * 3\n"
    source = f"for step in range(2):\n{made}    (loss / 4).backward()\n{made}    (2 * loss).backward()\n"
    told = run(source).of("training")
    assert told == [(step, {"loss": 3.0}) for step in (1, 1, 2, 2)]


def test_several_losses_have_their_names(run: Callable[..., Told]):
    source = (
        "for x in (1.0, 2.0):\n    d_loss = w * x\n    d_loss.backward()\n    g_loss = w + x\n    g_loss.backward()\n"
    )
    assert run(source).of("training") == [
        (1, {"d_loss": 1.0}),
        (1, {"g_loss": 2.0}),
        (2, {"d_loss": 2.0}),
        (2, {"g_loss": 3.0}),
    ]


def test_values_of_a_step_have_the_number_of_steps_taken_when_they_were_printed(run: Callable[..., Told]):
    source = (
        "for step in range(2):\n    say(f'lr {0.1}\\n')\n    (w * 2).backward()\n"
        "    if step == 1:\n        say(f'grad_norm {0.5}\\n')\n"
    )
    named = [(step, values) for step, values in run(source).of("training") if "loss" not in values]
    assert named == [(0, {"lr": 0.1}), (2, {"lr": 0.1, "grad_norm": 0.5})]


def test_in_a_single_loop_a_validation_is_known_by_its_name(run: Callable[..., Told]):
    source = (
        "for step in range(3):\n    (w * 2).backward()\n    say(f'step {step} grad_norm {step + 0.5}\\n')\n"
        "    if step == 1:\n        say(f'val loss {0.5}\\n')\n"
    )
    told = run(source)
    assert told.of("validation") == [(1, {"val_loss": 0.5, "loss": 0.5})]
    assert [values["grad_norm"] for _, values in told.of("training") if "grad_norm" in values] == [0.5, 1.5, 2.5]


def test_the_loss_of_a_validation_stands_for_the_metric_loss(run: Callable[..., Told]):
    told = run(program(r"say(f'train loss 0.5, test loss 0.75, acc {val_acc}\n')"))
    assert told.of("validation")[0] == (2, {"test_loss": 0.75, "acc": 0.25, "loss": 0.75})


def test_a_loss_of_training_is_no_validation(run: Callable[..., Told]):
    told = run(program(r"say(f'train loss 0.5, val acc {val_acc}\n')"))
    assert told.of("validation")[0] == (2, {"val_acc": 0.25})
    assert (2, {"train_loss": 0.5}) in told.of("training")


def test_a_search_may_go_by_a_loss_of_training(run: Callable[..., Told]):
    config = Config.model_validate({"search": {"method": "random"}})
    assert run(program(r"say('train loss 0.5\n')"), config).of("validation")[0][1]["loss"] == 0.5


def test_trackers_are_heard_and_do_what_they_do(run: Callable[..., Told], tmp_path):
    tensorboard = pytest.importorskip("tensorboardX")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    told = run(program("writer.add_scalar('Loss/val', 0.5, epoch)"), writer=writer)
    writer.close()
    assert told.of("validation")[0] == (2, {"Loss/val": 0.5, "val_acc": 0.25, "acc": 0.25, "loss": 0.5})
    assert list(tmp_path.iterdir())


def test_the_postfix_of_a_progress_bar_is_heard(run: Callable[..., Told]):
    from tqdm import tqdm

    bar = tqdm(total=1, disable=True)
    told = run(program("bar.set_postfix(f1='0.5', note='x')"), bar=bar)
    assert told.of("validation")[0] == (2, {"f1": 0.5, "val_acc": 0.25, "acc": 0.25})


def test_a_search_sees_only_validations_that_have_its_metric(run: Callable[..., Told]):
    config = Config.model_validate({"metric": {"name": "f1", "mode": "max"}, "search": {"method": "random"}})
    told = run(program(r"say('f1: 0.5\n') if epoch else None"), config)
    assert told.of("validation") == [(4, {"f1": 0.5, "val_acc": 0.75, "acc": 0.75})]


def test_times_are_no_curves():
    source = "for e in range(3):\n    t0 = time.time()\n    step(x)\n    took = time.time() - t0\n    acc = f(took)\n"
    assert [each.name for each in bound_in(ast.parse(source), 1)] == ["acc"]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.5, 0.5),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor(0.5, requires_grad=True) * 2, 1.0),
        (np.float32(0.5), 0.5),
        (np.array(0.5), 0.5),
        (np.array([0.5]), None),
        (torch.tensor([0.5]), None),
        (torch.tensor(3), None),
        (torch.tensor(0.5, device="meta"), None),
        ("0.5", None),
    ],
)
@pytest.mark.filterwarnings("error")
def test_numbers_are_read_without_a_warning(value: Any, number: float | None):
    assert number_of(value) == number


@pytest.mark.filterwarnings("error")
def test_attributes_of_the_users_objects_are_not_read():
    class Lazy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"{name} was read")

    assert number_of(Lazy()) is None


def test_a_value_within_vmap_is_no_number():
    read: list[float | None] = []
    torch.func.vmap(lambda each: read.append(number_of(each)) or each)(torch.ones(2))
    assert read == [None]
