"""Test that the fake identity provider of the API tests fulfils the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from kernel_backend.model.cluster.people import Person
from tests.api.people import FakeHub
from tests.contract.identity_contract import IdentityContract


class FakeSite:
    def __init__(self) -> None:
        self.identity = FakeHub()

    def run(self, work: Awaitable[Person | None]) -> Person | None:
        async def awaited() -> Person | None:
            return await work

        return asyncio.run(awaited())

    def token(self, name: str) -> str:
        return name

    def bar(self, name: str) -> str:
        self.identity.barred.add(name)
        return name

    def revoke(self, name: str) -> None:
        del self.identity.people[name]

    def leave(self) -> None:
        self.identity.away = True

    def come_back(self) -> None:
        self.identity.away = False


class TestFakeHub(IdentityContract):
    @pytest.fixture
    def site(self) -> FakeSite:
        return FakeSite()
