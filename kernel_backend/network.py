"""List this machine's network devices, and recognise loopback addresses."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from kernel_backend.model.launch.nodes import Device


def network_devices() -> tuple[Device, ...]:
    """Return the IPv4 addresses of the network devices that are up; loopback, which every node has, comes last."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    found = [
        Device(name, each.address)
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if name in up and each.family is socket.AF_INET
    ]
    return tuple(sorted(found, key=lambda device: device.address.startswith("127.")))


def device_of(address: str) -> str | None:
    """Return the name of the network device with this address; None if there is none."""
    return next((device.name for device in network_devices() if device.address == address), None)


def is_loopback(host: str) -> bool:
    """Return True if `host` is an IP address that only this machine reaches, such as 127.0.0.1; False for a name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
