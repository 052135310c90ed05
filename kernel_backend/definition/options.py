"""Reject options that conflict with a training definition, or with other options."""

from __future__ import annotations

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.forms.registry import BUILT_IN, form_named
from kernel_backend.definition.prediction_form import EVALUATING
from kernel_backend.definition.reported.missing_metric import needed_metric
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config, Metric

_MOST_NAMES = 8  # of reported values that are listed
# Settings that a program makes itself, so that an option of such a name can only be its own.
OF_PROGRAMS = frozenset(name for form in BUILT_IN if form.programs for name in form.refuses)


def check_options(definition: Definition, config: Config) -> None:
    """Raise InvalidDefinition for options that conflict with this definition, or with other options."""
    problem = next((text for rule in _RULES if (text := rule(definition, config))), None)
    if problem:
        raise InvalidDefinition(problem)


def _gathers(definition: Definition, config: Config) -> str | None:
    if config.gather_loss and definition.steps:
        return (
            f"--gather-loss is for loss(output, target), and {definition.steps[0]}() computes its loss from its share "
            "of the batch: leave --gather-loss out, or write loss() instead"
        )
    if config.gather_loss and (config.accumulate or 1) > 1:
        return (
            "--gather-loss computes the loss over the whole batch at once, and --accumulate computes the batch in "
            "parts: leave one of them out"
        )
    return None


def _synchronizes(definition: Definition, config: Config) -> str | None:
    reasons = [
        (
            config.logical_workers is not None,
            "takes statistics of a batch at once, and a slot computes its --logical-workers one after the other",
        ),
        (
            (config.accumulate or 1) > 1,
            "takes statistics of the whole batch at once, and --accumulate computes the batch in parts",
        ),
        (config.compile, "exchanges statistics inside of the model, where --compile has no place for it"),
    ]
    reason = next((text for is_given, text in reasons if is_given), None)
    return f"--sync-bn {reason}: leave one of them out" if config.sync_bn and reason else None


def _shards(definition: Definition, config: Config) -> str | None:
    if config.strategy != "fsdp2":
        return None
    reasons = [
        (config.backend == "horovod", "is torch's own, and --backend horovod has nothing of the kind"),
        (config.logical_workers is not None, "sums gradients over the slots, and not in the tree of --logical-workers"),
        (config.compile, "exchanges parameters inside of the model, where --compile has no place for it"),
        (config.amp == "fp16", "has no scaler of gradients for --amp fp16, and needs none with bf16"),
        (bool(definition.models), "shards one model, and this definition has several"),
        ("on_epoch" in definition.roles, "leaves no slot the whole model that on_epoch is called with"),
    ]
    reason = next((text for is_given, text in reasons if is_given), None)
    return f"--strategy fsdp2 {reason}: leave one of them out" if reason else None


def _goes_back(definition: Definition, config: Config) -> str | None:
    if config.on_nan != "go_back":
        return None
    if form_named(definition.form).loop:
        return "--on-nan go_back is for definitions of functions, whose loop is Daylight's: write --on-nan stop or note"
    every = config.checkpoint_every
    if every is None or not (every.steps or every.epochs):
        return (
            "--on-nan go_back goes back to a step that does not depend on the clock: add --checkpoint-every 500steps "
            "or 1epoch"
        )
    return None


def _fetches(definition: Definition, config: Config) -> str | None:
    if config.fetch != "during" or not (config.form == "command" or config.uses_model):
        return None
    who = "a command's processes" if config.form == "command" else "rows"
    return (
        f"--fetch during is for trainings whose Python code reads files, and {who} cannot wait for them: leave it out"
    )


def _averages(definition: Definition, config: Config) -> str | None:
    parts = [
        (function, each)
        for function in definition.functions.values()
        for each in function.parameters
        if function.name == "metrics" and each.name in definition.models
    ]
    if config.ema is None or not parts:
        return None
    function, part = parts[0]
    return (
        f"metrics (line {function.line}) asks for {part.name}, which has the plain weights, and --ema validates "
        "averaged ones: leave --ema out, or return such metrics from a step, which gets the averaged models"
    )


