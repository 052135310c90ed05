"""List the options of a submission in one table, from which the magics and the command line build their parsers.

An option that is not given is None (or False), since `Config` has the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from kernel_backend.model.search.methods import BUILT_IN, Sampler
from kernel_backend.spec.limits import CENTURY, COUNT, GANG, SLOT_TIME, TRIALS

Host = Literal["both", "notebook", "terminal"]
# Kind of value, for completion; "" if it cannot be completed.
Candidates = Literal[
    "", "experiment", "trial", "step", "state", "user", "group", "node", "model", "column", "file", "folder"
]
VIEWS = ("auto", "card", "widget")


@dataclass(frozen=True)
class Option:
    """Command-line option of a submission or of a verb.

    `kwargs` are those of `argparse.add_argument`. `config` is the field of Config that the option sets, such as
    `epochs`, or `search.eta` for a field of a nested record. `most` is the largest value for a new experiment (times in
    seconds); the smallest is defined by the record.
    """

    flags: tuple[str, ...]
    group: str
    help: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: str | None = None
    host: Host = "both"
    most: float | None = None
    complete: Candidates = ""

    @property
    def dest(self) -> str:
        """Return the name of the option's attribute in the parsed namespace."""
        return str(self.kwargs.get("dest") or self.flags[0].removeprefix("--").replace("-", "_"))


def _setting(flag: str, group: str, metavar: str, text: str, most: float | None = None) -> Option:
    name = flag.removeprefix("--").replace("-", "_")
    return Option((flag,), group, text, {"metavar": metavar}, config=name, most=most)


def _search(
    flag: str, metavar: str, text: str, field: str | None = None, most: float | None = None, **kwargs: Any
) -> Option:
    name = field or flag.removeprefix("--").replace("-", "_")
    return Option((flag,), "search", text, {"metavar": metavar, **kwargs}, config=f"search.{name}", most=most)


def _switch(flag: str, group: str, text: str) -> Option:
    return Option((flag,), group, text, {"action": "store_true"})


def _on(flag: str, group: str, text: str, config: str) -> Option:
    return Option((flag,), group, text, {"action": "store_const", "const": True}, config=config)


def _list(flag: str, group: str, metavar: str, text: str, host: Host = "both") -> Option:
    return Option((flag,), group, text, {"metavar": metavar, "action": "append"}, host=host)


def _of(field: str) -> str:
    """Return the built-in search methods that use a field of `Search`, for help texts: `of asha and hyperband`."""
    return f"of {' and '.join(method.name for method in BUILT_IN if field in method.uses)}"


def _by_method(field: str) -> str:
    """Return a field's default values by search method, for help texts: `asha 64, others 16`.

    `others` stands for the most frequent default.
    """
    uses = [method for method in BUILT_IN if method.may_use(field) and getattr(method, field) is not None]
    values = [getattr(method, field) for method in uses]
    usual = max(values, key=values.count)
    apart = [f"{method.name} {getattr(method, field)}" for method in uses if getattr(method, field) != usual]
    return ", ".join([*apart, f"others {usual}"])


_VIEW = {"metavar": "KIND", "choices": VIEWS}
_NO_WAIT = {"action": "store_const", "const": False, "dest": "wait"}

