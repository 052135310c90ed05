"""Test that malicious definitions are refused with an error message, and affect no other user."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from kernel_backend.snapshots.archive import pack
from tests.api.people import FakeHub
from tests.api.served import TOKEN, Served, StillEngine, archive
from tests.support.world import DEFINITION, until

HTTP = httpx.Client(timeout=120, trust_env=False, headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("home"), StillEngine())
    yield served
    served.stop()


def asked(served: Served, data: bytes, **more: object) -> httpx.Response:
    """Upload a snapshot and submit it; return the answer to the submission, or to the upload if that is refused."""
    id = hashlib.sha256(data).hexdigest()
    stored = HTTP.put(f"{served.url}/api/snapshots/{id}", content=data)
    if stored.is_error:
        return stored
    submission = {"snapshot": id, "config": {}, "python": "/usr/bin/python3", "cwd": "/", "again": True, **more}
    return HTTP.post(f"{served.url}/api/experiments", json=submission)


DEEP = {
    "100,000 unary minuses": f"x = {'-' * 100_000}1\n",
    "5,000 nested lambdas": f"x = {'lambda: ' * 5_000}1\n",
    "a default of 3,000 minuses": f"def schedule(optimizer, gamma={'-' * 3_000}1): return None\n",
    "an annotation of 3,000 minuses": f"def schedule(optimizer, gamma: {'-' * 3_000}1 = 1): return None\n",
    "1,000 nested lists": f"x = {'[' * 1_000}{']' * 1_000}\n",
    "a null character": "x = '\0'\n",
}


@pytest.mark.parametrize("line", DEEP.values(), ids=DEEP.keys())
def test_what_is_nested_too_deeply_is_refused_in_a_sentence(served: Served, line: str) -> None:
    _, data = archive(DEFINITION + line)
    answer = asked(served, data)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "InvalidDefinition"
    assert len(answer.json()["message"]) < 1000


def test_an_annotation_that_cannot_be_read_says_nothing(served: Served) -> None:
    line = f"def schedule(optimizer, gamma: '{'-' * 100_000}1' = 1): return None\n"
    assert asked(served, archive(DEFINITION + line)[1], params={"gamma": 2}).status_code == 201


def test_a_small_archive_of_a_large_definition_is_refused(served: Served) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr("definition.py", DEFINITION + "x=1\n" * 2_500_000)
    assert len(packed.getvalue()) < 50_000
    answer = asked(served, packed.getvalue())
    assert answer.status_code == 413
    assert "definition.py of this snapshot has 9.5 MiB; the limit is 1 MiB" in answer.json()["message"]


def project(**modules: str) -> bytes:
    """Return a snapshot of the small definition, deflated, with modules of a project."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive()[1])) as small, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("definition.py", small.read("definition.py"))
        described = json.loads(small.read("snapshot.json")) | {"project": {"root": "/", "cwd": ".", "paths": [""]}}
        file.writestr("snapshot.json", json.dumps(described))
        for name, source in modules.items():
            file.writestr(f"project/{name}.py", source)
    return packed.getvalue()


def test_a_small_archive_of_a_large_module_is_refused(served: Served) -> None:
    data = project(net="backward\n" * 500_000)
    assert len(data) < 50_000
    answer = asked(served, data)
    assert answer.status_code == 400
    assert "may train have 4.5 MB of source, and at most 2.1 MB are read: leave some out, such as net.py" in answer.text


def test_a_large_module_that_trains_nothing_is_left_unread(served: Served) -> None:
    assert asked(served, project(net="# backward\n", table="x = 1\n" * 500_000)).status_code == 201


def test_all_modules_together_are_parsed_outside_of_the_service(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda source, *more, **also: parsed.append(1) or parse(source, *more, **also))
    assert asked(served, project(net="# backward\n")).status_code == 201
    assert parsed
    parsed.clear()
    modules = {f"net{i}": f"# backward\nx = {i}\n" * 50 for i in range(10)}  # a kilobyte each
    assert asked(served, project(**modules)).status_code == 201
    assert not parsed


