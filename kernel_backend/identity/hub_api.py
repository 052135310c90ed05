"""Call the hub's REST API with the service's own token."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from jupyterhub.services.auth import HubAuth
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse

from kernel_backend.errors import ServiceUnreachable

PAGE = 200  # rows per request: the default maximum of hubs
ANSWER_S = 20.0


class HubApi:
    """Client of the hub's REST API; its methods raise ServiceUnreachable if the hub does not answer or refuses."""

    def __init__(self, auth: HubAuth) -> None:
        self._auth = auth

    async def all(self, what: str, needs: str, **query: str) -> list[dict[str, Any]]:
        """Return all rows of the hub's list `users` or `groups`, as `what` says, fetched page by page.

        `needs` names the scopes that this requires, for error messages.
        """
        found: list[dict[str, Any]] = []
        while True:
            page = urlencode({**query, "offset": len(found), "limit": PAGE})
            body = (await self.ask("GET", f"{what}?{page}", needs)).body
            try:
                answer = json.loads(body)
                found += answer["items"]
                if not answer["items"] or answer["_pagination"]["next"] is None:
                    return found
            except (KeyError, TypeError, ValueError) as error:
                raise ServiceUnreachable(f"the hub answers what is no list of {what}: {body[:100]!r}") from error

    async def ask(self, method: str, path: str, needs: str) -> HTTPResponse:
        """Send a request to the hub and return the response; raises ServiceUnreachable unless it succeeds.

        `needs` names the scopes that it requires, for the error message.
        """
        request = HTTPRequest(
            f"{self._auth.api_url.rstrip('/')}/{path}",
            method=method,
            headers={
                "Authorization": f"Bearer {self._auth.api_token}",
                "Accept": "application/jupyterhub-pagination+json",
            },
            request_timeout=ANSWER_S,
            follow_redirects=False,  # the token must not be sent to another address
            client_cert=self._auth.certfile or None,
            client_key=self._auth.keyfile or None,
            ca_certs=self._auth.client_ca or None,
        )
        try:
            return await AsyncHTTPClient().fetch(request)
        except HTTPClientError as error:
            hint = f" (the role of the service needs {needs})" if error.code == 403 else ""
            raise ServiceUnreachable(f"the hub answers {error.code} {error.message} to {path}{hint}") from error
        except OSError as error:
            raise ServiceUnreachable(f"the hub does not answer at {self._auth.api_url}: {error}") from error
