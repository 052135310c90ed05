"""Parse, validate and format the quota fields that an admin sets for a user or a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.quotas import Quota, SlotHours, parse_slot_hours
from kernel_backend.model.sizes import LARGEST, parse_size, size_word
from kernel_backend.model.values import nearest

MOST = 1_000_000  # largest number allowed in a field
NONE = "none"  # removes a limit; JSON null restores the hub's value

_WHOLE = ("guarantee", "limit", "max_slots_per_trial", "priority")
_LIMITS = ("limit", "slot_hours", "max_slots_per_trial", "storage")  # fields that may be unlimited


def read_changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """Parse an admin's change of a quota, a JSON object, into values by field name.

    The text `none` removes a limit. With null, the value from JupyterHub applies again instead of an admin's. Raises
    InvalidRequest, which names the invalid value.
    """
    unknown = [name for name in body if name not in Quota.model_fields]
    if unknown:
        known = ", ".join(Quota.model_fields)
        raise InvalidRequest(f"a quota has no {unknown[0]!r}{nearest(unknown[0], Quota.model_fields)}; it has {known}")
    return {name: _read(name, value) for name, value in body.items()}


def changed_by(changed: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all quota fields that admins have set for an account, after one more change.

    `changed` are the fields set before, `given` is the change as `read_changes` returned it.
    """
    after = {**changed, **{name: None if value == NONE else value for name, value in given.items()}}
    return {name: value for name, value in after.items() if not (name in given and given[name] is None)}


def in_force(given: Quota | None, changed: Mapping[str, Any]) -> Quota:
    """Return the quota that applies to an account: JupyterHub's (`given`), with admins' fields (`changed`) replaced.

    Raises InvalidRequest if its fields conflict.
    """
    try:
        return Quota.model_validate({**(given or Quota()).model_dump(), **changed})
    except ValidationError as error:
        raise InvalidRequest(_complaint(error)) from None


def spelled(name: str, quota: Quota) -> str:
    """Format the field `name` of a quota as users write it: `8`, `500/7d`, `500GB`, `none`."""
    value = getattr(quota, name)
    if value is None:
        return NONE
    if name == "storage":
        return size_word(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def changes_text(before: Quota, after: Quota) -> str:
    """Describe how a quota changes, as `limit 8 -> 16, weight 1 -> 2`; "" if nothing changes."""
    names = (name for name in Quota.model_fields if getattr(before, name) != getattr(after, name))
    return ", ".join(f"{label(name)} {spelled(name, before)} -> {spelled(name, after)}" for name in names)


def label(name: str) -> str:
    """Return the display name of a field of Quota: `slot-hours` for `slot_hours`."""
    return name.replace("_", "-")


def _read(name: str, value: Any) -> Any:
    if value is None:
        return None
    if value == NONE:
        if name not in _LIMITS:
            raise InvalidRequest(f"{label(name)} none: it is a number; leave it out to have the hub's, or clear it")
        return NONE
    if name == "slot_hours":
        return _slot_hours(value)
    if name == "storage":
        return _storage(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN
        raise InvalidRequest(f"{label(name)} {str(value)[:100]}: must be a number")
    if abs(value) > MOST:
        raise InvalidRequest(f"{label(name)} {str(value)[:100]}: must be at most {MOST:,}")
    if name in _WHOLE and value != int(value):
        raise InvalidRequest(f"{label(name)} {value}: must be a whole number")
    read = int(value) if name in _WHOLE else float(value)
    try:
        Quota.model_validate({name: read, **({"limit": read} if name == "guarantee" else {})})
    except ValidationError as error:
        raise InvalidRequest(f"{label(name)} {value:g}: {_complaint(error)}") from None
    return read


def _slot_hours(value: Any) -> dict[str, float]:
    try:
        read = parse_slot_hours(value) if isinstance(value, str) else SlotHours.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(
            f"slot-hours {str(value)[:100]}: {_complaint(error)}; write 500/7d, 40/12h or 2000/4w"
        ) from None
    if not (read.hours <= MOST and read.window <= MOST * 3600.0):
        raise InvalidRequest(f"slot-hours {read}: must be at most {MOST:,} hours, in a window of at most as many")
    return {"hours": read.hours, "window": read.window}


def _storage(value: Any) -> int:
    try:
        read = parse_size(value) if isinstance(value, str) else value
    except InvalidRequest:
        read = None
    if isinstance(read, bool) or not isinstance(read, int) or not 0 < read < LARGEST:
        raise InvalidRequest(f"storage {str(value)[:100]}: must be a size such as 200MB, 500GB or 2TB")
    return read


def _complaint(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    limits = found.get("ctx", {})
    if "ge" in limits or "gt" in limits:
        return f"must be {'at least' if 'ge' in limits else 'greater than'} {limits.get('ge', limits.get('gt')):g}"
    return str(found["msg"]).removeprefix("Value error, ")
