"""Test the pool of experiments that name none: this machine, the admin's default, or the user's own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.cli import main
from kernel_backend.errors import InvalidRequest
from tests.api.served import SECOND, Served, StillEngine, submit
from tests.api.test_either_pool import first
from tests.api.test_pool_verbs import named
from tests.support.world import until


def test_what_names_no_pool_trains_in_the_default_pool(two_pools: Any):
    served, client = two_pools(default_pool="second")
    submit(client, "none", slots=2)
    submit(client, "here", slots=2, pool="local")
    until(lambda: first(1) in served.others["second"].jobs and first(2) in served.engine.jobs, "both begin")
    assert client.experiment(1).experiment.config.pool == "second"
    assert [(each.name, each.default) for each in client.pools()] == [("local", False), ("second", True)]


def test_without_a_default_pool_it_is_this_machine(two_pools: Any):
    _, client = two_pools()
    assert submit(client).experiment.config.pool is None
    assert [(each.name, each.default) for each in client.pools()] == [("local", True), ("second", False)]


def test_a_default_pool_that_there_is_not_is_told_at_the_start_and_to_who_submits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.ERROR):
        served = Served(tmp_path, StillEngine(), default_pool="secnd", configured_in="/etc/daylight.py")
    client = served.client()
    try:
        assert "default_pool in /etc/daylight.py: there is no pool secnd" in caplog.text
        with pytest.raises(InvalidRequest, match=r"default_pool in /etc/daylight.py: there is no pool secnd; name a"):
            submit(client)
        assert submit(client, pool="local").experiment.number == 1
        wrong = named(client, "secnd")
        assert wrong.default
        assert wrong.problem == "there is no such pool; default_pool in /etc/daylight.py names it"
        client.set_pool("secnd", SECOND)
        until(lambda: named(client, "secnd").slots == 2, "an admin has added it")
        assert submit(client).experiment.config.pool == "secnd"
    finally:
        client.close()
        served.stop()


def test_a_users_own_default_is_a_variable(service: Served, file: Path, monkeypatch: pytest.MonkeyPatch):
    client = service.client()
    client.set_pool("second", SECOND)
    until(lambda: named(client, "second").slots, "its node is seen")
    monkeypatch.setenv("DAYLIGHT_POOL", "second,local")
    assert main(["submit", str(file), "--quiet"]) == 0
    assert main(["submit", str(file), "--quiet", "--pool", "local", "--again"]) == 0
    assert [client.experiment(number).experiment.config.pool for number in (1, 2)] == ["second,local", "local"]
    client.close()
