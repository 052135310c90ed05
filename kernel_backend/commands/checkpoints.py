"""Define the verbs that list, verify, pin, delete and download checkpoints, and apply the retention rules."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kernel_backend.client import Client
from kernel_backend.commands.answer import FAILED, OK, USAGE, Answer, Table, Text
from kernel_backend.commands.disk import cached
from kernel_backend.commands.download import download
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.checkpoints import CheckpointSelector, choose
from kernel_backend.model.experiment import Metric
from kernel_backend.model.ids import Reference, parse_subject
from kernel_backend.model.sizes import size
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.text.stored_files import checkpoint_head, checkpoint_row, collected_lines

ACTIONS = ("verify", "download", "delete", "pin", "unpin")


class CheckpointList(NamedTuple):
    """Checkpoints of an experiment or of one trial, with the metric that defines the best."""

    number: int
    metric: Metric
    infos: list[CheckpointInfo]

    def name(self, info: CheckpointInfo) -> str:
        """Return the display name of a checkpoint: `checkpoint 500-2 of 12.1`."""
        return f"checkpoint {info.id} of {self.number}.{info.trial}"


def listed(client: Client, reference: Reference) -> CheckpointList:
    """Return the committed checkpoints of an experiment or trial; raises NotFound if there are none."""
    number, trial = reference.experiment, reference.trial
    overview = client.experiment(number)
    count = sum(overview.counts.values())
    if trial is not None and not 1 <= trial <= count:
        raise NotFound(f"experiment #{number} has no trial {trial}: it has {count}")
    found = [each for each in client.checkpoints(number) if trial in (None, each.trial)]
    return CheckpointList(number, overview.experiment.config.metric, found)


def named(call: Call) -> CheckpointList:
    """Return the checkpoints that the arguments of a call name: of a model without a selector, its version's alone."""
    found, options = listed(call.client, call.reference), call.arguments
    version = None if selector(options).given else call.version_of(options.reference)
    if version is None:
        return found
    options.latest = True
    return found._replace(
        infos=[each for each in found.infos if (each.trial, each.id) == (version.trial, version.checkpoint)]
    )


def verified(client: Client, found: CheckpointList) -> CheckpointList:
    """Verify every byte of those checkpoints that are not verified yet; return all with the results.

    Checkpoints that were deleted meanwhile are left out.
    """
    infos = []
    for each in found.infos:
        with suppress(NotFound):  # a running training deletes old checkpoints
            unread = each.verified == "not read"
            infos.append(client.verify(found.number, each.trial, each.id) if unread else each)
    return found._replace(infos=infos)


def chosen(found: CheckpointList, action: str, options: argparse.Namespace) -> list[CheckpointInfo]:
    """Return the checkpoints to which an action applies: the selected one, or all for `verify` without a selector.

    Raises InvalidRequest and NotFound with a hint.
    """
    if action not in ACTIONS:
        raise InvalidRequest(f"{action!r} is no action on a checkpoint: {', '.join(ACTIONS)}")
    if action != "download" and (options.to or options.force):
        raise InvalidRequest(f"--to and --force belong to download, not to {action}")
    if _means_all(action, options):
        return found.infos
    return [choose(found.infos, found.metric, selector(options))]


def act_on(
    client: Client, found: CheckpointList, action: str, infos: list[CheckpointInfo], options: argparse.Namespace
) -> list[tuple[CheckpointInfo, str]]:
    """Apply an action, such as pin or delete, to the checkpoints `infos`; return each with a sentence on the result.

    If the action applies to all checkpoints, those deleted meanwhile are skipped. Raises NotFound if a single one was
    deleted.
    """
    done = []
    for info in infos:
        try:
            done.append(act(client, found, action, info, options))
        except NotFound:
            if not _means_all(action, options):
                raise
    return done


def selector(options: argparse.Namespace) -> CheckpointSelector:
    """Return what the options `--latest`, `--best` and `--step` select."""
    return CheckpointSelector(options.latest, options.best, options.step)


def _means_all(action: str, options: argparse.Namespace) -> bool:
    return action == "verify" and not selector(options).given


