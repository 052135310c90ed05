"""Test that the identity provider over a real hub fulfils the contract."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator

import pytest

pytest.importorskip("jupyterhub", reason="daylight[hub] is not installed")

from jupyterhub.services.auth import HubAuth

from kernel_backend.identity.hub import HubIdentity
from kernel_backend.model.cluster.people import Person
from tests.contract.identity_contract import IdentityContract
from tests.hub.hub import Hub


class HubSite:
    """Site over a real hub; its tokens are created for a test and then revoked."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._auth = HubAuth(
            api_url=hub.api_url,
            api_token="unused",
            access_scopes={"access:services!service=daylight"},
            cache_max_age=30,
        )
        self.identity = HubIdentity(self._auth)
        self._made: dict[str, dict[str, str]] = {}

    def run(self, work: Awaitable[Person | None]) -> Person | None:
        async def awaited() -> Person | None:
            return await work

        return asyncio.run(awaited())

    def token(self, name: str) -> str:
        if name not in self._made:
            self._made[name] = self._hub.api("POST", f"users/{name}/tokens", note="contract")
        return self._made[name]["token"]

    def bar(self, name: str) -> str:
        scopes = [f"read:users!user={name}"]
        self._made["barred"] = self._hub.api("POST", f"users/{name}/tokens", note="contract", scopes=scopes)
        return self._made["barred"]["token"]

    def revoke(self, name: str) -> None:
        made = self._made[name]
        self._hub.api("DELETE", f"users/{made['user']}/tokens/{made['id']}")
        self._age()

    def leave(self) -> None:
        self._auth.api_url = "http://127.0.0.1:9/hub/api"
        self._age()

    def come_back(self) -> None:
        self._auth.api_url = self._hub.api_url

    def close(self) -> None:
        for made in self._made.values():
            with contextlib.suppress(AssertionError):
                self._hub.api("DELETE", f"users/{made['user']}/tokens/{made['id']}")

    def _age(self) -> None:
        self._auth.cache.clear()


class TestHubIdentity(IdentityContract):
    @pytest.fixture
    def site(self, hub: Hub) -> Iterator[HubSite]:
        site = HubSite(hub)
        yield site
        site.close()
