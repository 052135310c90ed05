"""Users and groups as the hub's API tells them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from jupyterhub.services.auth import HubAuth
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from kernel_backend.errors import ServiceUnreachable
from kernel_backend.model.directory import Directory, directory

PAGE = 200  # rows at once: the most that hubs give by default
ANSWER_S = 20.0


class HubDirectory:
    """Reads with the service's own token, whose role has the scopes `list:users` and `list:groups`."""

    def __init__(self, auth: HubAuth) -> None:
        self._auth = auth

    async def read(self) -> Directory:
        """All of it as it is now; raises ServiceUnreachable where the hub does not answer, or refuses."""
        return directory(await self._all("users"), await self._all("groups"))

    async def _all(self, what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            answer = await self._get(f"{what}?{urlencode({'offset': len(found), 'limit': PAGE})}")
            found += answer["items"]
            if not answer["items"] or answer["_pagination"]["next"] is None:
                return found

    async def _get(self, path: str) -> dict[str, Any]:
        request = HTTPRequest(
            f"{self._auth.api_url.rstrip('/')}/{path}",
            headers={
                "Authorization": f"Bearer {self._auth.api_token}",
                "Accept": "application/jupyterhub-pagination+json",
            },
            request_timeout=ANSWER_S,
            client_cert=self._auth.certfile or None,
            client_key=self._auth.keyfile or None,
            ca_certs=self._auth.client_ca or None,
        )
        try:
            answer = await AsyncHTTPClient().fetch(request)
        except HTTPClientError as error:
            scopes = "list:users read:users list:groups read:groups"
            hint = f" (the role of the service needs {scopes})" if error.code == 403 else ""
            raise ServiceUnreachable(f"the hub answers {error.code} {error.message} to {path}{hint}") from error
        except OSError as error:
            raise ServiceUnreachable(f"the hub does not answer at {self._auth.api_url}: {error}") from error
        read: dict[str, Any] = json.loads(answer.body)
        return read
