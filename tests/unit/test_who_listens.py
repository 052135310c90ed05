"""A token goes to a port of this machine only where its own Unix user listens there."""

from __future__ import annotations

import os
import socket

import pytest

from kernel_backend.discovery import Address, listening
from kernel_backend.errors import ServiceUnreachable

FAMILIES = [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")]


@pytest.mark.parametrize(("family", "host", "written"), FAMILIES, ids=["IPv4", "IPv6"])
def test_only_the_user_who_is_meant_is_told(family: socket.AddressFamily, host: str, written: str):
    with socket.socket(family) as taken:
        try:
            taken.bind((host, 0))
        except OSError:
            pytest.skip(f"{host} is no address of this machine")
        url = f"http://{written}:{taken.getsockname()[1]}/services/daylight"
        with pytest.raises(ServiceUnreachable, match="listens a process of nobody, and not the service of user"):
            listening(url, "secret", os.getuid())  # bound, and nothing more
        taken.listen()
        assert listening(url, "secret", os.getuid()) == Address(url, "secret")
        with pytest.raises(ServiceUnreachable, match=rf"a process of user {os.getuid()}, and not .* 4711"):
            listening(url, "secret", 4711)
