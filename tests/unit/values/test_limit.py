"""Test the limit on the time that a job's values may take to be read."""

from __future__ import annotations

import signal
import threading

import pytest

from jupyter_ext.values.limit import limited
from kernel_backend.errors import InvalidRequest


def test_code_that_never_ends_is_ended_with_what_to_do():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(InvalidRequest) as refused, limited(0.05, "%dl values 4 reads them"):
        threading.Event().wait()
    assert refused.value.message == "the values were not read within 0.05 s: %dl values 4 reads them"
    assert signal.getsignal(signal.SIGALRM) is before


def test_what_ends_in_time_leaves_the_alarm_as_it_was():
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    with limited(6000, ""):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] < 3000


def test_the_time_begins_anew_when_told():
    with limited(6000, "") as again:
        signal.setitimer(signal.ITIMER_REAL, 600)  # as if much of it had gone by
        again()
        left, _ = signal.getitimer(signal.ITIMER_REAL)
    assert left > 600


def test_another_thread_has_no_limit():
    found, before = [], signal.getsignal(signal.SIGALRM)

    def read() -> None:
        with limited(600, ""):
            found.append(signal.getsignal(signal.SIGALRM))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert found == [before]
