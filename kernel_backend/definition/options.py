"""Reject options that conflict with a training definition, or with other options."""

from __future__ import annotations

from typing import NamedTuple

from kernel_backend.definition.contract import Definition, Form
from kernel_backend.definition.reported.missing_metric import needed_metric, way_of
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config, Metric
from kernel_backend.model.search.registry import method_of


class _Own(NamedTuple):
    """Options that are rejected for a form of definition, because the user's code makes these settings."""

    means: str  # text that names who runs the training loop in this form
    instead: dict[str, str]  # setting -> what to write in the code instead


# Settings that do not apply to a plain cell: those of a training loop, several slots, or trials.
_NOT_PLAIN = (
    "accumulate", "amp", "batch_size", "clip", "compile", "ema", "gather_loss", "logical_workers", "patience",
    "per_slot_batch", "schedule_per", "search", "slots", "steps", "strategy", "sync_bn", "until",
    "validate_every", "validate_first", "weights_from",
)  # fmt: skip
# Settings that a program makes itself, or by its own options.
_OF_PROGRAM = (
    "accumulate", "amp", "batch_size", "clip", "compile", "ema", "gather_loss", "loader_workers", "logical_workers",
    "patience", "per_slot_batch", "rng", "schedule_per", "strategy", "sync_bn", "uneven", "until", "validate_every",
    "validate_first", "weights_from",
)  # fmt: skip
# Forms that are not listed here accept every option.
_OWN: dict[Form, _Own] = {
    "loop": _Own(
        "train(run, ...) takes its steps itself: leave it out, and write there",
        {
            "accumulate": "several backward() before an optimizer.step()",
            "amp": "with torch.autocast(run.device.type):",
            "clip": "nn.utils.clip_grad_norm_(net.parameters(), 1.0) after backward()",
            "compile": "net.compile()",
            "ema": "torch.optim.swa_utils.AveragedModel, registered by run.restore(average=...)",
            "gather_loss": "a loss of what it needs",
            "logical_workers": "nothing: its batches are cut by the number of slots",
            "schedule_per": "schedule.step(), called where you want it",
            "strategy": "nothing: each slot has the model",
            "sync_bn": "nothing: its BatchNorm has the statistics of each slot's samples",
            "validate_every": "its validation, called where you want it",
            "validate_first": "its validation, called before the loop too",
        },
    ),
    "command": _Own(
        "a command trains in its own way: leave it out, and use",
        dict.fromkeys(_OF_PROGRAM, "an option of the program"),
    ),
    "plain": _Own(
        "%%dlrun runs a cell once, in one process: leave it out. For several slots or trials write",
        dict.fromkeys(_NOT_PLAIN, "functions below %%dlsubmit"),
    ),
    "keras": _Own(
        "Keras' own fit takes the steps: leave it out, and write",
        {
            "accumulate": "gradient_accumulation_steps=N of the optimizer",
            "amp": 'keras.config.set_dtype_policy("mixed_bfloat16") above the layers',
            "clip": "global_clipnorm=1.0 of the optimizer",
            "compile": "jit_compile=True of model.compile",
            "ema": "use_ema=True of the optimizer",
            "gather_loss": "a loss of what it needs",
            "logical_workers": "nothing: its batches are cut by the number of slots",
            "rng": "nothing: Keras keeps its random states in variables, which checkpoints hold",
            "schedule_per": "a callback such as LearningRateScheduler",
            "strategy": "nothing: each slot has the model",
            "sync_bn": "synchronized=True of BatchNormalization",
            "validate_every": "nothing: Keras validates after each epoch",
            "validate_first": "nothing: Keras validates after each epoch",
        },
    ),
    "trainer": _Own(
        "the Trainer of Hugging Face takes the steps: leave it out, and write in TrainingArguments",
        {
            "accumulate": "gradient_accumulation_steps=N",
            "amp": "bf16=True or fp16=True",
            "batch_size": "per_device_train_batch_size=N, which is that of one slot and a hyperparameter",
            "clip": "max_grad_norm=1.0",
            "compile": "nothing: model.compile() above the Trainer does it",
            "ema": "nothing: a callback of the Trainer may average weights",
            "gather_loss": "nothing: write compute_loss",
            "logical_workers": "nothing: its batches are cut by the number of slots",
            "patience": "nothing: give the Trainer callbacks=[EarlyStoppingCallback(early_stopping_patience=N)]",
            "per_slot_batch": "nothing: per_device_train_batch_size is that of one slot",
            "rng": "nothing: random states are in the checkpoints",
            "schedule_per": "lr_scheduler_type",
            "strategy": "nothing: each slot has the model",
            "sync_bn": "nothing: its BatchNorm has the statistics of each slot's samples",
            "validate_every": 'eval_strategy="steps", eval_steps=N',
            "validate_first": "eval_on_start=True",
        },
    ),
    "script": _Own(
        "the program's own loop takes the steps: leave it out, and write there",
        {
            "accumulate": "several backward() before an optimizer.step()",
            "amp": 'with torch.autocast("cuda"): around the forward pass',
            "batch_size": "the batch size of its DataLoader: a name such as batch_size = 64 can be given on the line",
            "clip": "nn.utils.clip_grad_norm_(model.parameters(), 1.0) after backward()",
            "compile": "model.compile()",
            "ema": "torch.optim.swa_utils.AveragedModel",
            "gather_loss": "nothing: the loss is that of the whole batch on any number of slots",
            "loader_workers": "num_workers=N of its DataLoader",
            "logical_workers": "nothing: every slot runs the whole program on the whole batch",
            "patience": "break where the loop is to end: what the loop counts is in its checkpoints",
            "per_slot_batch": "the size of the whole batch in its DataLoader",
            "rng": "nothing: random states are in the checkpoints",
            "schedule_per": "schedule.step(), called where you want it",
            "seed": "torch.manual_seed(seed) with seed = 0 above it, and give seed=1 on the line",
            "strategy": "nothing: each slot has the model",
            "sync_bn": "nothing: its BatchNorm has the statistics of the whole batch on any number of slots",
            "steps": "a loop of so many steps: a name such as max_steps = 1000 can be given on the line",
            "uneven": "drop_last=True of its DataLoader",
            "validate_every": "its validation, called where you want it",
            "validate_first": "its validation, called before the loop too",
            "weights_from": "model.load_state_dict(...) above the loop",
        },
    ),
    "lightning": _Own(
        "Lightning's Trainer takes the steps: leave it out, and write",
        {
            "accumulate": "accumulate_grad_batches=N of the Trainer",
            "batch_size": (
                "the batch size of its DataLoader, which may be an argument of __init__ and is a hyperparameter then"
            ),
            "compile": "self.compile() in configure_model",
            "ema": "a callback such as EMAWeightAveraging",
            "gather_loss": "a loss of what it needs",
            "logical_workers": "nothing: its batches are cut by the number of slots",
            "patience": "the callback EarlyStopping",
            "per_slot_batch": "the global batch size in its DataLoader",
            "rng": "nothing: random numbers follow from seed and step",
            "schedule_per": "interval in what configure_optimizers returns",
            "strategy": "nothing: Lightning trains by a strategy of Daylight's, and each slot has the model",
            "sync_bn": "sync_batchnorm=True of the Trainer, which needs GPUs",
            "validate_every": "val_check_interval or check_val_every_n_epoch of the Trainer",
            "validate_first": "trainer.validate in a hook",
        },
    ),
}
_MOST_NAMES = 8  # of reported values that are listed
# Settings that a program makes itself, so that an option of such a name can only be its own.
OF_PROGRAMS = frozenset(_OF_PROGRAM) | _OWN["script"].instead.keys()


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
    if definition.form != "functions":
        return "--on-nan go_back is for definitions of functions, whose loop is Daylight's: write --on-nan stop or note"
    every = config.checkpoint_every
    if every is None or not (every.steps or every.epochs):
        return (
            "--on-nan go_back goes back to a step that does not depend on the clock: add --checkpoint-every 500steps "
            "or 1epoch"
        )
    return None


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
    if flag and definition.form in ("functions", "keras") and "validation_data" not in definition.roles:
        return f"{flag} goes by validations, and there are none: add validation_data, or leave {flag} out"
    if config.patience is not None and config.search is not None:
        return (
            "--patience ends a training by its own progress, and in a search the method decides: leave one of them out"
        )
    return None


