"""Test the differences of environments, and their order."""

from __future__ import annotations

from kernel_backend.model.environments import changes, packages
from kernel_backend.model.snapshot import Environment

HASH = "#sha256=" + "ab" * 32


def environment(**changes: object) -> Environment:
    facts = {
        "python": "3.11.7",
        "implementation": "CPython",
        "platform": "Linux-6.1.0-13-amd64-x86_64-with-glibc2.36",
        "cpu": "Abacus 2",
        "cores": 2,
        "distributions": {"aaa": "1", "torch": "2.12.0", "numpy": "2.0"},
    }
    return Environment.model_validate(facts | changes)


def test_equal_environments_do_not_differ():
    assert changes(environment(), environment(git_commit="c0ffee")) == []


def test_what_computes_is_told_first():
    now = environment(
        python="3.12.1",
        cpu="Abacus 3",
        variables={"OMP_NUM_THREADS": "4"},
        distributions={"aaa": "2", "torch": "2.13.0", "new": "1"},
    )
    assert [str(each) for each in changes(environment(), now)] == [
        "torch 2.12.0 -> 2.13.0",
        "numpy 2.0 -> missing",
        "aaa 1 -> 2",
        "new missing -> 1",
        "python 3.11.7 -> 3.12.1",
        "OMP_NUM_THREADS missing -> 4",
        "cpu Abacus 2 -> Abacus 3",
    ]
    assert [each.name for each in packages(environment(), now)] == ["torch", "numpy", "aaa", "new", "python"]


def test_a_file_is_the_same_wherever_it_lies():
    here, there = (
        environment(urls={"a": f"file:///here/a.whl{HASH}"}),
        environment(urls={"a": f"file:///b/a.whl{HASH}"}),
    )
    assert changes(here, there) == []
    assert here.id == there.id


def test_changed_sources_of_ours_and_of_an_editable_one_are_told():
    before = environment(editable={"mine": "a" * 64}, daylight="b" * 64)
    now = environment(editable={"mine": "c" * 64}, daylight="d" * 64)
    assert [str(each) for each in changes(before, now)] == [
        "daylight (sources) bbbbbbbbbbbb -> dddddddddddd",
        "mine (sources) aaaaaaaaaaaa -> cccccccccccc",
    ]


def test_the_id_follows_from_packages_and_not_from_machine_kernel_release_or_git():
    other = environment(
        cpu="Abacus 3", cores=64, driver="535", git_dirty=True, platform="Linux-6.6.0-x86_64-with-glibc2.36"
    )
    assert environment().id == other.id
    assert environment().id != environment(platform="Linux-6.1.0-13-amd64-x86_64-with-glibc2.31").id
    assert environment().id != environment(python="3.11.8").id
    assert environment().id != environment(daylight="b" * 64).id