LARGE = {
    "records that are none": ("experiments", '{{"records":[{}]}}'.format(",".join(["{}"] * 500_000))),
    "parameters": ("experiments", '{{"params":{{"a":[{}]}}}}'.format(",".join(["[]"] * 500_000))),
    "unknown fields": ("experiments", "{{{}}}".format(",".join(f'"a{i}":null' for i in range(300_000)))),
}


@pytest.mark.parametrize(("path", "body"), LARGE.values(), ids=LARGE.keys())
def test_a_body_of_too_many_values_is_refused_unparsed(served: Served, path: str, body: str) -> None:
    answer = HTTP.post(f"{served.url}/api/{path}", content=body.encode())
    assert answer.status_code == 400
    assert "values, and the limit is 65,536: send less at once" in answer.json()["message"]


def test_a_quota_of_too_many_values_is_refused_unparsed(served: Served) -> None:
    body = b'{"limit": [%s]}' % b",".join([b"[]"] * 500_000)
    answer = HTTP.put(f"{served.url}/api/accounts/user/dave/quota", content=body)
    assert answer.status_code == 400
    assert answer.json()["message"] == 'body: must be a JSON object such as {"limit": 8}'


def test_a_definition_that_is_not_utf8_is_refused(served: Served) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("definition.py", DEFINITION.encode() + b"x = '\xe9'\n")
    answer = asked(served, packed.getvalue())
    assert answer.status_code == 400
    assert "is not UTF-8: byte 0xe9 on line 19: save it as UTF-8" in answer.json()["message"]


def test_a_description_that_is_none_is_refused(served: Served) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("definition.py", DEFINITION)
        file.writestr("snapshot.json", json.dumps([[]] * 1000))
    answer = asked(served, packed.getvalue())
    assert answer.status_code == 400
    assert "snapshot.json of snapshot" in answer.json()["message"]


def test_code_of_many_large_files_is_compared_without_the_service(served: Served) -> None:
    """An equal second submission is the same experiment.

    The comparison runs in a limited process outside of the service.
    """
    numbers = []
    for comment in ("one", "other"):
        packed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(archive()[1])) as small, zipfile.ZipFile(packed, "w") as file:
            for name in small.namelist():
                file.writestr(name, small.read(name))
            file.writestr("project/helper.py", f"# {comment}\nx = 1\n")
        answer = asked(served, packed.getvalue(), again=False, name="twins")
        numbers.append((answer.status_code, answer.json()["experiment"]["number"]))
    assert numbers == [(201, numbers[0][1]), (200, numbers[0][1])]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cwd": "/" * 5_000}, "cwd: String should have at most 4096 characters"),
        ({"notebook": "a" * 5_000}, "notebook: String should have at most 4096 characters"),
        ({"python": "p" * 5_000}, "python: String should have at most 4096 characters"),
        (
            {"params": {"lr": "x" * 600_000}},
            "this submission has 587 KiB of settings and hyperparameters, of at most 512",
        ),
    ],
)
def test_texts_that_lists_repeat_have_a_limit(served: Served, more: dict[str, object], said: str) -> None:
    answer = asked(served, archive()[1], **more)
    assert answer.status_code in (400, 413)
    assert said in answer.json()["message"]


def test_archives_of_a_user_are_unpacked_one_by_one_and_leave_threads_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six uploads wait for their check, and take two threads of the service's."""
    may_end, begun = threading.Event(), list[bytes]()

    def slow(data: bytes) -> None:
        begun.append(data)
        may_end.wait(60)

    monkeypatch.setattr("kernel_backend.snapshots.archive.check", slow)
    served = Served(tmp_path, StillEngine(), identity=FakeHub())
    archives = [pack({"definition.py": f"x = {number}\n".encode()}) for number in range(6)]
    with ThreadPoolExecutor(12) as uploads:
        clients = [served.client(name) for name in ("dave", "danielle", "eve")]
        done = [
            uploads.submit(client.upload_snapshot, *each)
            for client, mine in zip(clients, (archives[:3], archives[3:5], archives[5:]), strict=True)
            for each in mine
        ]
        until(lambda: len(begun) == 2, "two are checked")
        assert clients[0].experiments() == []
        assert len(begun) == 2
        may_end.set()
        for each in done:
            each.result(60)
    assert len(begun) == 6
    served.stop()