def _validates(definition: Definition, config: Config) -> str | None:
    given = {
        "--patience": config.patience is not None,
        "--validate-every": config.validate_every is not None,
        "--validate-first": config.validate_first,
    }
    flag = next((flag for flag, is_given in given.items() if is_given), None)
    if flag == "--patience" and config.await_evaluation:
        flag = None
    if flag and not _validates_itself(definition):
        return f"{flag} goes by validations, and there are none: add validation_data, or leave {flag} out"
    if config.search_needs_validations and not _validates_itself(definition):
        return (
            "a search goes by the validation, and there is none: add validation_data, or --await-evaluation and then "
            "daylight evaluate N --follow"
        )
    if config.patience is not None and config.search is not None:
        return (
            "--patience ends a training by its own progress, and in a search the method decides: leave one of them out"
        )
    return None


def _validates_itself(definition: Definition) -> bool:
    return not form_named(definition.form).by_role or "validation_data" in definition.roles


def _leaves_steps_to_the_code(definition: Definition, config: Config) -> str | None:
    own = form_named(definition.stepped_by)
    taken = {"batch_size"} if "train_data" in definition.roles else set()
    given = [name for name in own.refuses if getattr(config, name) != Config.model_fields[name].default]
    name = next((name for name in given if name not in taken), None)
    if name is None:
        return None
    text = f"--{name.replace('_', '-')} is for definitions of functions, and {own.loop} {own.refuses[name]}"
    if definition.form == "script" and definition.command is not None:
        return f"{text}. With --form command the program runs in processes of its own, and takes what its options take"
    return text


def _finds_batch_size(definition: Definition, config: Config) -> str | None:
    if config.auto_batch is None:
        return None
    flag = "--batch-size auto"
    own = form_named(definition.stepped_by)
    if own.loop:
        instead = own.refuses.get("batch_size", "--batch-size N, a number")
        return f"{flag} is for definitions of functions, whose batches and steps are Daylight's: write {instead}"
    if "batch_size" in definition.hyperparameters:
        return f"{flag} finds the size that the hyperparameter batch_size sets: leave one of them out"
    if config.strategy == "fsdp2" and config.slots > 1:
        return (
            f"{flag} tries steps on each slot alone, and with --strategy fsdp2 a slot has no whole model: write "
            "--batch-size N, a number"
        )
    return None


def _keeps_its_forms_rules(definition: Definition, config: Config) -> str | None:
    rules = form_named(definition.form).rules
    return next((text for rule in rules if (text := rule(definition, config))), None)


def _changes_its_slots(definition: Definition, config: Config) -> str | None:
    if config.least_slots is None:
        return None
    reason = form_named(definition.stepped_by).fixed_slots
    return f"--slots {config.slot_range} changes the number of slots, and {reason}: write --slots N" if reason else None


def _is_of_its_form(definition: Definition, config: Config) -> str | None:
    if any((definition.form == each) != (config.form == each) for each in ("command", "prediction", "evaluation")):
        return f"form={config.form} of the configuration: a definition of the form {definition.form} has another"
    if config.follows and definition.form != EVALUATING.form:
        return "--search checkpoints is for evaluations: daylight evaluate 12 --follow"
    if config.metric_pattern and definition.form != "command":
        return "--metric-pattern reads the log of a command, and this is none: report metrics instead"
    return None


def _reports_its_metric(definition: Definition, config: Config) -> str | None:
    metric, names = config.metric, definition.reports
    counts = config.needs_validations or (metric != Metric() and not config.await_evaluation)
    if not counts or names is None or metric.of(dict.fromkeys(names, 0.0)) is not None:
        return None
    if metric.name == "loss" and any("loss" in each.lower() for each in names):
        return None
    return needed_metric(config, names[:_MOST_NAMES], form_named(definition.stepped_by).way_of(metric))


_RULES = (
    _is_of_its_form, _changes_its_slots, _finds_batch_size, _leaves_steps_to_the_code, _keeps_its_forms_rules,
    _gathers, _synchronizes, _shards, _goes_back, _fetches, _averages, _validates, _reports_its_metric,
)  # fmt: skip
