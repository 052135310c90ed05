"""Describe notebook servers that hold slots: what a user requests, and the server as JupyterHub reports it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import Field, FiniteFloat

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Record
from kernel_backend.model.resources import LOCAL

PROFILE = re.compile(r"daylight-(\d{1,6})(?:-(.+))?")  # slug of a profile: number of slots and pool


class ServerRequest(NamedTuple):
    """Number of slots that a notebook server requests, and their pool."""

    slots: int
    pool: str = LOCAL


class Server(Record):
    """Notebook server with the number of slots that it holds; 0 if its options request none or are invalid."""

    owner: str
    group: str
    name: str = ""  # empty: the user's default server
    pool: str = LOCAL
    node: str | None = None  # None if the hub does not report it
    slots: int = Field(ge=0)
    since: FiniteFloat
    last_activity: FiniteFloat

    @property
    def full_name(self) -> str:
        """Return the server's full name in JupyterHub: `dave/`, or `dave/second` for a named server."""
        return f"{self.owner}/{self.name}"


def profile(slots: int, pool: str | None = None) -> str:
    """Return the identifier (slug) of the JupyterHub profile for a server with this many slots: `daylight-2-gpu`.

    `pool` is the pool of the slots; with None the slug names no pool. `server_request` parses the slug.
    """
    return f"daylight-{slots}" if pool is None else f"daylight-{slots}-{pool}"


def server_request(options: object) -> ServerRequest:
    """Return the slots and pool that a notebook server requests in its `user_options`; raises InvalidRequest.

    If the option `profile` is a slug of `profile()`, it determines slots and pool. Otherwise the options `slots` and
    `pool` do; the default is no slots. `options` may be any JSON value, since users write it.
    """
    if not isinstance(options, Mapping):
        return ServerRequest(0)
    found = PROFILE.fullmatch(str(options.get("profile", "")))
    if found is not None:
        return ServerRequest(int(found[1]), found[2] or LOCAL)
    slots, pool = options.get("slots", 0), options.get("pool", LOCAL)
    if isinstance(slots, list) and len(slots) == 1:  # a form sends lists
        slots = slots[0]
    if isinstance(slots, bool) or not re.fullmatch(r"\d{1,6}", str(slots)):
        raise InvalidRequest(f"slots={slots!r} of a notebook server: a whole number is wanted, 0 for none")
    if not isinstance(pool, str):
        raise InvalidRequest(f"pool={pool!r} of a notebook server: the name of a pool is wanted")
    return ServerRequest(int(slots), pool)


def servers_of(users: Iterable[Mapping[str, Any]]) -> tuple[Server, ...]:
    """Return the running notebook servers, from the records of users that JupyterHub's API returned.

    A server whose options are invalid is listed with 0 slots; the devices that it really holds can be seen only by an
    engine. Servers that are starting are skipped: the hub may still refuse their start, and a server that may never run
    must not preempt trainings.
    """
    found = []
    for user in users:
        for server in (user.get("servers") or {}).values():
            try:
                if server.get("ready") or server.get("pending") == "stop":
                    found.append(_server(user, server, _requested(server.get("user_options"))))
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
    return tuple(sorted(found, key=lambda server: server.full_name))


def _requested(options: object) -> ServerRequest:
    try:
        return server_request(options)
    except InvalidRequest:
        return ServerRequest(0)


def _server(user: Mapping[str, Any], server: Mapping[str, Any], what: ServerRequest) -> Server:
    owner, groups = user["name"], user.get("groups") or ()
    since = _seconds(server.get("started") or server["last_activity"])
    return Server(
        owner=owner,
        group=groups[0] if groups else owner,
        name=server["name"],
        pool=what.pool,
        slots=what.slots,
        since=since,
        last_activity=max(since, _seconds(server.get("last_activity") or server["started"])),
    )


def _seconds(written: str) -> float:
    """Parse a time in JupyterHub's format, `2026-11-22T14:00:00.000000Z`, into seconds since the epoch."""
    return datetime.fromisoformat(written).timestamp()