def act(
    client: Client, found: CheckpointList, action: str, info: CheckpointInfo, options: argparse.Namespace
) -> tuple[CheckpointInfo, str]:
    """Apply an action, such as pin or delete, to a checkpoint; return its new record, and a sentence on the result.

    `found` is the list that contains the checkpoint; `options.to` and `options.force` are those of `download`.
    """
    number, trial, name = found.number, info.trial, found.name(info)
    match action:
        case "verify":
            info = client.verify(number, trial, info.id)
            return info, f"{name} is {'whole' if info.verified == 'yes' else f'damaged: {info.problem}'}"
        case "download":
            to = Path(options.to or f"checkpoint-{number}.{trial}-{info.id}")
            return info, f"{name} is in {download(client, number, info, to, options.force)}, every byte compared"
        case "delete":
            client.delete(number, trial, info.id)
            return info, f"{name} is deleted ({size(info.bytes)})"
        case "pin":
            return client.pin(number, trial, info.id), f"{name} is kept until it is unpinned"
    info = client.pin(number, trial, info.id, pinned=False)
    return info, f"{name} is not pinned any more: {_why(info)}"


def _why(info: CheckpointInfo) -> str:
    return f"it stays ({', '.join(info.kept)})" if info.kept else "the retention rules do not keep it"


def step_of(text: str) -> int:
    """Return the step in a text; raises InvalidRequest unless it is a whole number."""
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"--step {text}: must be a whole number from 0 up")
    return int(text)


NONE = "no checkpoint has been committed"


def _checkpoints(call: Call) -> Answer:
    found = listed(call.client, call.reference)
    if call.arguments.verify:
        found = verified(call.client, found)
    rows = [checkpoint_row(each, found.metric.name, time.time()) for each in found.infos]
    problems = [each.problem for each in found.infos if each.verified == "damaged"]
    table = Table(checkpoint_head(found.metric.name), rows, NONE)
    return Answer({"checkpoints": found.infos}, [table], problems, FAILED if problems else OK)


def _checkpoint(call: Call) -> Answer:
    client, options, action = call.client, call.arguments, call.arguments.action
    found = named(call)
    infos = chosen(found, action, options)
    asks = action == "delete" and not getattr(options, "yes", False)
    if asks and not call.console.agrees(f"delete {found.name(infos[0])} ({size(infos[0].bytes)})"):
        return Answer(None, notes=["nothing was deleted"], code=USAGE)
    done = act_on(client, found, action, infos, options)
    damaged = action == "verify" and any(info.verified == "damaged" for info, _ in done)
    lines = [said for _, said in done] or [NONE]
    return Answer({"checkpoints": [info for info, _ in done]}, [Text(lines)], code=FAILED if damaged else OK)


def _gc(call: Call) -> Answer:
    options = call.arguments
    if options.cache:
        return cached(clean=not options.dry_run)
    number = call.reference.experiment if options.reference else None
    found = call.client.collect(number, options.dry_run)
    lines = collected_lines(found, options.dry_run, options.verbose)
    return Answer(found, [Text(lines)], code=FAILED if found.problems else OK)


VERBS = (
    Verb(
        "checkpoints",
        "list committed checkpoints, and why each is retained",
        _checkpoints,
        (
            NUMBER,
            argument("--verify", action="store_true", help="verify every byte of checkpoints not verified yet"),
            JSON,
        ),
        ("checkpoints 12", "checkpoints 12.1 --verify"),
        client=("checkpoints",),
        job=("checkpoints",),
    ),
    Verb(
        "checkpoint",
        "verify, download, delete, pin or unpin a checkpoint",
        _checkpoint,
        (
            argument("action", metavar="ACTION", help=", ".join(ACTIONS)),
            NUMBER,
            argument("--latest", action="store_true", help="the newest"),
            argument("--best", action="store_true", help="the best by the experiment's metric"),
            argument("--step", metavar="S", type=step_of, help="the one of this step", complete="step"),
            argument("--to", metavar="DIR", help="folder to download into [checkpoint-12.1-500-2]", complete="folder"),
            argument("--force", action="store_true", help="replace an earlier download there"),
            argument("--yes", action="store_true", help="delete without asking", host="terminal"),
            JSON,
        ),
        (
            "checkpoint verify 12",
            "checkpoint download 12 --best --to digits",
            "checkpoint delete 12.1 --step 500",
            "checkpoint pin 12 --latest",
        ),
        takes="an action and an experiment",
        client=("verify", "pin", "delete", "manifest", "part"),
    ),
    Verb(
        "gc",
        "delete the checkpoints, logs and reports that no rule retains",
        _gc,
        (
            argument(
                "reference",
                metavar="NUMBER",
                nargs="?",
                type=parse_subject,
                help="one experiment, as 12 [all]",
                complete="experiment",
            ),
            argument("--dry-run", action="store_true", help="only say what would go"),
            argument("--verbose", action="store_true", help="also list what is retained, and why"),
            argument("--cache", action="store_true", help="the remote data on this machine that no training uses"),
            JSON,
        ),
        ("gc --dry-run", "gc 12 --verbose", "gc --cache"),
        takes="one experiment; without it, all",
        client=("collect",),
    ),
)
