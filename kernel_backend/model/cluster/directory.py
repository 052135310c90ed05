"""Read the users and groups of a JupyterHub, with quotas from group properties: `{"daylight": {"limit": 16}}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.record import Record

KEY = "daylight"  # key of the quota in a group's properties


class Directory(Record):
    """Users of a JupyterHub with their groups, groups with their quotas, and messages about invalid quotas.

    A user's groups are in the order in which JupyterHub lists them.
    """

    members: dict[str, tuple[str, ...]]  # user -> groups
    groups: dict[str, Quota | None]  # group -> quota; None if the hub has none
    complaints: dict[str, tuple[str, ...]] = {}  # group -> messages about invalid values


def directory(users: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]) -> Directory:
    """Build a `Directory` from the records of users and groups that JupyterHub's API returned."""
    read = {str(each["name"]): read_quota(each.get("properties")) for each in groups}
    return Directory(
        members={str(user["name"]): tuple(user.get("groups", ())) for user in users},
        groups={name: quota for name, (quota, _) in read.items()},
        complaints={name: complaints for name, (_, complaints) in read.items() if complaints},
    )


def read_quota(properties: object) -> tuple[Quota | None, tuple[str, ...]]:
    """Return the quota in a group's properties, None if there is none, and a message for each invalid value.

    Invalid values are ignored; valid ones apply.
    """
    given = properties.get(KEY) if isinstance(properties, Mapping) else None
    if given is None:
        return None, ()
    if not isinstance(given, Mapping):
        return None, (f"{KEY}={_short(given)}: must be a mapping such as {{'limit': 16}}",)
    good, complaints = {}, []
    for name, value in given.items():
        if complaint := _complaint({name: value}):
            complaints.append(f"{name}={_short(value)}: {complaint}")
        else:
            good[name] = value
    if complaint := _complaint(good):  # valid values that conflict: a guarantee above the limit
        complaints.append(f"guarantee={_short(good.pop('guarantee', None))}: {complaint}")
    return Quota.model_validate(good), tuple(complaints)


def _complaint(fields: Mapping[Any, Any]) -> str:
    try:
        Quota.model_validate(fields)
    except ValidationError as error:
        return str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
    except (InvalidRequest, TypeError, OverflowError) as error:
        return str(error)
    return ""


def _short(value: object) -> str:
    return repr(value)[:60]
