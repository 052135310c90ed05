"""Test the look-up of the process at the other end of a connection, by netlink and by the tables of /proc."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from types import ModuleType

import pytest

from kernel_backend.errors import ServiceUnreachable
from kernel_backend.peers import check_connection, check_listener, netlink, proc, user_of
from kernel_backend.peers.end import ConnectionEnd, FoundSocket

ME, ANOTHER = os.getuid(), 4711
# Where a server listens, and where a client reaches it.
PLACES = {
    "IPv4": (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    "another loopback": (socket.AF_INET, "127.0.0.2", "127.0.0.2"),
    "all of IPv4": (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
    "IPv6": (socket.AF_INET6, "::1", "::1"),
    "IPv4 within IPv6": (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
    "all, by IPv6": (socket.AF_INET6, "::", "::1"),
    "all, by IPv4": (socket.AF_INET6, "::", "127.0.0.1"),
}


@pytest.fixture(params=[netlink, proc], ids=["netlink", "proc"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Select the way of the look-up: /proc serves kernels without the netlink protocol."""
    if request.param is proc:

        def silent(*_: object) -> None:
            raise OSError("no such protocol")

        monkeypatch.setattr(netlink, "look", silent)
    return request.param


@pytest.fixture(params=PLACES.values(), ids=PLACES.keys())
def bound(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, ConnectionEnd]]:
    """Provide a bound socket that does not listen yet, and its address."""
    family, host, target = request.param
    with socket.socket(family) as made:
        try:
            made.bind((host, 0))
        except OSError:
            pytest.skip(f"{host} is no address of this machine")
        yield made, ConnectionEnd(ip_address(target), made.getsockname()[1])


def test_a_port_is_its_listeners(bound: tuple[socket.socket, ConnectionEnd]) -> None:
    made, where = bound
    with pytest.raises(ConnectionRefusedError, match="no service listens at"):
        check_listener(where, {ME})  # bound, and nothing more
    made.listen()
    check_listener(where, {ME})
    with pytest.raises(
        ServiceUnreachable, match=rf"at .*:{where.port} listens a process of user {ME}, and not .* 4711"
    ):
        check_listener(where, {ANOTHER})


def test_a_connection_is_its_other_ends_before_it_is_accepted_and_after(
    bound: tuple[socket.socket, ConnectionEnd],
) -> None:
    made, where = bound
    made.listen()
    with socket.create_connection((str(where.address), where.port)) as client:
        _is_mine(client)
        accepted, _ = made.accept()
        with accepted:
            _is_mine(client)
            assert user_of(accepted) == user_of(client) == ME
            client.close()
            assert user_of(accepted) is None


def _is_mine(client: socket.socket) -> None:
    check_connection(client, {ME})
    with pytest.raises(ServiceUnreachable, match=f"a process of user {ME}, and not .* {ANOTHER}"):
        check_connection(client, {ANOTHER})


def test_a_listener_at_another_address_of_the_port_does_not_count() -> None:
    with socket.socket() as mine, socket.create_server(("127.0.0.2", 0)) as other:
        mine.bind(("127.0.0.1", other.getsockname()[1]))
        with pytest.raises(ConnectionRefusedError):
            check_listener(ConnectionEnd.of(mine.getsockname()), {ME})
        mine.listen()
        check_listener(ConnectionEnd.of(mine.getsockname()), {ME})


def test_other_machines_are_not_looked_at() -> None:
    check_listener(ConnectionEnd(ip_address("192.0.2.254"), 9), {ANOTHER})  # TEST-NET-1: nobody's


def test_a_socket_is_found_by_both_of_its_ends(bound: tuple[socket.socket, ConnectionEnd], way: ModuleType) -> None:
    made, where = bound
    made.listen()
    with socket.create_connection((str(where.address), where.port)) as client:
        here = ConnectionEnd.of(client.getsockname())
        assert not way.look(where, here).held  # it is not accepted yet
        assert way.look(here, where) == FoundSocket(ME, held=True)
        assert way.look(where, ConnectionEnd(here.address, 0)) == FoundSocket(ME, held=True)
        assert way.look(ConnectionEnd(where.address, 1), here) is None
