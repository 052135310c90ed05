"""Write the script for a definition that consists of functions, with the training loop that Daylight runs for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jupyter_ext.plain_script import helpers, loops
from jupyter_ext.plain_script.template import filled
from kernel_backend.definition.contract import Definition, Function
from kernel_backend.model.experiment import Config

_VARIABLES = {
    "train_data": "train",
    "validation_data": "validation",
    "test_data": "test",
    "model": "net",
    "optimizer": "opt",
    "schedule": "lr_schedule",
}
_CONSTANTS = {"device": "device", "rank": "0", "world": "1", "epochs": "args.epochs", "steps": "steps"}
_TYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
THEIRS = "\0"  # prefix of names from the user's code, which must not be renamed
_INPUT = "(named or (inputs[0] if len(inputs) == 1 else tuple(inputs)))"


class FunctionsForm:
    """Writer of the training's source text, for a definition that consists of functions."""

    def __init__(self, definition: Definition, config: Config, source: str) -> None:
        """Create the writer; `source` is the user's code."""
        self._definition, self._config, self._source = definition, config, source
        self._made: set[str] = set()
        self._roles = definition.steps or ("loss",)
        self._flags = self._decided()

    def text(self) -> str:
        """Return the source of the script's functions, including its `main`."""
        main = self._main()
        evaluate = self._evaluate() if self._flags & {"judged", "test"} else ""
        whole = "target" not in self._asked("loss", "metrics", *self._definition.steps)
        used = main + evaluate
        parts = [
            helpers.SAMPLES,
            helpers.BY_ROWS if "columns" in self._flags else "",
            filled(helpers.BATCHES, self._flags, self._batch_texts()),
            helpers.MOVE if "move(" in used else "",
            (helpers.SPLIT_WHOLE if whole else helpers.SPLIT) if "split(" in used else "",
            helpers.SCALAR,
            helpers.ALONE if "several" in self._flags else "",
            helpers.MEANS,
            helpers.METRICS if evaluate and "whole" in self._flags else "",
            helpers.METRIC_OBJECTS if evaluate and "held" in self._flags else "",
            evaluate,
            helpers.REPORT,
            main,
        ]
        return "\n\n\n".join(each.strip("\n") for each in parts if each)

    def _has(self, role: str) -> bool:
        return role in self._definition.roles

    def _asked(self, *roles: str) -> set[str]:
        """Return the names of loop values, such as `output`, that the functions of these roles take as arguments."""
        functions = [self._definition.functions[role] for role in roles if self._has(role)]
        return {each.value_of for function in functions for each in function.parameters if each.kind == "loop"}

    def _decided(self) -> set[str]:
        config, steps = self._config, bool(self._definition.steps)
        judged, metrics = self._has("validation_data"), self._has("metrics")
        objects = metrics and not self._asked("metrics") & {"output", "target", "input", "batch"}
        own = {
            "accumulate": (config.accumulate or 1) > 1,
            "augment": self._has("augment"),
            "autocast": config.amp is not None,
            "clip": config.clip is not None,
            "clip_scaled": config.clip is not None and config.amp == "fp16",
            "columns": "Dataset" not in self._source,
            "compile": config.compile,
            "counts_steps": config.steps is not None,
            "ema": config.ema is not None,
            "fp16": config.amp == "fp16",
            "held": metrics
            and not objects
            and re.search(r"\btorchmetrics\b|\bdef compute\b", self._source) is not None,
            "judged": judged,
            "loader": "DataLoader" in self._source,
            "loss": self._has("loss"),
            "metrics": metrics,
            "move": config.device == "auto",
            "objects": objects,
            "on_epoch": self._has("on_epoch"),
            "output": self._has("loss") or objects or "output" in self._asked("metrics"),
            "patience": config.patience is not None,
            "plateau": self._has("schedule") and "ReduceLROnPlateau" in self._source,
            "schedule": self._has("schedule"),
            "schedule_per_epoch": self._has("schedule") and config.schedule_per == "epoch",
            "schedule_per_step": self._has("schedule") and config.schedule_per == "step",
            "several": len(self._roles) > 1,
            "splits": not steps or bool(self._asked("loss", "metrics", *self._roles) & {"input", "target", "output"}),
            "steps": steps,
            "test": self._has("test_data"),
            "validate_first": config.validate_first and judged,
            "whole": metrics and not objects,
        }
        return {name for name, holds in own.items() if holds}

    def _batch_texts(self) -> dict[str, str]:
        own = f"lambda samples: {self._call('collate', {'batch': 'samples'})}" if self._has("collate") else ""
        drops = self._config.uneven == "drop"
        return {
            "collate": own or "default_collate",
            "collate_of_loader": own or "data.collate_fn",
            "or_drop": " or True" if drops else "",
            "or_drop_training": " or epoch is not None" if drops else "",
        }

    @property
    def _net(self) -> str:
        return "average.module" if "ema" in self._flags else "net"

    @property
    def _autocast(self) -> str:
        return f"torch.autocast(device.type, {_TYPES[self._config.amp]})" if self._config.amp else ""

    # Calls of the user's functions

    @staticmethod
    def _variable(name: str) -> str:
        return _VARIABLES.get(name, f"{name}_value")

    def _call(self, role: str, given: Mapping[str, str]) -> str:
        function = self._definition.functions[role]
        if function.value:  # an object instead of a function
            called = [given[each.value_of] for each in function.parameters]
            return f"{THEIRS}{function.attribute}" + (f"({', '.join(called)})" if called else "")
        found = []
        for each in function.parameters:
            value = each.value_of
            if each.kind == "hyperparameter":
                text = f"args.{each.name}"
            elif value in given:
                text = given[value]
            else:
                text = self._variable(value) if each.kind == "function" else _CONSTANTS[value]
            found.append(f"{each.name}={text}")
        return f"{THEIRS}{function.attribute}({', '.join(found)})"

    def _values(self, batch: str, index: str) -> dict[str, str]:
        """Return, by name, the expressions for the values that the training loop passes to the user's functions.

        `batch` and `index` are the expressions of the batch and its number.
        """
        found = {"output": "output", "target": "target", "input": _INPUT, "batch": batch, "epoch": "epoch"}
        if self._definition.steps:
            found |= {"index": index, "model": "net"} | self._parts
        return found

    @property
    def _parts(self) -> dict[str, str]:
        return {name: f'net["{name}"]' for name in self._definition.models}

    def _make(self, name: str, given: Mapping[str, str] = {}) -> list[str]:
        """Return the statements that call a function of the definition and assign its result to a variable.

        They are preceded by statements that compute its arguments, where these are results of other functions. If the
        function was called before, the list is empty. `given` has the expressions of other arguments, by name.
        """
        if name in self._made:
            return []
        self._made.add(name)
        before = self._needed(self._definition.functions[name], given)
        result = "" if name == "prepare" else f"{self._variable(name)} = "
        return [*before, f'reseed("init", "{name}")', f"{result}{self._call(name, given)}"]

    def _needed(self, function: Function, given: Mapping[str, str]) -> list[str]:
        needed = [each.value_of for each in function.parameters if each.kind == "function"]
        return [line for name in needed if name not in given for line in self._make(name)]

    def _passed(self) -> str:
        """Return the further arguments of the script's function `evaluate` as text, such as `, vocab`.

        They are results of other functions of the definition, which the user's loss and metrics take.
        """
        roles = [role for role in ("loss", "metrics", *self._definition.steps) if self._has(role)]
        needed = [each for role in roles for each in self._definition.functions[role].parameters]
        given = {"model", *self._definition.models} if self._definition.steps else set()
        names = [
            self._variable(each.value_of) for each in needed if each.kind == "function" and each.value_of not in given
        ]
        if any(each.kind == "loop" and each.value_of == "steps" for each in needed):
            names.append("steps")
        return "".join(f", {name}" for name in dict.fromkeys(names))

    # The functions of the script

    def _evaluate(self) -> str:
        batch, values = "batch", self._values("batch", "number")
        loss = f"scalar({self._call('loss', values)})[0]" if self._has("loss") else ""
        steps = [
            filled(loops.EVALUATED_STEP, (), {"call": self._call(role, values), "label": _label(role)})
            for role in self._definition.steps
            if not loss
        ]
        taken = sorted(self._asked("metrics") & {"output", "target", "input", "batch"})
        kept = {name: f'values["{name}"]' for name in taken}
        texts = {
            "passed": self._passed(),
            "autocast": f", {self._autocast}" if self._autocast else "",
            "loss_value": loss,
            "evaluated_steps": "\n".join(steps),
            "kept": ", ".join(f'"{name}": {values[name]}' for name in taken),
            "metrics_function": f"{THEIRS}{self._definition.functions['metrics'].attribute}"
            if self._has("metrics")
            else "",
            "metrics_call": self._call("metrics", values | {"batch": batch}) if self._has("metrics") else "",
            "metrics_once": self._call("metrics", values | kept) if self._has("metrics") else "",
        }
        return filled(loops.EVALUATE, self._flags, texts)

    def _main(self) -> str:
        config, functions = self._config, self._definition.functions
        roles = [role for role in (*self._roles, "metrics", "augment", "collate", "on_epoch") if self._has(role)]
        given = {"params": "list(net.parameters())", "named_params": "list(net.named_parameters())", **self._parts}
        data = [*(self._make("prepare") if self._has("prepare") else []), *self._make("train_data")]
        model = self._make("model")
        optimizer = self._make("optimizer", given) if self._has("optimizer") else [self._default_optimizer()]
        schedule = self._make("schedule", {"optimizer": 'opts.get("", opts)'}) if self._has("schedule") else []
        others = [line for role in roles for line in self._needed(functions[role], {"model": "net", **self._parts})]
        for role in ("validation_data", "test_data"):
            others += self._make(role) if self._has(role) else []
        every = config.validate_every
        due = "ends"
        if every is not None:
            due = f"global_step % {every.steps} == 0" if every.steps else f"ends and (epoch + 1) % {every.epochs} == 0"
        texts = {
            "data": "\n".join(data),
            "model": "\n".join(model),
            "role_names": repr(list(self._roles)).replace("'", '"'),
            "others": "\n".join(others),
            "net": self._net,
            "passed": self._passed(),
            "metric": config.metric.name,
            "better": ">" if config.metric.mode == "max" else "<",
            "due": due,
            "advance": loops.ADVANCE,
        }
        texts["optimizers"] = "\n".join([*optimizer, filled(loops.OPTIMIZERS, self._flags, texts)])
        texts["schedules"] = "\n".join(
            [*schedule, "lr_schedules = list(lr_schedule.values()) if isinstance(lr_schedule, dict) else [lr_schedule]"]
        )
        texts["validation"] = filled(loops.VALIDATION, self._flags, texts)
        texts["steps"] = "\n".join(self._step(role) for role in self._roles)
        texts["on_epoch"] = self._on_epoch() if self._has("on_epoch") else ""
        return filled(loops.MAIN, self._flags, texts)

    def _default_optimizer(self) -> str:
        lr = "args.lr" if "lr" in self._definition.hyperparameters else "1e-3"
        keys = [role.removeprefix("step_") for role in self._definition.steps if role != "step"]
        each = ", ".join(f'"{key}": torch.optim.AdamW(net["{key}"].parameters(), lr={lr})' for key in keys)
        return f"opt = {{{each}}}" if keys else f"opt = torch.optim.AdamW(net.parameters(), lr={lr})"

    def _step(self, role: str) -> str:
        several = "several" in self._flags
        texts = {
            "role": role,
            "label": _label(role),
            "size": "size" if "accumulate" in self._flags else "samples",
            "own": f'own["{role}"]' if several else "net.parameters()",
            "opts": f'[opts[key] for key in keys["{role}"]]' if several else "opts.values()",
            "call": self._call(role, self._values("given", "global_step")),
            "augment": "",
            "autocast": self._autocast,
        }
        if self._has("augment"):
            texts["augment"] = self._call("augment", {"batch": "given", "epoch": "epoch", "index": "global_step"})
        part = ", part" if "accumulate" in self._flags else ""
        own = f', "{role}"' if several else ""
        texts["forward"] = filled(loops.FORWARD, self._flags, texts)
        texts["backward"] = filled(loops.BACKWARD, self._flags, texts)
        texts["forward_backward"] = filled(loops.FORWARD_BACKWARD, self._flags, texts)
        texts["part"] = filled(loops.PART, self._flags, texts | {"draws": part + own})
        texts["update"] = filled(loops.UPDATE, self._flags, texts | {"draws": own})
        return filled(loops.STEP, self._flags, texts)

    def _on_epoch(self) -> str:
        parts = {name: f'{self._net}["{name}"]' for name in self._definition.models}
        call = self._call("on_epoch", {"epoch": "epoch", "model": self._net} | parts)
        return filled(loops.ON_EPOCH, self._flags, {"call": call, "net": self._net})


def _label(role: str) -> str:
    """Return the name under which the loss of a role is reported: `loss`, or for example `g_loss` for `step_g`."""
    key = role.removeprefix("step_")
    return "loss" if key in ("loss", "step") else f"{key}_loss"
