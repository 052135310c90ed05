"""Classify requests that the API server refuses: may they succeed later, and what must be changed? Pure functions."""

from __future__ import annotations

import re
from typing import Literal

from kernel_backend.engines.kubernetes.quantities import quantity
from kernel_backend.errors import DaylightError

# later: the same request may succeed without a change of the pool; never: only after one.
When = Literal["later", "never"]
_QUOTA = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>.*), used: (?P<used>.*), limited: (?P<most>.*)"
)


class Refused(DaylightError):
    """Error: the API server refuses a request; it has the server's message, HTTP status and reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def when(error: Refused) -> When:
    """Return `later` if a refused request may be accepted later, `never` if the pool or the gang must change first.

    `later` includes refusals that others can end without a change in Daylight: missing rights, namespace or service
    account, and a quota that is used up.

    Examples
    --------
    >>> when(Refused(403, "Forbidden", "exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4"))
    'later'
    >>> when(Refused(403, "Forbidden", "exceeded quota: q, requested: pods=8, used: pods=0, limited: pods=4"))
    'never'
    """
    if error.status in (401, 404, 409, 410, 429) or error.status >= 500:
        return "later"
    if error.status != 403:
        return "never"
    if "exceeded quota" in error.message:
        return "never" if _above(error.message) else "later"
    missing = "cannot" in error.message and "resource" in error.message
    account = "error looking up service account" in error.message
    ending = "being terminated" in error.message
    return "later" if missing or account or ending else "never"


def waits(error: Refused) -> str:
    """Return a text for users on why a gang waits: the quota that is used up, or else the API server's message.

    An example is `Kubernetes: quota gpus of the namespace: requests.nvidia.com/gpu 8 of 8 in use, 2 more wanted`.
    """
    found = _QUOTA.search(error.message)
    if found is None:
        return f"Kubernetes: {error.message}"
    used, most, asked = _amounts(found["used"]), _amounts(found["most"]), _amounts(found["asked"])
    parts = [
        f"{name} {used.get(name, '0')} of {most[name]} in use, {asked.get(name, '?')} more wanted" for name in most
    ]
    return f"Kubernetes: quota {found['name']} of the namespace: {'; '.join(parts)}"


def advice(error: Refused) -> str:
    """Return advice for users on what to change so that the refused request is accepted."""
    text = error.message
    for status, words, what in (
        (401, "", "log in to the cluster again: `kubectl get pods` shows whether that helped"),
        (403, "exceeded quota", "request fewer slots, or have the namespace's ResourceQuota raised"),
        (403, "must specify", "set `memory_per_slot` of the pool: the namespace's quota wants a limit of memory"),
        (403, "service account", "create it, or change `service_account` of the pool"),
        (403, "cannot", "have an admin grant that right: the guide about Kubernetes has a Role with all that is used"),
        (403, "PodSecurity", "use a namespace that permits such pods"),
        (403, "PriorityClass", "change `priority_class` of the pool"),
        (404, "namespaces", "create the namespace, or change `namespace` of the pool"),
        (422, "image", "change `image` of the pool"),
    ):
        if status == error.status and words in text:
            return what
    return "change the settings of the pool, or request fewer slots"


def _above(message: str) -> bool:
    """Return whether a request exceeds a quota's limit even when nothing else uses the quota.

    `message` is the API server's refusal.
    """
    found = _QUOTA.search(message)
    if found is None:
        return False
    asked, most = _amounts(found["asked"]), _amounts(found["most"])
    return any(quantity(asked[name]) > quantity(limit) for name, limit in most.items() if name in asked)


def _amounts(text: str) -> dict[str, str]:
    """Return the amounts, by resource, in a text such as `pods=4,requests.nvidia.com/gpu=8`."""
    return dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
