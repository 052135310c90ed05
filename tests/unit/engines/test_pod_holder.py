"""Test what the holder in a pod does when the service does not answer, and that it ends every process of a gang."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_backend.engines.allocations.holder import Holder
from kernel_backend.engines.kubernetes import holder as module
from kernel_backend.engines.kubernetes.holder import ServiceChannel, hold
from kernel_backend.errors import ServiceUnreachable, Unauthenticated
from kernel_backend.model.launch.holder import HolderCredentials, HolderOrders, HolderReport

# A holder of its own, since it ends all descendants of its process.
PROGRAM = """
import sys, time
from kernel_backend.engines.kubernetes.holder import ChildSteps
steps = ChildSteps()
steps.start({"command": [sys.executable, "-c", sys.argv[1]], "cwd": "/", "environment": {}})
exec(sys.argv[2])
while (code := steps.poll()) is None:
    time.sleep(0.05)
print(code)
"""
BUSY = "import signal, sys, time; time.sleep(0.3); signal.signal(signal.SIGURG, lambda *_: sys.exit(7)); time.sleep(60)"
ORPHAN = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"


def run(launcher: str, does: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, launcher, does]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("does", ["steps.release()", "steps.leaving = 'Kubernetes ends its pod'"])
def test_a_launcher_is_asked_to_exit_until_it_handles_that(does):
    assert run(BUSY, does) == ["7"]


def test_a_gang_has_ended_once_none_of_its_processes_is_left():
    pid, code = run(ORPHAN, "")
    assert code == "0"
    assert subprocess.run(["kill", "-0", pid], check=False, capture_output=True).returncode != 0


def channel(monkeypatch: pytest.MonkeyPatch, answer: Any) -> ServiceChannel:
    """Return a channel to a service that answers so: by an error, or without orders."""

    def report(allocation: str, token: str, told: HolderReport) -> HolderOrders:
        if isinstance(answer, Exception):
            raise answer
        return HolderOrders()

    monkeypatch.setattr(module, "client_of", lambda *_: SimpleNamespace(holder_report=report))
    credentials = HolderCredentials(allocation="7-5f3a9c", token="t", urls=(), idle=60.0, seconds=3600.0)
    return ServiceChannel(credentials, 0)


def test_a_holder_that_no_service_hears_ends_with_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(module, "UNHEARD_S", 0.0)
    found = channel(monkeypatch, ServiceUnreachable("no address of the service can be reached"))
    steps: Any = SimpleNamespace(leaving="", poll=lambda: None)
    holder = Holder(found, steps, idle=0.0)
    holder.begin()
    with pytest.raises(SystemExit, match="the service does not hear that: no address of the service can be reached"):
        hold(holder, found, steps, 3600.0)


@pytest.mark.parametrize("answer", [Unauthenticated("no valid token"), None])
def test_a_holder_that_was_answered_ends_without_an_error(monkeypatch, answer):
    monkeypatch.setattr(module, "UNHEARD_S", 0.0)
    found = channel(monkeypatch, answer)
    steps: Any = SimpleNamespace(leaving="", poll=lambda: None)
    holder = Holder(found, steps, idle=0.0)
    holder.begin()
    hold(holder, found, steps, 3600.0)
    assert holder.closing == "no trial wanted it for 0 s"


def test_events_that_cannot_be_reported_are_named_once(monkeypatch, capsys):
    holder = Holder(channel(monkeypatch, ServiceUnreachable("nobody answers")), SimpleNamespace(), idle=60.0)
    holder.begin()
    for _ in range(3):
        assert holder.turn()
    assert capsys.readouterr().out == "the events of the allocation cannot be stored now: nobody answers\n"
