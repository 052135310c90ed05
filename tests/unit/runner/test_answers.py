"""Test that the setup of a restarted program is answered the time and names as at its first start, and nothing else."""

from __future__ import annotations

import builtins
import datetime
import json
import os
import pickle
import socket
import socketserver
import tempfile
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from kernel_backend.runner.past import answers as room
from kernel_backend.runner.past.answers import Answers

NAMES = """
import datetime, os, secrets, socket, tempfile, time, uuid
from datetime import datetime as Moment
def names():
    return [
        time.time(), time.time_ns(), list(time.localtime()), list(time.gmtime()), time.ctime(), time.asctime(),
        time.strftime("%S %f"), str(Moment.now()), str(Moment.now(datetime.timezone.utc)), str(Moment.utcnow()),
        str(Moment.today()), str(datetime.date.today()), uuid.uuid4().hex, uuid.uuid1().hex, secrets.token_hex(8),
        next(tempfile._get_candidate_names()),
    ]
"""


def of_program(source: str, of: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the names that the source of a program defines, whose functions have builtins of their own."""
    module = {"__name__": "__main__", "__builtins__": {**vars(builtins)} if of is None else of}
    exec(source, module)
    return module


def both(source: str) -> tuple[Any, Any]:
    """Return what `names()` of a program returns at its first start and in a restart, some time later."""
    found, given = [], {}
    for replays in (False, True):
        module = of_program(source)
        answers = Answers(module["__builtins__"])
        if replays:
            answers.replay(json.loads(json.dumps(given)))  # as a checkpoint holds them
        with answers.throughout():
            found.append(module["names"]())
        given = answers.given
    return found[0], found[1]


def test_a_restarted_setup_is_answered_the_time_and_random_names_of_its_first_start():
    first, again = both(NAMES)
    assert first == again
    today = of_program(NAMES)["names"]()
    exact = [number for number in range(len(first)) if number < 2 or 7 <= number != 11]  # but seconds and the date
    assert [first[each] for each in exact if first[each] == today[each]] == []


def test_each_call_of_a_line_has_its_own_answer_and_more_calls_are_answered_as_today():
    first, again = both("import uuid\ndef names(): return [uuid.uuid4().hex for _ in range(300)]")
    assert again[: room.MOST] == first[: room.MOST]
    assert len({*first, *again}) == 2 * 300 - room.MOST


def test_a_free_port_is_that_of_the_first_start_and_another_where_it_is_taken():
    source = "import socket\ndef names():\n    a = socket.socket()\n    a.bind(('127.0.0.1', 0))\n    return a"
    module, opened = of_program(source), []
    first, again, third = (Answers(module["__builtins__"]) for _ in range(3))
    with first.throughout():
        opened.append(module["names"]())
    port = opened[0].getsockname()[1]
    again.replay(first.given)
    with again.throughout():
        opened.append(module["names"]())
    opened[0].close()
    third.replay(first.given)
    with third.throughout():
        opened.append(module["names"]())
    assert (opened[1].getsockname()[1] not in (0, port), opened[2].getsockname()[1]) == (True, port)
    for each in opened[1:]:
        each.close()


def test_a_library_that_makes_names_has_the_host_and_process_of_the_first_start_and_others_have_todays(monkeypatch):
    source = "import os, socket, time\ndef names(): return [os.getpid(), socket.gethostname(), time.time()]"
    namer, other = types.ModuleType("tensorboard.writer"), types.ModuleType("signed_requests")
    for each in (namer, other):
        exec(source, vars(each))
    given = {}
    for process in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        answers = Answers({})
        answers.replay(given) if given else None
        with answers.throughout():
            found = namer.names(), other.names()
        given = answers.given
    assert (found[0][0], found[1][0]) == (1, 2)
    assert found[0][2] < found[1][2]
    assert found[0][1] == socket.gethostname()


def test_a_program_that_asks_for_its_process_or_machine_has_todays():
    source = "import os, socket\ndef names(): return [os.getpid(), socket.gethostname()]"
    module = of_program(source)
    answers = Answers(module["__builtins__"])
    with answers.throughout():
        assert module["names"]() == [os.getpid(), socket.gethostname()]
    assert answers.given == {}


def test_other_threads_of_the_program_are_answered_as_today():
    module = of_program("import time\ndef names(): return time.time()")
    answers = Answers(module["__builtins__"])
    with answers.throughout():
        thread = threading.Thread(target=module["names"])
        thread.start()
        thread.join()
    assert answers.given == {}


def held() -> list[object]:
    """Return the functions that may be replaced."""
    own = [getattr(each.module, each.name) for each in room._REPLACED]
    return [*own, vars(datetime.datetime)["now"], vars(datetime.datetime)["utcnow"], socket.socket.bind, next_name()]


def next_name() -> Callable[..., str]:
    return tempfile._RandomNameSequence.__next__  # type: ignore[attr-defined, no-any-return]


def test_all_functions_are_in_their_places_again_at_the_end_and_one_that_is_held_still_works():
    before, answers = held(), Answers({})
    with answers.throughout():
        assert all(one is not other for one, other in zip(before, held(), strict=True))
        kept = time.strftime
        answers.end()
        assert held() == before
    assert "bind" not in vars(socket.socket)
    assert (kept("%Y", time.gmtime(0)), kept.__name__, pickle.loads(pickle.dumps(kept))) == (
        "1970",
        "strftime",
        time.strftime,
    )


def test_a_function_that_another_library_has_wrapped_meanwhile_stays_wrapped(monkeypatch):
    monkeypatch.setattr(time, "time", time.time)
    answers = Answers({})
    with answers.throughout():
        real = time.time
        time.time = other = lambda: real()
    assert time.time is other
    assert other() > 0


def test_wrong_arguments_raise_the_errors_of_the_real_functions():
    module = of_program(
        "import time, datetime, os, uuid\n"
        "calls = [lambda: time.strftime(), lambda: time.time(1), lambda: datetime.datetime.now(3)]\n"
        "calls += [lambda: os.urandom('a'), lambda: uuid.uuid1(1, 2, 3), lambda: time.localtime('a')]"
    )
    with Answers(module["__builtins__"]).throughout():
        for call in module["calls"]:
            with pytest.raises(TypeError):
                call()


def test_explicit_times_and_many_random_bytes_are_not_kept():
    module = of_program(
        "import time, os\ndef names(): return time.strftime('%Y', time.gmtime(0)), time.ctime(0), os.urandom(4000)"
    )
    answers = Answers(module["__builtins__"])
    with answers.throughout():
        assert module["names"]()[0] == "1970"
        assert len(module["names"]()[2]) == 4000
    assert answers.given == {}


def test_a_failure_to_replace_functions_leaves_the_program_as_it_is(monkeypatch):
    def fails(answers: Answers, *_: object) -> None:
        raise RuntimeError

    before = held()
    monkeypatch.setattr(Answers, "_put_in_c", fails)
    with Answers({}).throughout():
        assert time.time() > 0
        assert datetime.datetime.now().year > 2000
    assert held() == before


def test_a_server_of_the_standard_library_has_the_port_of_the_first_start():
    source = "import socketserver\ndef names():\n    return socketserver.TCPServer(('127.0.0.1', 0), None)"
    module, ports, given = of_program(source), [], {}
    for _ in range(2):
        answers = Answers(module["__builtins__"])
        answers.replay(given) if given else None
        with answers.throughout(), module["names"]() as server:
            assert isinstance(server, socketserver.TCPServer)
            ports.append(server.server_address[1])
        given = answers.given
    assert ports[0] == ports[1]


def test_subclasses_of_datetime_are_answered_with_their_own_class():
    first, again = both(
        "import datetime\nclass Mine(datetime.datetime): pass\n"
        "def names():\n    now, utc = Mine.now(), Mine.utcnow()\n    return [type(now) is type(utc) is Mine, str(now)]"
    )
    assert first == again
    assert first[0]
