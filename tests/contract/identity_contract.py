"""Contract of an identity provider for many users: its tests apply to a real hub and to the fake one."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import pytest

from kernel_backend.errors import Forbidden, ServiceUnreachable
from kernel_backend.identity.base import Identity
from kernel_backend.model.cluster.people import Person


class Site(Protocol):
    """Site with users (dave of group vision, eve of speech, the admin ada), and methods that change them."""

    identity: Identity

    def run(self, work: Awaitable[Person | None]) -> Person | None: ...
    def token(self, name: str) -> str: ...
    def bar(self, name: str) -> str: ...
    def revoke(self, name: str) -> None: ...
    def leave(self) -> None: ...
    def come_back(self) -> None: ...


class IdentityContract:
    def test_a_token_is_its_person_with_groups_and_rights(self, site: Site) -> None:
        dave, ada = self.who(site, "dave"), self.who(site, "ada")
        assert dave is not None
        assert (dave.name, dave.admin, dave.submits) == ("dave", False, True)
        assert dave.group == "vision"
        assert ada is not None
        assert ada.admin
        assert ada.submits

    @pytest.mark.parametrize("token", ["", "nobody's", "é" * 40, "a\nb", "x" * 10_000])
    def test_any_other_token_is_nobodys(self, site: Site, token: str) -> None:
        assert site.run(site.identity.who(token)) is None
        assert site.run(site.identity.who(token, remembered=True)) is None

    def test_a_token_for_other_things_is_refused_with_a_reason(self, site: Site) -> None:
        token = site.bar("eve")
        with pytest.raises(Forbidden, match="eve may not use Daylight"):
            site.run(site.identity.who(token))

    def test_a_revoked_token_is_nobodys(self, site: Site) -> None:
        assert self.who(site, "danielle") is not None
        site.revoke("danielle")
        assert self.who(site, "danielle") is None

    def test_while_it_cannot_ask_it_knows_whom_it_knew_for_looking_alone(self, site: Site) -> None:
        dave, token = self.who(site, "dave"), site.token("dave")
        site.leave()
        try:
            assert site.run(site.identity.who(token, remembered=True)) == dave
            for remembered, asked in ((False, token), (True, "nobody's"), (False, "nobody's")):
                with pytest.raises(ServiceUnreachable, match="the hub does not answer"):
                    site.run(site.identity.who(asked, remembered=remembered))
        finally:
            site.come_back()
        assert self.who(site, "dave") == dave

    def who(self, site: Site, name: str, *, remembered: bool = False) -> Person | None:
        return site.run(site.identity.who(site.token(name), remembered=remembered))
