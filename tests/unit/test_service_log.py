"""Test that the service's log is truncated when it is large, and that repeated messages are limited."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from kernel_backend.service_log import KINDS, Seldom, ServiceLog


@pytest.fixture
def logger() -> logging.Logger:
    """Provide a logger that passes nothing on to other loggers."""
    found = logging.Logger("tornado.application")
    found.propagate = False
    return found


def opened(path: Path) -> ServiceLog:
    """Open a service's log whose stderr is this file."""
    return ServiceLog(open(path, "a", encoding="utf-8"), path, limit=1000)  # for as long as it is used


def test_a_large_log_is_begun_anew_and_the_one_before_kept(tmp_path: Path, logger: logging.Logger) -> None:
    path = tmp_path / "service.log"
    handler = opened(path)
    logger.addHandler(handler)
    for number in range(100):
        logger.warning(f"line {number} {'.' * 100}")
    assert path.stat().st_size <= 1000 + 120
    before = (tmp_path / "service.log.1").read_text()
    assert (before + path.read_text()).splitlines()[-1].startswith("line 99")
    assert (tmp_path / "service.log.1").stat().st_mode & 0o777 == 0o600
    os.write(handler.stream.fileno(), b"a traceback\n")  # what others write to the same descriptor goes to its end
    assert path.read_text().endswith("a traceback\n")
    assert "\0" not in path.read_text()
    handler.close()


def test_a_file_that_is_not_the_services_own_is_left_alone(tmp_path: Path, logger: logging.Logger) -> None:
    hubs = tmp_path / "hub.log"
    (tmp_path / "service.log").touch()
    stream = open(hubs, "a", encoding="utf-8")  # noqa: SIM115
    handler = ServiceLog(stream, tmp_path / "service.log", limit=10)
    logger.addHandler(handler)
    for number in range(10):
        logger.warning(f"line {number}")
    assert len(hubs.read_text().splitlines()) == 10
    handler.close()


def test_what_is_said_again_and_again_is_said_a_few_times_and_then_counted(logger: logging.Logger) -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    seldom = Seldom(often=3, period_s=3600)
    handler.addFilter(seldom)
    logger.addHandler(handler)
    for number in range(1000):
        logger.error("Exception in callback %d", number, exc_info=ValueError("too many open files"))
        logger.info("Malformed HTTP message from %d", number)
    assert len(said) == 6
    seldom._period_s = 0.0  # it is over
    logger.error("Exception in callback %d", 1000)
    assert said[-1].startswith("Exception in callback 1000 (and 997 times more in the last ")


def test_what_the_service_says_of_its_own_work_is_all_said() -> None:
    ours = logging.LogRecord("kernel_backend.service", logging.INFO, "", 1, "attempt %s begins", ("1.1-1",), None)
    seldom = Seldom(often=3)
    assert all(seldom.filter(ours) for _ in range(100))


def test_warnings_that_are_never_the_same_are_not_remembered_for_ever() -> None:
    seldom = Seldom()
    for number in range(3 * KINDS):
        assert seldom.filter(logging.makeLogRecord({"name": "a", "levelno": logging.WARNING, "msg": f"kind {number}"}))
    assert len(seldom) <= KINDS
