"""Many people, whom JupyterHub knows: a token is one of the hub's, and its scopes are a person's rights."""

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

SUBMIT, ADMIN = "custom:daylight:submit", "custom:daylight:admin"
HUB_S = 10.0  # that the hub may take to answer
MOST = 20_000  # tokens that are remembered

_TOKEN = re.compile(r"[!-~]{1,500}")


class HubIdentity:
    """Asks the hub, and takes its answer for as long as `auth.cache_max_age` says: so soon a revocation bites.

    While the hub is away whoever was known when it went may go on looking.
    """

    def __init__(self, auth: HubAuth) -> None:
        self._auth = auth
        self._known: dict[str, Person] = {}  # by digest of the token: the last that the hub has said, however long ago

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        """Whose token this is; None for nobody's. Raises Forbidden for one that may not use this service."""
        if not _TOKEN.fullmatch(token):
            return None  # the hub need not be asked, and would not understand
        return await self.judged(token, self._auth.user_for_token(token, sync=False), remembered)

    async def judged(self, token: str, asking: Awaitable[dict[str, Any] | None], remembered: bool) -> Person | None:
        """Whom `asking` the hub about a token finds; raises Forbidden, and ServiceUnreachable while the hub is away."""
        key = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        try:
            model = await asyncio.wait_for(asking, HUB_S)
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
        if model.get("kind") == "service":  # it shall not be taken for a user of the same name
            return Person(name=f"service:{model['name']}", admin=admin, submits=submits)
        return Person(name=model["name"], groups=tuple(model.get("groups", ())), admin=admin, submits=submits)
