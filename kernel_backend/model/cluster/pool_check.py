"""Define the request to check a pool, and the findings of the check."""

from __future__ import annotations

from pydantic import Field

from kernel_backend.model.record import Record


class PoolCheckRequest(Record):
    """Request to check a pool with the interpreter that trainings of the caller would use."""

    python: str = Field("", max_length=4096)  # path of the interpreter; "": that of the service
    data: str = Field("", max_length=4096)  # URL of remote data that the nodes read; "": none


class PoolFinding(Record):
    """Result of one check of a pool; `todo` says how to fix a problem, and is empty if there is none."""

    name: str
    ok: bool
    says: str
    todo: str = ""


class PoolCheck(Record):
    """Findings about a pool, in the order of the checks: a later check may depend on earlier ones."""

    pool: str
    findings: tuple[PoolFinding, ...]
