"""Test that malicious definitions are refused with an error message, and affect no other user."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator

import httpx
import pytest

from tests.api.served import TOKEN, Served, StillEngine, archive
from tests.support.world import DEFINITION

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
