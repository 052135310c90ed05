"""Run as a JupyterHub service: listen where the hub expects it, authenticate its users, and read quotas of groups."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from jupyterhub.services.auth import HubOAuth
from pydantic import ValidationError
from tornado.web import RequestHandler

from kernel_backend.discovery import write_private
from kernel_backend.errors import DaylightError, InvalidRequest, ServiceUnreachable
from kernel_backend.identity.browsers import HubBrowsers
from kernel_backend.identity.directory import HubDirectory
from kernel_backend.identity.hub import HubIdentity
from kernel_backend.identity.hub_api import HubApi
from kernel_backend.identity.servers import HubServers
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.servers import Server

READ_S = 30.0  # between reads of the hub's users and groups
SERVERS_S = 10.0  # between reads of its notebook servers
SECRETS = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN")
FILE = "hub.json"  # file in the home with the last read users and groups

_log = logging.getLogger(__name__)


class UnderHub:
    """Connection to the JupyterHub that runs this process as a service, configured by environment variables.

    Raises InvalidRequest if this process is no service of a hub.
    """

    def __init__(self, age: int, home: Path) -> None:
        url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", ""))
        prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "")
        if not (url.hostname and url.port and prefix and os.environ.get("JUPYTERHUB_API_TOKEN")):
            raise InvalidRequest(
                "--hub: this process is no service of a JupyterHub with a url of its own: "
                "its configuration says how, with jupyter_ext.hub.daylight(c)"
            )
        self.host, self.port, self.prefix = url.hostname, url.port, prefix.rstrip("/")
        # Daylight's pages do not use the stream, and pages of notebook servers on the same host must not use it.
        auth = HubOAuth(cache_max_age=age, allow_websocket_cookie_auth=False)
        _ = auth.api_token, auth.oauth_client_id, auth.access_scopes  # read before the variables are removed
        for name in SECRETS:  # processes started from now on run users' code
            os.environ.pop(name, None)
        self.identity = HubIdentity(auth)
        self.browsers = HubBrowsers(auth, self.identity)
        api = HubApi(auth)
        self.servers = HubServers(api)
        self._directory, self._kept = HubDirectory(api), home / FILE

    @property
    def url(self) -> str:
        """Return the service's URL for launchers, which stays the same when the service restarts."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.prefix}"

    @property
    def pages(self) -> list[tuple[str, type[RequestHandler]]]:
        """Return the handler of the OAuth callback URL, to which the hub redirects browsers after login."""
        return [("/oauth_callback", self.browsers.callback())]

    async def keep_telling(self, give: Callable[[Directory], None], every: float = READ_S) -> None:
        """Read the hub's users and groups every `every` seconds, without end; pass them to `give` after each change."""
        before: Directory | None = None

        async def look() -> None:
            nonlocal before
            now = await self._directory.read()
            if now != before:
                self._tell(now, before)
                give(now)
                before = now
                await self._keep(now)

        await _again_and_again(look, "groups and quotas", every)

    async def keep_counting(self, give: Callable[[tuple[Server, ...]], None], every: float = SERVERS_S) -> None:
        """Read every `every` seconds, without end, which notebook servers run, and pass them to `give`.

        While the hub does not answer, `give` is not called.
        """

        async def look() -> None:
            give(await self.servers.read())

        await _again_and_again(look, "notebook servers", every)

    async def counted(self) -> tuple[Server, ...]:
        """Return the notebook servers that run now, so that their slots are known before the first allocation.

        Returns an empty tuple, and logs a warning, if the hub does not answer.
        """
        try:
            return await self.servers.read()
        except ServiceUnreachable as error:
            _log.warning("what notebook servers hold is not known yet: %s", error.message)
            return ()

    async def _keep(self, directory: Directory) -> None:
        try:
            await asyncio.to_thread(write_private, self._kept, json.dumps(directory.to_json()))
        except OSError as error:  # such as a full disk; the directory read from the hub is used anyway
            _log.warning("%s cannot be written: %s", self._kept, error)

    async def first(self) -> Directory:
        """Return the hub's users and groups; if the hub does not answer, those of the last copy on disk.

        Raises ServiceUnreachable if there is neither. The service must then not start: it would grant slots without any
        quota.
        """
        try:
            return await self._directory.read()
        except ServiceUnreachable:
            try:
                return Directory.model_validate_json(self._kept.read_bytes())
            except (OSError, ValidationError):
                pass
            raise

    def _tell(self, now: Directory, before: Directory | None) -> None:
        for group, complaints in now.complaints.items():
            if before is None or before.complaints.get(group) != complaints:
                for complaint in complaints:
                    _log.warning("the hub's properties of group %s: %s; it is ignored", group, complaint)


async def _again_and_again(look: Callable[[], Awaitable[None]], what: str, every: float) -> None:
    """Call `look` every `every` seconds without end; of several errors in a row, only the first is logged.

    `what` says in that message what could not be updated, such as `groups and quotas`.
    """
    failed = False
    while True:
        try:
            await look()
            failed = False
        except Exception as error:
            if not failed:
                expected = isinstance(error, DaylightError)
                _log.warning("%s stay as they are: %s", what, error, exc_info=None if expected else error)
            failed = True
        await asyncio.sleep(every)
