"""Test the address at which launchers on other nodes reach the service."""

from __future__ import annotations

import pytest
from traitlets import TraitError

from kernel_backend.app import Daylight


@pytest.mark.parametrize("given", ["10.0.0.1", "10.0.0.1:7070", "0.0.0.0", "daylight.daylight.svc:7070", "head:1"])
def test_an_address_or_a_name_with_a_port_is_taken(given: str):
    assert Daylight(launchers=given).launchers == given


@pytest.mark.parametrize("given", ["daylight.daylight.svc", "10.0.0:7070", "a b:7070", "head:0", "head:x", "::1"])
def test_others_are_refused(given: str):
    with pytest.raises(TraitError, match="an IPv4 address of this machine, such as"):
        Daylight(launchers=given)
