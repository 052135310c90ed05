"""Read users and groups from the hub's API."""

from __future__ import annotations

from kernel_backend.identity.hub_api import HubApi
from kernel_backend.model.cluster.directory import Directory, directory

NEEDS = "list:users read:users list:groups read:groups"


class HubDirectory:
    """Reader of the hub's users and groups; the service's token needs the scopes `list:users` and `list:groups`."""

    def __init__(self, api: HubApi) -> None:
        self._api = api

    async def read(self) -> Directory:
        """Return all users and groups; raises ServiceUnreachable if the hub does not answer or refuses the request."""
        return directory(await self._api.all("users", NEEDS), await self._api.all("groups", NEEDS))