OPTIONS: tuple[Option, ...] = (
    _setting(
        "--slots",
        "resources",
        "N",
        "number of slots (GPUs, or shares of the CPU) that train together; 1..4: as many as nobody waits for [1]",
        most=GANG,
    ),
    _on("--one-node", "resources", "all of them on one node", "one_node"),
    _setting(
        "--pool",
        "resources",
        "NAME",
        "pool of nodes to train on, or several as gpu,cloud: the first that can start it runs it [the default pool]",
    ),
    _setting("--group", "resources", "NAME", "your group to which the slots are charged [your first]"),
    _setting("--priority", "resources", "N", "higher is served first, as far as your quota allows [0]"),
    _on(
        "--preemptible",
        "resources",
        "it may start on slots reserved for others, and is preempted when they need them",
        "preemptible",
    ),
    _setting(
        "--max-time",
        "resources",
        "TIME",
        "8h: pause with a checkpoint after this time on the slots; a search ends this long after its submission [none]",
        most=CENTURY,
    ),
    _setting("--backend", "resources", "NAME", "communication backend of the slots: auto, horovod or torch [auto]"),
    _setting("--device", "resources", "NAME", "auto or cpu: train on the CPU of a machine that has GPUs [auto]"),
    _setting("--threads", "resources", "N", "CPU threads of each slot [cores of the node / its slots]", most=GANG),
    _setting(
        "--logical-workers",
        "resources",
        "V",
        "number of logical ranks: the result has equal bits on any number of slots",
        most=GANG,
    ),
    _setting("--epochs", "training", "N", "passes over the training data [1]", most=COUNT),
    Option(
        ("--from",),
        "training",
        "an experiment or a trial such as 12.7 with whose best weights it begins, 12.7@500 for those of step 500, or a "
        "model such as memes@3 [none]",
        {"metavar": "NUMBER", "dest": "weights_from"},
        config="weights_from",
        complete="experiment",
    ),
    _setting("--steps", "training", "N", "total number of steps, instead of epochs", most=COUNT),
    _setting(
        "--batch-size",
        "training",
        "N",
        "samples per step, over all slots together; auto, or auto:N for N at most: the largest that fits [32]",
        most=COUNT,
    ),
    _on("--per-slot-batch", "training", "--batch-size is per slot", "per_slot_batch"),
    _setting("--uneven", "training", "WHAT", "keep or drop: a last batch of fewer samples [keep]"),
    _setting(
        "--accumulate",
        "training",
        "N",
        "compute each batch in N parts, one after the other, for less memory: the batch size stays [1]",
        most=GANG,
    ),
    _setting("--schedule-per", "training", "WHEN", "step or epoch: how often `schedule` is stepped [step]"),
    _setting("--amp", "training", "TYPE", "mixed precision: bf16 or fp16 [none]"),
    _setting("--ema", "training", "DECAY", "decay of averaged weights (EMA), such as 0.999 [none]"),
    _setting("--clip", "training", "NORM", "maximum norm of the gradients [none]", most=1e30),
    _on("--gather-loss", "training", "compute the loss over the whole batch of all slots, not per slot", "gather_loss"),
    _setting("--strategy", "training", "NAME", "ddp: each slot has the model; fsdp2: each has a part of it [ddp]"),
    _on("--sync-bn", "training", "BatchNorm trains by the whole batch of all slots, not per slot", "sync_bn"),
    _on("--compile", "training", "compile the models by torch.compile", "compile"),
    _setting("--validate-every", "training", "WHEN", "2epochs or 500steps: how often to validate [1epoch]", most=COUNT),
    _on("--validate-first", "training", "validate before the first step, too", "validate_first"),
    _setting(
        "--patience",
        "training",
        "N",
        "end after N validations in a row without a better --metric [never]",
        most=COUNT,
    ),
    _on(
        "--await-evaluation",
        "training",
        "its validations come from daylight evaluate N --follow: a search and --patience wait for them",
        "await_evaluation",
    ),
    _setting(
        "--loader-workers", "training", "N", "processes of each slot that load samples, or auto [auto]", most=GANG
    ),
    _search(
        "--search",
        "METHOD",
        "look for the best of ranges and lists such as lr=1e-4..1e-1:log width=32,64: by {methods} [single]",
        "method",
    ),
    _search(
        "--trials",
        "N",
        f"trials at most [{_by_method('trials')}; no limit where --budget or --max-time is one]",
        most=TRIALS,
    ),
    _search(
        "--sampler",
        "NAME",
        f"what proposes new trials: {', '.join(get_args(Sampler))} [{_by_method('sampler')}]",
    ),
    _on(
        "--stopping",
        "search",
        f"{_of('stopping')}: a trial ends at a rung for good, and is never resumed",
        "search.stopping",
    ),
    _search("--eta", "N", "one of so many trials goes on to the next rung [4]", most=TRIALS),
    _search(
        "--first-rung", "N", "epochs, or steps, of a trial before it is judged [1/256 of all, at least 1]", most=COUNT
    ),
    _search("--brackets", "MODE", f"{_of('brackets')}: aggressive, standard or conservative [aggressive]"),
    _search("--population", "N", f"{_of('population')}: trials that train side by side [16]", most=10_000),
    _search(
        "--interval",
        "N",
        f"{_of('interval')}: epochs, or steps, between its rounds [1/20 of all, at least 1]",
        most=COUNT,
    ),
    _search("--parallel", "N", "maximum number of trials that train at once [as many as fit]", most=TRIALS),
    _search("--budget", "TIME", "slot time of all trials: 20gpuh, 2slot-h, 30m [none]", most=SLOT_TIME),
    _search(
        "--keep-allocation",
        "TIME",
        "length of a job or of pods in which trials run one after another, or no: a job for each trial [4h]",
        most=CENTURY,
    ),
    _search(
        "--search-option",
        "NAME=VALUE",
        "an option of a method of another package; may be repeated",
        "options",
        action="append",
    ),
    _search(
        "--warm",
        "NUMBER",
        "an experiment whose results are prior data, or a trial such as 12.7 from whose best checkpoint all start; "
        "may be repeated",
        action="append",
    ),
    _setting("--seed", "exactness", "N", "seed of all random numbers [0]"),
    _setting("--rng", "exactness", "KIND", "derived (from seed and step) or stream (as torch draws) [derived]"),
    _setting(
        "--reproducible",
        "exactness",
        "SCOPE",
        "off, host or portable: on which machines a rerun gives equal bits [host]",
    ),
    Option(
        ("--no-rehearsal",),
        "exactness",
        "do not try out a restart of a program with its own training loop in a second process",
        {"action": "store_const", "const": False},
        config="rehearse",
    ),
    Option(
        ("--values",),
        "exactness",
        "on: cells that read what this one sets wait for the job and get it, up to 1 GiB; 4GB: up to that; rng: the "
        "random generators, too; off [on]",
        {"metavar": "WHICH"},
        config="values",
    ),
    Option(
        ("--no-values",),
        "exactness",
        "bring no values back from the job, as --values off",
        {"action": "store_const", "const": "off", "dest": "values"},
    ),
    _setting(
        "--metric", "faults", "NAME", "metric that defines the best checkpoint: loss, error:min or accuracy:max [loss]"
    ),
    Option(
        ("--metric-pattern",),
        "faults",
        "of a command: numbers in its log, as in 'acc: (?P<accuracy>[\\d.]+)'; may be repeated",
        {"metavar": "PATTERN", "action": "append"},
        config="metric_pattern",
    ),
    _setting("--checkpoint-every", "faults", "WHEN", "60s, 10m, 1epoch or 500steps [as often as is cheap]", most=COUNT),
    _setting(
        "--keep",
        "faults",
        "RULES",
        "checkpoints to keep: best:1,latest:2 or best_overall:3 [best:1,latest:2]",
        most=COUNT,
    ),
    _setting(
        "--max-restarts", "faults", "N", "restarts in a row without progress before it has failed [5]", most=COUNT
    ),
    _setting(
        "--on-nan",
        "faults",
        "WHAT",
        "of a loss that is not finite: stop (at the third in a row), note, or go_back to a checkpoint before it [stop]",
    ),
    _setting(
        "--hang-timeout",
        "faults",
        "TIME",
        "time without progress after which a rank counts as hung: 90s, 10m (three times that in slow phases) [10m]",
        most=CENTURY,
    ),
    Option(
        ("--on-log",),
        "faults",
        "PATTERN in the log of a failed attempt means cancel_retries or exclude_node; may be repeated",
        {"nargs": 2, "metavar": ("PATTERN", "ACTION"), "action": "append"},
        config="on_log",
    ),
    _list(
        "--data",
        "data",
        "PATH",
        "folder, file or s3://... whose files are listed and compared; train=s3://... or ./images=s3://... is "
        "read as a local folder; may be repeated",
    ),
    _setting(
        "--fetch",
        "data",
        "WHEN",
        "before: a training begins once its inputs are on the node; during: they are fetched as it reads them; auto: "
        "during if it would wait for more than a minute [auto]",
    ),
    _list("--commit", "data", "ID", "version of data kept by lakeFS, DVC or others, to be shown; may be repeated"),
    Option(("--name",), "view", "what to call it [its notebook or file, and what is new]", {"metavar": "TEXT"}),
    _list("--tag", "view", "TAG", "tag by which it is found, or several as baseline,paper; may be repeated"),
    Option(("--note",), "view", "text shown with it", {"metavar": "TEXT"}),
    Option(("--wait",), "view", "wait until it has ended", {"action": "store_const", "const": True}),
    Option(("--no-wait",), "view", "return at once", _NO_WAIT),
    _switch("--quiet", "view", "print the number only"),
    Option(("--view",), "view", "card, widget, or auto to suit the front end [auto]", _VIEW, host="notebook"),
    Option(
        ("--out",), "view", "variable to which the job object is assigned", {"metavar": "VARIABLE"}, host="notebook"
    ),
    _list("--include", "code", "PATH", "file, folder or glob to include in the snapshot; may be repeated"),
    _list(
        "--capture", "code", "NAME", "notebook values to include in the snapshot as files: train,test", host="notebook"
    ),
    Option(
        ("--project-limit",),
        "code",
        "maximum size of the project's files in the snapshot: 200MB [64MB]",
        {"metavar": "SIZE"},
    ),
    _setting("--env", "code", "NAME", "current (the packages there are) or locked (built as they were) [current]"),
    Option(
        ("--no-state-check",),
        "code",
        "train even if values differ from the notebook's",
        {"action": "store_true"},
        host="notebook",
    ),
    Option(
        ("--form",),
        "code",
        "command: a Python program behind -- runs in processes of its own, though it has a training loop that could "
        "be taken [as it is written]",
        {"metavar": "FORM", "choices": ("command",)},
    ),
    _switch("--allow-unused", "code", "train even if an unused function has a name similar to a role's"),
    _switch("--again", "code", "create a new experiment even if an identical one is active"),
    _switch("--dry-run", "code", "show what would be sent, and send nothing"),
    _switch("--local", "code", "train in this process, to debug it, and send nothing"),
    _switch("--as-script", "code", "print a plain PyTorch script that trains the same, and send nothing"),
    Option(("--json",), "view", "print JSON", {"action": "store_true"}, host="terminal"),
)


TRUST = Option(
    ("--trust",),
    "",
    "owner of the code, if it is another user's: it runs with your permissions",
    {"metavar": "OWNER"},
    complete="user",
)


def rerun_options() -> tuple[Option, ...]:
    """Return the options of `rerun`, without defaults: options that are not given keep their original values."""
    where = "current location of declared data: a folder, file or s3://...; may be repeated"
    of_rerun = {"--name", "--tag", "--note", "--wait", "--no-wait", "--quiet", "--json"}
    again = (option for option in OPTIONS if option.config or of_rerun & set(option.flags))
    without_default = (replace(each, group="", help=re.sub(r" \[[^\]]*\]$", "", each.help)) for each in again)
    return (_list("--data", "", "NAME=PLACE", where), TRUST, *without_default)