def _leaves_steps_to_the_code(definition: Definition, config: Config) -> str | None:
    own = _OWN.get(definition.stepped_by)
    if own is None:
        return None
    taken = {"batch_size"} if "train_data" in definition.roles else set()
    given = [name for name in own.instead if getattr(config, name) != Config.model_fields[name].default]
    name = next((name for name in given if name not in taken), None)
    if name is None:
        return None
    text = f"--{name.replace('_', '-')} is for definitions of functions, and {own.means} {own.instead[name]}"
    if definition.form == "script" and definition.command is not None:
        return f"{text}. With --form command the program runs in processes of its own, and takes what its options take"
    return text


def _finds_batch_size(definition: Definition, config: Config) -> str | None:
    if config.auto_batch is None:
        return None
    flag = "--batch-size auto"
    if definition.form != "functions":
        own = _OWN.get(definition.stepped_by)
        number = "--batch-size N, a number"
        instead = own.instead.get("batch_size", number) if own else number
        return f"{flag} is for definitions of functions, whose batches and steps are Daylight's: write {instead}"
    if "batch_size" in definition.hyperparameters:
        return f"{flag} finds the size that the hyperparameter batch_size sets: leave one of them out"
    if config.strategy == "fsdp2" and config.slots > 1:
        return (
            f"{flag} tries steps on each slot alone, and with --strategy fsdp2 a slot has no whole model: write "
            "--batch-size N, a number"
        )
    return None


