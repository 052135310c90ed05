"""Test that installed code is told from the user's by its path."""

from __future__ import annotations

import json

import pytest
import torch

from kernel_backend.installed_code import is_installed, is_of_package

PACKAGES = [
    torch.__file__,
    "/home/ada/.local/lib/python3.11/site-packages/noise.py",
    "/usr/lib/python3/dist-packages",
]
USERS = ["/home/ada/project/noise.py", "/home/ada/site-packages.py", "definition.py", "<string>"]


@pytest.mark.parametrize("path", PACKAGES)
def test_a_package_is_installed(path: str) -> None:
    assert is_of_package(path)
    assert is_installed(path)


@pytest.mark.parametrize("path", USERS)
def test_what_users_write_is_not(path: str) -> None:
    assert not is_of_package(path)
    assert not is_installed(path)


def test_the_standard_library_is_installed_but_no_package() -> None:
    assert not is_of_package(json.__file__)
    assert is_installed(json.__file__)
