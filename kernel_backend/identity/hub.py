"""Authenticate JupyterHub users by the hub's tokens, whose scopes grant rights in this service."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable
from typing import Any

from jupyterhub.services.auth import HubAuth
from tornado.web import HTTPError

from kernel_backend.errors import Forbidden, ServiceUnreachable
from kernel_backend.model.cluster.people import Person

SUBMIT, ADMIN, MONITOR = "custom:daylight:submit", "custom:daylight:admin", "custom:daylight:monitor"
HUB_S = 10.0  # time for the hub to answer
MOST = 20_000  # tokens in the cache

_TOKEN = re.compile(r"[!-~]{1,500}")


class HubIdentity:
    """Provider that identifies users through the hub, and caches its answers for `auth.cache_max_age` seconds.

    A revoked token therefore still works for that time. While the hub is unreachable, cached users may continue to
    read.
    """

    def __init__(self, auth: HubAuth) -> None:
        self._auth = auth
        self._known: dict[str, Person] = {}  # digest of the token -> user in the hub's last answer, however old

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        """Return the user of a token; None if it is unknown. Raises Forbidden for a token without access.

        If the hub does not answer, ServiceUnreachable is raised or, with `remembered`, the user of an earlier answer
        returned.
        """
        if not _TOKEN.fullmatch(token):
            return None  # hub tokens have another form
        return await self.verified(token, self._auth.user_for_token(token, sync=False), remembered)

    async def verified(self, token: str, answer: Awaitable[dict[str, Any] | None], remembered: bool) -> Person | None:
        """Return the user whom the hub's `answer` about a token names; None if the hub does not know the token.

        Raises Forbidden without an access scope. If the hub does not answer, ServiceUnreachable is raised or, with
        `remembered`, the user of an earlier answer about this token returned.
        """
        key = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        try:
            model = await asyncio.wait_for(answer, HUB_S)
        except (HTTPError, TimeoutError) as error:
            if remembered and key in self._known:
                return self._known[key]
            raise ServiceUnreachable(
                "the hub does not answer, so it cannot be found out who you are: what runs goes on; try again later"
            ) from error
        self._known.pop(key, None)
        if model is None:
            return None
        if not self._auth.check_scopes(self._auth.access_scopes, model):
            raise Forbidden(
                f"this token of {model['name']} may not use Daylight: it lacks the scope "
                f"{' or '.join(sorted(self._auth.access_scopes))}, which the hub's admins grant by a role"
            )
        person = self._person(model)
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[key] = person
        return person

    def _person(self, model: dict[str, Any]) -> Person:
        admin = bool(self._auth.check_scopes({ADMIN}, model))
        submits = admin or bool(self._auth.check_scopes({SUBMIT}, model))
        monitors = bool(self._auth.check_scopes({MONITOR}, model))
        if model.get("kind") == "service":  # it might have the name of a user
            return Person(name=f"service:{model['name']}", admin=admin, submits=submits, monitors=monitors)
        groups = tuple(model.get("groups", ()))
        return Person(name=model["name"], groups=groups, admin=admin, submits=submits, monitors=monitors)
