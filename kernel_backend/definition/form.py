"""Define a training form: the record from which parsing, checks, ranks and notebooks know a way to write a training."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kernel_backend.definition.command_line import Command, command_of
from kernel_backend.definition.contract import CONTRACT, Definition
from kernel_backend.model.experiment import Config, Metric
from kernel_backend.model.record import Value
from kernel_backend.model.syntax import FunctionNode

Modules = Mapping[str, ast.Module]
Importable = Callable[[ast.Module, int, Definition, Mapping[str, Value], Mapping[str, int]], ast.Module]
Rule = Callable[[Definition, Config], str | None]


@dataclass(frozen=True)
class Source:
    """Syntax tree of a captured module, in which the submitted cell begins at line `roles_from`.

    `modules` are those of the user's project, and `contract` is the version of the rules for definitions.
    """

    tree: ast.Module
    roles_from: int = 1
    modules: Modules = field(default_factory=dict)
    contract: int = CONTRACT

    @property
    def cell(self) -> list[ast.stmt]:
        """Return the statements of the submitted cell."""
        return [node for node in self.tree.body if node.lineno >= self.roles_from]

    @property
    def functions(self) -> set[str]:
        """Return the names of the functions that the submitted cell defines."""
        return {node.name for node in self.cell if isinstance(node, FunctionNode)}

    @cached_property
    def command(self) -> Command | None:
        """Return the shell command that runs the program; None for a cell."""
        return command_of(self.tree)


def model_given(tree: ast.Module, roles_from: int, definition: Definition) -> list[str]:
    """Return the model of functions, if that is given as a value and not by a function."""
    model = definition.functions.get("model")
    return [model.attribute] if model is not None and model.value else []


def _hides(definition: Definition, tree: ast.Module, modules: Modules) -> tuple[str, ...] | None:
    return None


@dataclass(frozen=True, kw_only=True)
class TrainingForm:
    """Way to write a training, such as functions, `train(run)` or a cell with a framework's Trainer.

    Parameters
    ----------
    name : str
        Name in messages. The entry point of another package must have the same name.
    recognises : callable
        ``(source) -> bool``: True if a cell or program has this form. Forms are tried in the order of their table.
    parse : callable
        ``(source) -> Definition``: hyperparameters and settings of a cell. Raises InvalidDefinition.
    training : str
        ``module:Class`` of the training in a rank, a `FormTraining` that is created from a `RankContext`. Only ranks
        import it.
    framework : str
        Package that `training` imports. Empty: none but torch, so that ranks are forked with it imported.
    loop : str
        Who takes the steps, and where to write instead what cannot be an option. Empty: Daylight's own loop, for which
        every option is.
    refuses : dict of str to str
        Options that are refused, by field of the configuration, and what to write instead.
    rules : tuple of callable
        Other refusals: ``(definition, config) -> str | None`` returns an error message, or None.
    fixed_slots : str
        Why the number of slots cannot change during the training. Empty: it can.
    advice : str
        How such code reports a metric, with ``{name}`` and ``{metric}``, the metric as an argument ``name=value``.
    reports : callable
        ``(definition, tree, modules)``: names of all values that the code reports; None if its source hides some.
    programs : bool
        True if it is a form of programs that a command runs. Other forms are not tried for these.
    by_role : bool
        True if a training without the role ``validation_data`` has no validation.
    importable : callable, optional
        ``(tree, roles_from, definition, params, lengths)``: the module, rewritten such that its import does not train.
        `params` are the trial's hyperparameters, and `lengths` its ``epochs`` and ``batch_size``.
    deferred : callable, optional
        ``(tree, roles_from)``: the statements that run when it trains, and not when its module is imported.
    whole : bool
        True if all of the module is deferred, with the cells above the submitted one.
    hides_ranks : bool
        True if objects of the cell would connect to other ranks by themselves when they are created.
    loadable : callable, optional
        ``(tree, roles_from, definition)``: the module without what `job.load()` does not need, which may train or take
        long; None for all of it.
    model_role : str
        Function of the definition that makes the model, for `job.load()`.
    training_line : callable, optional
        ``(tree, module)``: the line of the cell `tree` from which on its notebook runs nothing; None if it runs all.
        `module` is the captured module. Not asked for cells of functions.
    gives : callable
        ``(tree, roles_from, definition)``: names of the cell's variables that its job sets or trains, and the notebook
        does not.
    local : str
        What to do instead of ``--local``. Empty: it trains in a notebook's own process.
    script : str
        Why no plain script can reproduce such a training. Empty: one can.
    package : str
        Distribution that adds it, set by the registry; empty for a built-in form.
    """

    name: str
    recognises: Callable[[Source], bool]
    parse: Callable[[Source], Definition]
    training: str
    framework: str = ""
    loop: str = ""
    refuses: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    fixed_slots: str = ""
    advice: str = "report it in each epoch, such as run.report({metric}, validation=True)"
    reports: Callable[[Definition, ast.Module, Modules], tuple[str, ...] | None] = _hides
    programs: bool = False
    by_role: bool = False
    importable: Callable[[ast.Module, int, Definition, Mapping[str, Value], Mapping[str, int]], ast.Module] | None = (
        None
    )
    deferred: Callable[[ast.Module, int], ast.Module] | None = None
    whole: bool = False
    hides_ranks: bool = False
    loadable: Callable[[ast.Module, int, Definition], ast.Module | None] | None = None
    model_role: str = "model"
    training_line: Callable[[ast.Module, ast.Module], int | None] | None = None
    gives: Callable[[ast.Module, int, Definition], list[str]] = model_given
    local: str = ""
    script: str = ""
    package: str = ""

    def way_of(self, metric: Metric) -> str:
        """Return how a training of this form reports a metric, as advice."""
        return self.advice.replace("{name}", metric.name).replace("{metric}", metric.as_argument())
