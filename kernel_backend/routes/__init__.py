"""List the service's routes, and which of them the Jupyter server forwards for Daylight's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_backend.routes.attempts import ATTEMPTS
from kernel_backend.routes.cluster import CLUSTER
from kernel_backend.routes.experiments import EXPERIMENTS
from kernel_backend.routes.operations import Endpoint, Operation

ENDPOINTS: tuple[Endpoint, ...] = (*EXPERIMENTS, *ATTEMPTS, *CLUSTER)


def is_repeatable(method: str, path: str) -> bool:
    """Return True if a client may repeat a request whose reply was lost.

    This holds for all requests except POSTs that are not idempotent.
    """
    return method != "POST" or any(operation.again for operation in _posts(path))


def takes_id(method: str, path: str) -> bool:
    """Return True if a client may repeat a request once it has given it an id (`versions.REQUEST`)."""
    return method == "POST" and any(operation.by_id for operation in _posts(path))


def _posts(path: str) -> Iterator[Operation]:
    posts = ((each.pattern, each.operations["POST"]) for each in ENDPOINTS if "POST" in each.operations)
    return (operation for pattern, operation in posts if re.fullmatch(pattern, path))
