"""What the verbs do with an experiment's checkpoints: the same in the notebook and on the command line."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.checkpoints import Which, choose
from kernel_backend.model.experiment import Metric
from kernel_backend.model.ids import Reference
from kernel_backend.model.overview import CheckpointInfo
from kernel_backend.text import size

ACTIONS = ("verify", "download", "delete", "pin", "unpin")


class Listed(NamedTuple):
    """The checkpoints of an experiment, or of one trial of it, and what its best is judged by."""

    number: int
    metric: Metric
    infos: list[CheckpointInfo]

    def name(self, info: CheckpointInfo) -> str:
        """How a person calls one: `checkpoint 500-2 of 12.1`."""
        return f"checkpoint {info.id} of {self.number}.{info.trial}"


def listed(client: Client, reference: Reference) -> Listed:
    """What has been committed; raises NotFound for an experiment or a trial that is none."""
    number, trial = reference.experiment, reference.trial
    overview = client.experiment(number)
    count = sum(overview.counts.values())
    if trial is not None and not 1 <= trial <= count:
        raise NotFound(f"experiment #{number} has no trial {trial}: it has {count}")
    found = [each for each in client.checkpoints(number) if trial in (None, each.trial)]
    return Listed(number, overview.experiment.config.metric, found)


def verified(client: Client, found: Listed) -> Listed:
    """The same with each read to the last byte that has not been read before; what has gone meanwhile is left out."""
    infos = []
    for each in found.infos:
        with suppress(NotFound):  # a training lets its older ones go
            unread = each.verified == "not read"
            infos.append(client.verify(found.number, each.trial, each.id) if unread else each)
    return found._replace(infos=infos)


def add_choice(parser: argparse.ArgumentParser) -> None:
    """The options that say which checkpoint is meant, and where a download goes."""
    parser.add_argument("--latest", action="store_true", help="the newest")
    parser.add_argument("--best", action="store_true", help="the best by the experiment's metric")
    parser.add_argument("--step", metavar="S", type=_step, help="the one of this step")
    parser.add_argument("--to", metavar="DIR", help="folder to download into [checkpoint-12.1-500-2]")
    parser.add_argument("--force", action="store_true", help="replace an earlier download there")


def chosen(found: Listed, action: str, options: argparse.Namespace) -> list[CheckpointInfo]:
    """Those that the action is about: one, or all where nothing but `verify` is said.

    Raises InvalidRequest and NotFound with the way out.
    """
    if action not in ACTIONS:
        raise InvalidRequest(f"{action!r} is nothing that can be done to a checkpoint: {', '.join(ACTIONS)}")
    if action != "download" and (options.to or options.force):
        raise InvalidRequest(f"--to and --force belong to download, not to {action}")
    if _means_all(action, options):
        return found.infos
    return [choose(found.infos, found.metric, _which(options))]


def act_on(
    client: Client, found: Listed, action: str, infos: list[CheckpointInfo], options: argparse.Namespace
) -> list[tuple[CheckpointInfo, str]]:
    """What `act` answers for each of those `chosen`; of all of them, those that have gone meanwhile are left out."""
    done = []
    for info in infos:
        try:
            done.append(act(client, found, action, info, options))
        except NotFound:
            if not _means_all(action, options):
                raise
    return done


def _which(options: argparse.Namespace) -> Which:
    return Which(options.latest, options.best, options.step)


def _means_all(action: str, options: argparse.Namespace) -> bool:
    return action == "verify" and not _which(options).given


def act(
    client: Client, found: Listed, action: str, info: CheckpointInfo, options: argparse.Namespace
) -> tuple[CheckpointInfo, str]:
    """The checkpoint as it is after the action, and a sentence about it."""
    number, trial, name = found.number, info.trial, found.name(info)
    match action:
        case "verify":
            info = client.verify(number, trial, info.id)
            return info, f"{name} is {'whole' if info.verified == 'yes' else f'damaged: {info.problem}'}"
        case "download":
            from jupyter_ext.download import download

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
    return f"it stays ({', '.join(info.kept)})" if info.kept else "the rules let it go"


def _step(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"--step {text}: must be a whole number from 0 up")
    return int(text)
