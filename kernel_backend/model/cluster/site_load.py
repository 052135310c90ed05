"""Define the load of a pool whose nodes others use, too: what is free there, and what others wait for."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record


class OtherRequest(Record):
    """Request of others that waits for nodes of a pool, such as a pending job of Slurm."""

    name: str  # in the engine's words, such as `job 31 of bob`
    slots: int = Field(ge=1)
    one_node: bool = False  # all of them must be on one node


class SiteLoad(Record):
    """Free slots of a pool and requests of others, as seen in a scheduler such as Slurm at time `at`.

    The time is in seconds since the epoch.
    """

    at: FiniteFloat = 0.0
    free: Mapping[str, int] = Field(default_factory=dict)  # free slots by the engine's name of a node; 0 if missing
    waiting: tuple[OtherRequest, ...] = ()  # in the order of the site's queue, as far as that is known
    whole_nodes: bool = False  # every job gets whole nodes
    problem: str = ""  # why the load is not known now, or not at all; "" if it is
    hidden: bool = False  # the site never shows it to this service


UNKNOWN = SiteLoad(problem="it has not been read yet")