def _sums_gradients(definition: Definition, config: Config) -> str | None:
    if definition.keras_backend != "tensorflow" or config.slots == 1:
        return None
    return (
        f"--slots {config.slots}: Keras on TensorFlow trains on one slot, as gradients are summed over slots by torch "
        "and Horovod for torch alone. Write --slots 1; or train on the torch backend, by "
        'os.environ["KERAS_BACKEND"] = "torch" above `import keras`, and keras.ops in place of tensorflow'
    )


def _counts_epochs(definition: Definition, config: Config) -> str | None:
    if definition.form != "script":
        return None
    search = config.search
    units = definition.rounds if search else None
    if definition.epochs_fixed and config.epochs != (units or Config.model_fields["epochs"].default):
        return (
            f"--epochs {config.epochs} cannot be given to this program: {definition.epochs_fixed}. Write "
            "`for epoch in range(epochs)` with epochs = 10 above it, or leave --epochs out"
        )
    if config.search is not None and config.search.method == "pbt":
        return (
            "--search pbt gives a trial other values while it trains, and a program goes on with those that it has: "
            "search with asha or hyperband"
        )
    if (
        definition.epochs_fixed
        and units is None
        and search
        and (search.learns or method_of(search.method).judged != "end")
    ):
        return (
            f"--search {search.method} decides by the epochs of its trials: {definition.epochs_fixed}. Write "
            "`for epoch in range(epochs)` with epochs = 10 above it, or search with random"
        )
    return None


def _changes_its_slots(definition: Definition, config: Config) -> str | None:
    if config.least_slots is None:
        return None
    reasons: dict[Form, str] = {
        "command": "the program divides its work by the number of its processes",
        "trainer": "per_device_train_batch_size is that of one slot, so that the whole batch would change",
    }
    reason = reasons.get(definition.stepped_by)
    return f"--slots {config.slot_range} changes the number of slots, and {reason}: write --slots N" if reason else None


def _is_of_its_form(definition: Definition, config: Config) -> str | None:
    if (definition.form == "command") != (config.form == "command"):
        return f"form={config.form} of the configuration: a definition of the form {definition.form} has another"
    if config.metric_pattern and definition.form != "command":
        return "--metric-pattern reads the log of a command, and this is none: report metrics instead"
    return None


def _reports_its_metric(definition: Definition, config: Config) -> str | None:
    metric, names = config.metric, definition.reports
    counts = config.search is not None or config.patience is not None or metric != Metric()
    if not counts or names is None or metric.of(dict.fromkeys(names, 0.0)) is not None:
        return None
    if metric.name == "loss" and any("loss" in each.lower() for each in names):
        return None
    return needed_metric(config, names[:_MOST_NAMES], way_of(definition.stepped_by, metric))


_RULES = (
    _is_of_its_form, _changes_its_slots, _finds_batch_size, _leaves_steps_to_the_code, _sums_gradients, _counts_epochs,
    _gathers, _synchronizes, _shards, _goes_back, _averages, _validates, _reports_its_metric,
)  # fmt: skip
