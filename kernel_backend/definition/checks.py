"""Check which values the functions of a definition take, and refuse those that cannot exist when they are called."""

from __future__ import annotations

from kernel_backend.definition.contract import Definition
from kernel_backend.errors import InvalidDefinition


def check_prepare(definition: Definition) -> None:
    """Raise InvalidDefinition if `prepare` takes what does not exist yet, or if another function takes its result.

    It runs once, before all trials, so that there are no values of the training loop and no results of roles.
    """
    for function in definition.needs("prepare"):
        for parameter in function.parameters:
            if parameter.kind == "loop" or (parameter.kind == "function" and parameter.value_of in definition.roles):
                raise InvalidDefinition(
                    f"{function.name} (line {parameter.line}) takes {parameter.name}, and prepare runs before there "
                    "is any: it can have hyperparameters, and results of functions that take nothing else",
                    line=parameter.line,
                    text=parameter.name,
                )
    for function in definition.functions.values():
        for parameter in function.parameters:
            if parameter.kind == "function" and parameter.value_of == "prepare":
                raise InvalidDefinition(
                    f"{function.name} (line {parameter.line}) takes what prepare returns, which runs once for all "
                    f"trials and gives nothing on: have prepare write files, and {function.name} read them",
                    line=parameter.line,
                    text="prepare",
                )


def check_models(definition: Definition) -> None:
    """Check a definition whose function `model` returns several models.

    Raises InvalidDefinition if no training step is defined, or if `loss` or `metrics` take `output`, the output of a
    single model.
    """
    names = ", ".join(definition.models)
    line = definition.functions["model"].line
    if not definition.steps:
        raise InvalidDefinition(
            f"model (line {line}) returns several models ({names}), and no function says how they train: write "
            f"def step_{definition.models[0]}({names}, batch) for each optimizer, or one def step({names}, batch); "
            'each returns {"loss": ...}',
            line=line,
            roles=["step"],
        )
    instead = {
        "loss": "leave loss out, and the validation uses the steps",
        "metrics": f"have it ask for {names} and batch",
    }
    for role in instead.keys() & definition.functions.keys():
        for parameter in definition.functions[role].parameters:
            if parameter.value_of == "output":
                raise InvalidDefinition(
                    f"{role} (line {parameter.line}) asks for {parameter.name}, the output of one model, and model "
                    f"returns several ({names}): {instead[role]}",
                    line=parameter.line,
                    text=parameter.name,
                )
