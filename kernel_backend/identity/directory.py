"""Users and groups as the hub's API tells them."""

from __future__ import annotations

from kernel_backend.identity.hub_api import HubApi
from kernel_backend.model.cluster.directory import Directory, directory

NEEDS = "list:users read:users list:groups read:groups"


class HubDirectory:
    """Reads with the service's own token, whose role has the scopes `list:users` and `list:groups`."""

    def __init__(self, api: HubApi) -> None:
        self._api = api

    async def read(self) -> Directory:
        """All of it as it is now; raises ServiceUnreachable where the hub does not answer, or refuses."""
        return directory(await self._api.all("users", NEEDS), await self._api.all("groups", NEEDS))
