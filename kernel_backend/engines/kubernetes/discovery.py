"""Find out whether a cluster has APIs that start a gang's pods together, and whether the service may use them."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from kernel_backend.engines.kubernetes.admission import KUBERNETES, KUEUE, PLUGINS, PODGROUPS, WORKLOADS
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.refusals import Refused

KNOWN_S = 600.0  # for which an answer is kept, since admins install such things rarely
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}


class Admission(NamedTuple):
    """Versions of a cluster's APIs that start a gang's pods together; "" for each API that the cluster lacks.

    An example is `scheduling.x-k8s.io/v1alpha1`.
    """

    podgroups: str = ""
    forbidden: str = ""  # the API of PodGroups that there is, and that the service may not use
    workloads: str = ""  # of Kueue


class Discovery:
    """Cache of the versions of a cluster's APIs that start a gang's pods together."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._found, self._asked_at = Admission(), 0.0

    async def newest(self) -> Admission:
        """Return the API versions, found at most ten minutes ago; raise EngineUnavailable or Refused."""
        if not self._asked_at or time.monotonic() > self._asked_at + KNOWN_S:
            self._found, self._asked_at = await self._ask(), time.monotonic()
        return self._found

    async def _ask(self) -> Admission:
        workloads = await self._version(KUEUE, WORKLOADS)
        for group in (KUBERNETES, PLUGINS):
            if found := await self._version(group, PODGROUPS):
                if await may(self._api, "create", PODGROUPS, group):
                    return Admission(found, workloads=workloads)
                return Admission(forbidden=found, workloads=workloads)
        return Admission(workloads=workloads)

    async def _version(self, group: str, resource: str) -> str:
        """Return a version of an API group in which this resource exists; "" if there is none.

        The server's preferred version comes first.
        """
        about = await self._optional(f"/apis/{group}")
        listed = [each["groupVersion"] for each in about.get("versions", [])]
        preferred = about.get("preferredVersion", {}).get("groupVersion", "")
        for version in sorted(listed, key=lambda each: each != preferred):
            resources = (await self._optional(f"/apis/{version}")).get("resources", [])
            if any(each["name"] == resource for each in resources):
                return str(version)
        return ""

    async def _optional(self, path: str) -> dict[str, Any]:
        """Return the object at a path of the API server; {} if it does not exist or may not be read."""
        try:
            return await self._api.get(path)
        except Refused as error:
            if error.status not in (403, 404):
                raise
            return {}


async def may(api: Api, verb: str, resource: str, group: str = "") -> bool:
    """Return whether the service may do `verb` (such as `create`) with a resource in its namespace.

    `group` is the API group of the resource, "" for the core group.
    """
    attributes = {"namespace": await api.namespace(), "verb": verb, "resource": resource, "group": group}
    answer = await api.create(REVIEWS, {**_REVIEW, "spec": {"resourceAttributes": attributes}})
    return bool(answer.get("status", {}).get("allowed"))
