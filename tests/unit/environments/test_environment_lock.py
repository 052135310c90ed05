"""Test deriving requirements from a recorded environment, and uv's settings from pip's."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kernel_backend.environments import uv
from kernel_backend.environments.lock import local_hashes, requirements, with_hashes
from kernel_backend.model.snapshot import Environment

AB = "ab" * 32


def environment(*, urls: dict[str, str] | None = None, **changes: object) -> Environment:
    named = dict.fromkeys(urls or (), "1.0")
    facts = {"python": "3.11.7", "implementation": "CPython", "platform": "Linux-6-x86_64-with-glibc2.36", "cpu": ""}
    distributions = {"daylight": "0.1.0", "plain": "1.0+cpu"} | named
    return Environment.model_validate(
        facts | {"cores": 2, "distributions": distributions, "urls": urls or {}} | changes
    )


def test_each_distribution_is_wanted_of_an_index_kept_as_a_file_pinned_by_a_commit_or_named():
    plan = requirements(
        environment(
            urls={
                "kept": f"file:///w/kept.whl#sha256={AB}",
                "folder": "file:///src/folder",
                "vcs": "git+https://host/r.git@c0ffee",
                "web": f"https://host/web.whl#sha256={AB}",
                "bare": "https://host/bare.whl",
                "mine": "file:///src/mine",
            },
            editable={"mine": AB},
            conda={"plain": "1.0=0", "libfoo": "3=1"},
        )
    )
    assert plan.wanted == {"plain": "plain==1.0+cpu", "web": f"web @ https://host/web.whl#sha256={AB}"}
    assert plan.files == {"kept": AB}
    assert plan.pinned == {"vcs": "vcs @ git+https://host/r.git@c0ffee"}
    assert set(plan.unlocked) == {"folder", "bare", "mine", "libfoo"}
    assert "travel in the snapshot" in plan.unlocked["mine"]
    assert "conda" in plan.unlocked["libfoo"]


def test_a_wheel_in_a_folder_that_pip_looks_in_is_hashed_here(tmp_path: Path):
    (tmp_path / "plain-1.0+cpu-py3-none-any.whl").write_bytes(b"one")
    (tmp_path / "plain-1.1-py3-none-any.whl").write_bytes(b"two")
    (tmp_path / "no wheel.whl").write_bytes(b"three")
    found = local_hashes([tmp_path], {"plain": "plain==1.0+cpu", "other": "other==1"})
    assert found == {"plain==1.0+cpu": [hashlib.sha256(b"one").hexdigest()]}


def test_what_has_no_hash_is_left_out_of_a_lock_and_named():
    text = f"a==1 \\\n    --hash=sha256:{AB}\nb==2\nc==3 \\\n    --hash=sha256:{AB}\n"
    locked, bare = with_hashes(text, {"c==3": ["cd" * 32, AB]})
    assert locked == (
        f"a==1 \\\n    --hash=sha256:{AB}\nc==3 \\\n    --hash=sha256:{AB} \\\n    --hash=sha256:{'cd' * 32}\n"
    )
    assert bare == ["b"]
    assert with_hashes("", {}) == ("\n", [])


def test_pips_settings_are_read_and_those_of_the_environment_come_first():
    said = (
        "global.index-url='https://ada:hunter2@host/simple'\nglobal.extra-index-url='file:///a file:///b'\n"
        "install.find-links='\\n/wheels\\n/more'\n:env:.index-url='https://other'\nnonsense\nglobal.cert=broken\n"
    )
    assert uv.parse_settings(said) == {
        "index-url": "https://other",
        "extra-index-url": "file:///a file:///b",
        "find-links": "/wheels /more",
    }


def test_uv_is_told_by_variables_which_a_persons_own_override():
    settings = {"index-url": "https://pips", "find-links": "/a /b", "proxy": "x"}
    told = uv.variables(settings, {"UV_INDEX_URL": "https://mine", "PYTHONPATH": "/p", "PATH": "/bin"})
    assert told["UV_INDEX_URL"] == "https://mine"
    assert told["UV_FIND_LINKS"] == "/a,/b"
    assert told["PATH"] == "/bin"
    assert "PYTHONPATH" not in told
