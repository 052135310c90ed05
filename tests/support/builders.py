"""Build records for tests, with defaults for all fields that a test does not mention."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from kernel_backend import NUMERICS, __version__
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.model.resources import Node, Placement, Share
from kernel_backend.model.search.effects import Moved
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.model.states import AttemptState, TrialState
from kernel_backend.model.trial import Attempt, Failure, Frame, Trial
from kernel_backend.spec.option_parser import OptionParser, add_options
from kernel_backend.spec.options import Host
from kernel_backend.store.base import Store


def node(name: str = "here", slots: int = 2, kind: str = "cpu", healthy: bool = True) -> Node:
    return Node(name=name, kind=kind, address="127.0.0.1", slots=slots, cores=slots, healthy=healthy)


def share(slots: tuple[int, ...] = (0, 1), name: str = "here", kind: str = "cpu") -> Share:
    return Share(node=name, kind=kind, address="127.0.0.1", slots=slots)


def trial(state: TrialState = TrialState.RUNNING, **fields: Any) -> Trial:
    defaults: dict[str, Any] = {"experiment": 1, "index": 1, "params": {}, "queued_at": 0.0, "attempt": 1}
    return Trial(state=state, **(defaults | fields))


def attempt(number: int = 1, placement: Placement | None = None, **fields: Any) -> Attempt:
    defaults: dict[str, Any] = {"state": AttemptState.RUNNING, "created_at": 100.0}
    return Attempt(
        experiment=1,
        trial=1,
        number=number,
        placement=placement or (share(),),
        **(defaults | fields),
    )


def update_trial(store: Store, number: int, index: int, at: float, **changes: Any) -> Trial:
    """Return the trial with these fields changed, but not its state, as a search's decision changes it."""
    (updated,) = store.record(number, [], [Moved(index, changes=changes)], at=at)
    return updated


def parse_options(tokens: Sequence[str], host: Host) -> Namespace:
    """Return the parsed options of `%%dlsubmit` or `daylight submit`, with all other tokens in `words`."""
    parser = OptionParser(prog="%%dlsubmit", add_help=False)
    add_options(parser, host)
    parser.set_defaults(words=[])
    return parser.parse_mixed(tokens)


def user_error(step: int | None = 7, message: str = "boom", rank: int = 0, **fields: Any) -> Failure:
    frame = Frame(file="definition.py", line=12, function="loss", text="raise ValueError('boom')", cell=4, cell_line=3)
    return Failure(
        rank=rank, type="ValueError", message=message, step=step, frames=(frame,), traceback="Traceback ...", **fields
    )


def snapshot(source: str, roles_from: int = 1) -> Snapshot:
    """Return a snapshot whose definition comes from cell [4], where it begins one line later."""
    environment = Environment(python="3", implementation="CPython", platform="linux", cpu="", cores=1, distributions={})
    piece = Piece(cell=4, line=1, count=len(source.splitlines()), cell_line=2)
    return Snapshot(
        version=__version__,
        numerics=NUMERICS,
        pieces=(piece,),
        roles_from=roles_from,
        contract=CONTRACT,
        environment=environment,
    )
