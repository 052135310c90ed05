"""Read notebook servers from the hub's API, and stop them."""

from __future__ import annotations

from urllib.parse import quote

from kernel_backend.identity.hub_api import HubApi
from kernel_backend.model.cluster.servers import Server, servers_of


class HubServers:
    """Client that lists and stops the hub's notebook servers.

    Needs the scopes `read:servers` and, to stop servers, `delete:servers`.
    """

    def __init__(self, api: HubApi) -> None:
        self._api = api

    async def read(self) -> tuple[Server, ...]:
        """Return the notebook servers that are running, each with the number of slots that its user has chosen.

        Raises ServiceUnreachable if the hub does not answer or refuses.
        """
        return servers_of(await self._api.all("users", "list:users read:servers", state="active"))

    async def stop(self, server: Server) -> None:
        """Request that the hub stops a server, which may take a while; raise ServiceUnreachable if the hub refuses."""
        named = f"servers/{quote(server.name, safe='')}" if server.name else "server"
        await self._api.ask("DELETE", f"users/{quote(server.owner, safe='')}/{named}", "delete:servers")
