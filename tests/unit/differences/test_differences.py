"""Test that each difference of two experiments is attributed to its cause, and harmless ones are omitted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import xxhash

from kernel_backend.differences.diff import diff
from kernel_backend.differences.listing import changes, changes_text
from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Diff
from kernel_backend.model.facts import Delivered, Observed, ObservedFile, Weights
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.snapshot import Captured, Data, Project
from kernel_backend.model.states import ExperimentState
from tests.support.sides import PACKAGES, SOURCE, side


def told(a: Side, b: Side) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in diff(a, b).differences]


def reports(*losses: float, kind: str = "training") -> list[StoredReport]:
    return [
        StoredReport.model_validate(
            {
                "seq": step,
                "trial": 1,
                "attempt": 1,
                "at": 0.0,
                "kind": kind,
                "step": step,
                "epoch": 0.0,
                "metrics": {"loss": loss},
            }
        )
        for step, loss in enumerate(losses, 1)
    ]


def listed(**files: bytes) -> tuple[Data, dict[str, bytes]]:
    rows = [f"{name}\t{len(data)}\t{hashlib.md5(data).hexdigest()}" for name, data in sorted(files.items())]
    text = "\n".join(rows).encode()
    digest = hashlib.md5(text).hexdigest()
    data = Data(name="leslie", path="/data/leslie", files=len(files), bytes=0, digest=digest, listed="data/0.tsv")
    return data, {"data/0.tsv": text}


def observed(*files: tuple[str, str]) -> dict[str, Any]:
    seen = [ObservedFile(path=path, size=9, mtime=1.0, digest=digest) for path, digest in files]
    return {"observed": Observed(files=tuple(seen)).to_json()}


def delivered(**fields: Any) -> dict[str, Any]:
    known = {"samples": 1797, "digest": "ab", "seed": 0, "code": "c", "whole": True}
    return {"delivered": Delivered(**(known | fields)).to_json()}


CAUSES = {
    "a cell": (side(SOURCE.replace("* scale", "+ scale")), [("code", "the definition differs in cell [2]")]),
    "a helper cell": (side(SOURCE.replace("scale = 2", "scale = 3")), [("code", "the definition differs in cell [1]")]),
    "a project file": (side(files={"project/net/layers.py": b"x = 1"}), [("code", "net/layers.py is new")]),
    "a default": (
        side(SOURCE.replace("width=8", "width=9"), params={"lr": 0.1, "width": 9}),
        [("code", "the definition differs in cell [2]"), ("hyperparameters", "width 8 -> 9")],
    ),
    "a hyperparameter": (side(params={"lr": 0.2, "width": 8}), [("hyperparameters", "lr 0.1 -> 0.2")]),
    "its type": (side(params={"lr": 0.1, "width": 8.0}), [("hyperparameters", "width 8 -> 8.0")]),
    "what is searched": (
        side(space="width=8..64 lr=0.1,0.2@width=8"),
        [("hyperparameters", "lr 0.1 -> 0.1,0.2@width=8"), ("hyperparameters", "width 8 -> 8..64")],
    ),
    "how it is searched": (
        side(config={"search": {"method": "asha", "eta": 3}}),
        [("configuration", "search default -> method asha, eta 3")],
    ),
    "the seed": (side(config={"seed": 7}), [("seed", "seed 0 -> 7")]),
    "threads": (side(config={"threads": 2}), [("hardware", "threads 1 -> 2")]),
    "threads that ranks saw": (
        side(config={"threads": 2}, facts={"runtime": {"threads": "2"}}), [("hardware", "threads 1 -> 2")],
    ),
    "loader workers": (side(config={"loader_workers": 2}), [("configuration", "loader workers default -> 2")]),
    "slots": (side(config={"slots": 2}), [("configuration", "slots 1 -> 2")]),
    "a processor": (side(environment={"cpu": "EPYC"}), [("hardware", "cpu Xeon -> EPYC")]),
    "a package": (
        side(environment={"distributions": PACKAGES | {"torch": "2.13.0"}}),
        [("environment", "torch 2.12.0 -> 2.13.0")],
    ),
    "packages, torch first": (
        side(environment={"distributions": {"torch": "2.13.0", "numpy": "2.2.0"}}),
        [("environment", "3 packages: torch 2.12.0 -> 2.13.0, numpy 2.1.0 -> 2.2.0, six 1.16.0 -> missing")],
    ),
    "what is installed to be edited": (
        side(environment={"editable": {"six": "ff"}}), [("environment", "six (sources) missing -> ff")],
    ),
    "python": (side(environment={"python": "3.12.1"}), [("environment", "python 3.11.7 -> 3.12.1")]),
    "a variable": (
        side(environment={"variables": {"MKL_CBWR": "AVX2"}}),
        [("environment", "MKL_CBWR missing -> AVX2")],
    ),
    "our numerics": (
        side(snapshot={"numerics": 4}),
        [("daylight", "Daylight's numerics 3 -> 4: seeds or sums are made in another way")],
    ),
    "an external version": (
        side(snapshot={"commits": ("lakefs://repo@c0ffee",)}),
        [("data", "external versions: none, now lakefs://repo@c0ffee")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_is_named_and_nothing_else(cause: str):
    other, expected = CAUSES[cause]
    assert told(side(), other) == expected


HARMLESS = {
    "a comment": side(SOURCE.replace("scale = 2", "scale = 2  # of the first layer")),
    "blank lines and numbers of cells": side(SOURCE.replace("# cell [2]\n", "\n\n# cell [17]\n")),
    "another folder": side(cwd="/home/danielle/net"),
    "another commit": side(environment={"git_commit": "beef", "git_dirty": True}),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_nothing_is_passed_over(change: str):
    assert told(side(), HARMLESS[change]) == []


def test_the_likeliest_cause_comes_first_and_what_changes_no_bit_last():
    other = side(
        SOURCE.replace("* scale", "+ scale"),
        params={"lr": 0.2, "width": 8},
        config={"seed": 3, "threads": 4, "max_restarts": 9, "batch_size": 64},
        environment={"distributions": PACKAGES | {"torch": "2.13.0"}},
        snapshot={"commits": ("dvc:1",)},
    )
    found = diff(side(), other).differences
    kinds = [each.kind for each in found]
    assert kinds == [
        "code",
        "hyperparameters",
        "data",
        "environment",
        "seed",
        "hardware",
        "configuration",
        "configuration",
    ]
    assert [each.harmless for each in found] == [False] * 7 + [True]


def test_another_contract_of_definitions_counts_where_it_finds_other_roles():
    for more, harmless in [("", True), ("\ndef scheduler(optimizer): ...\n", False)]:
        source = SOURCE + "\ndef train_data(): ...\ndef loss(output, target): ...\n" + more
        (found,) = diff(side(source), side(source, snapshot={"contract": 2})).differences
        assert found.text == "the contract of definitions 1 -> 2: roles may have other names since 2"
        assert found.harmless is harmless


def test_code_is_shown_line_by_line_without_the_numbers_of_cells():
    (found,) = diff(side(), side(SOURCE.replace("[2]", "[9]").replace("* scale", "+ scale"))).differences
    assert found.detail == (
        "@@ cell [2] line 3 @@",
        " ",
        " def model(width=8):",
        "-    return width * scale",
        "+    return width + scale",
    )


def test_lines_that_are_gone_are_named_by_where_they_were_and_new_files_by_their_lines():
    (found,) = diff(side(), side(SOURCE.replace("scale = 2\n", "").replace("* scale", ""))).differences
    assert found.detail[0] == "@@ cell [1] line 1 @@"
    (found,) = diff(side(), side(files={"project/nets.py": b"x = 1"})).differences
    assert found.detail == ("@@ line 1 @@", "+x = 1")
    (found,) = diff(side(files={"project/nets.py": b"x = 1"}), side()).differences
    assert found.detail == ("@@ line 1 @@", "-x = 1")


def test_added_removed_and_edited_files_of_declared_data_are_named():
    (before, old), (after, new) = listed(a=b"1", b=b"2", c=b"3"), listed(a=b"1", b=b"x", d=b"4", e=b"5")
    a, b = side(snapshot={"data": (before,)}, files=old), side(snapshot={"data": (after,)}, files=new)
    (found,) = diff(a, b).differences
    assert found.text == "leslie: 2 files were added (d, e), 1 file is gone (c), 1 file has other bytes (b)"
    assert found.detail == ("+ d", "+ e", "- c", "~ b")


def test_replaced_objects_of_a_store_are_told_with_both_versions():
    def side_of(name: str, **objects: str) -> Side:
        text = "".join(f"{name}\t9\t{version}\n" for name, version in sorted(objects.items())).encode()
        url, digest = f"s3://bucket/{name}", hashlib.md5(text).hexdigest()
        facts = {"files": len(objects), "bytes": 9, "digest": digest, "listed": "data/0.tsv"}
        data = Data(name=f"train={url}", into="train", path=url, **facts)
        return side(snapshot={"data": (data,)}, files={"data/0.tsv": text})

    a = side_of("train", a="1a", b="2b", c="3c")
    (found,) = diff(a, side_of("train", b="2b", c="4d", e="5e")).differences
    assert found.text == (
        "train=s3://bucket/train: 1 object was added (e), 1 object is gone (a), 1 object was replaced (c)"
    )
    assert found.detail == ("~ c: 3c, now 4d", "+ e", "- a")
    assert told(a, side_of("later", a="1a", b="2b", c="3c")) == []
    (found,) = diff(a, side_of("later", x="1a")).differences
    assert found.text == "--data train=s3://bucket/train -> train=s3://bucket/later"
    many = side_of("train", **{f"x{number:02}": "1" for number in range(99)}, a="2a", b="2b", c="3c")
    (found,) = diff(a, many).differences
    assert found.detail[0] == "~ a: 1a, now 2a"
    assert found.detail[-1] == "... and 60 more"


def test_many_files_are_counted():
    found = changes({}, {f"{n:04}": 1 for n in range(1200)})
    assert changes_text(found) == "1,200 files were added (0000, 0001, 0002, ...)"


def test_samples_are_counted_and_compared_where_seed_and_code_agree():
    a = side(facts=delivered())
    assert told(a, side(facts=delivered(samples=1909))) == [
        ("data", "1,797 samples were delivered in the first epoch, now 1,909")
    ]
    assert told(a, side(facts=delivered(digest="cd"))) == [
        ("data", "1,797 samples were delivered as before, with other content")
    ]
    assert told(a, side(facts=delivered(digest="cd", code="d"))) == []
    assert told(a, side(facts=delivered(samples=5, whole=False))) == []


def test_data_that_a_rerun_read_elsewhere_is_the_same_where_its_bytes_are():
    (data, files) = listed(a=b"1")
    kept = {"snapshot": {"data": (data.model_copy(update={"path": "/data/leslie"}),)}, "files": files}
    then = side(facts=observed(("/data/leslie/a", "aa")), params={"root": "/data/leslie"}, **kept)
    led = {"params": {"root": "/mnt/leslie"}, "config": {"data_at": {"leslie": "/mnt/leslie"}}, **kept}
    harmless = ("configuration", "data at {} -> {'leslie': '/mnt/leslie'}")
    assert told(then, side(facts=observed(("/mnt/leslie/a", "aa")), **led)) == [harmless]
    assert told(then, side(facts=observed(), **led)) == [harmless]  # it was read by what cannot be observed
    other = side(facts=observed(("/mnt/leslie/a", "bb")), **led)
    assert told(then, other) == [("data", "files that were read: 1 file has other bytes (/data/leslie/a)"), harmless]


def test_files_that_were_read_are_compared_by_their_place_in_the_project():
    a = side(facts=observed(("/home/dave/net/labels.csv", "aa"), ("/data/x", "bb")))
    moved = observed(("/home/danielle/net/labels.csv", "aa"), ("/data/x", "bb"))
    assert told(a, side(cwd="/home/danielle/net", facts=moved)) == []
    edited = observed(("/home/dave/net/labels.csv", "cc"), ("/data/x", "bb"))
    assert told(a, side(facts=edited)) == [("data", "files that were read: 1 file has other bytes (labels.csv)")]


def test_pretrained_weights_are_a_class_of_their_own():
    a = side(facts=observed(("/models/resnet.safetensors", "aa")))
    b = side(facts=observed(("/models/resnet.safetensors", "bb")))
    assert told(a, b) == [("weights", "pretrained files: 1 file has other bytes (/models/resnet.safetensors)")]


def test_the_model_at_step_0_is_told_after_what_it_follows_from():
    start = Weights(digest="aa", tensors={"0.weight": "1", "0.bias": "2"}).to_json()
    other = Weights(digest="bb", tensors={"0.weight": "3", "0.bias": "2"}).to_json()
    found = told(side(facts={"weights": start}), side(config={"seed": 1}, facts={"weights": other}))
    assert [kind for kind, _ in found] == ["seed", "weights"]
    assert found[1][1] == "the model at step 0: 1 of 2 tensors differ, first 0.weight"


def test_declaring_data_alone_changes_nothing_and_hides_no_file_that_was_read():
    (data, listed_files) = listed(a=b"1", b=b"2")
    reading = observed(("/data/leslie/a", "1"), ("/data/leslie/b", "2"))
    a, b = side(facts=reading), side(snapshot={"data": (data,)}, files=listed_files, facts=reading)
    for before, after in ((a, b), (b, a)):
        (found,) = diff(before, after).differences
        assert "declared" in found.text
        assert found.harmless


def test_a_file_that_travelled_and_is_read_from_the_snapshot_has_not_gone():
    content = b"x: 1"
    project = Project(root="/home/dave", cwd="net", paths=())
    shipped = {"snapshot": {"project": project}, "files": {"project/net/conf.yaml": content}}
    digest = xxhash.xxh3_128_hexdigest(content)
    read = {
        "observed": Observed(
            files=(ObservedFile(path="/home/dave/net/conf.yaml", size=4, mtime=0, digest=digest),)
        ).to_json()
    }
    a, b = side(facts=read, **shipped), side(facts=observed(), **shipped)
    assert told(a, b) == told(b, a) == []
    edited = side(facts=observed(("/home/dave/net/conf.yaml", "other")), **shipped)
    assert told(a, edited) == [("data", "files that were read: 1 file has other bytes (conf.yaml)")]


def test_what_ranks_ran_with_is_compared_where_both_have_told():
    before, after = (
        {"runtime": {"torch": "2.12", "mkl": "2024"}},
        {"runtime": {"torch": "2.13", "mkl": "2024", "MKL_CBWR": "AVX2"}},
    )
    assert told(side(facts=before), side(facts=after)) == [
        ("environment", "torch 2.12 -> 2.13"), ("environment", "MKL_CBWR unset -> AVX2"),
    ]  # fmt: skip
    packages = {"distributions": PACKAGES | {"torch": "2.13"}}
    assert (
        len(
            told(
                side(facts=before),
                side(facts={"runtime": {**before["runtime"], "torch": "2.13"}}, environment=packages),
            )
        )
        == 1
    )


def test_what_should_change_no_bit_is_suspected_where_results_part_and_nothing_else_differs():
    a = side(reports=reports(0.5), facts=delivered())
    b = side(config={"loader_workers": 2}, reports=reports(0.6), facts=delivered(digest="cd"))
    found = diff(a, b).differences
    assert [(each.name, each.harmless) for each in found] == [("loader_workers", False), ("delivered", False)]


def test_what_one_side_has_not_told_is_said_to_be_unknown():
    found = diff(side(), side(facts={"runtime": {}, "weights": {"digest": "", "tensors": {}}}, number=97))
    assert found.unknown == (
        "of #41: which data was delivered, which files were read, the model at step 0, what its ranks ran with",
        "of #97: which data was delivered, which files were read",
    )


def test_a_side_that_failed_is_never_identical():
    a = side(checkpoints={5: {"model": "aa"}})
    failed = a.experiment.model_copy(update={"state": ExperimentState.FAILED, "number": 97})
    results = diff(a, replace(a, experiment=failed, failure="ValueError: boom")).results
    assert results.identical is None
    assert results.text.endswith("#97 is failed: ValueError: boom")


def test_a_captured_value_is_told_by_its_name():
    kept = Captured(name="files", file="captured/files.json", format="json", bytes=1, digest="d", line=2)
    a, b = (side(snapshot={"captured": (kept,)}, files={"captured/files.json": data}) for data in (b"aa", b"bb"))
    assert told(a, b) == [("code", "the captured value files differs")]


def verdict(a: Sequence[float], b: Sequence[float], ends: tuple[dict[int, str], dict[int, str]]) -> Diff:
    before, after = ({step: {"model": digest} for step, digest in end.items()} for end in ends)
    return diff(side(reports=reports(*a), checkpoints=before), side(reports=reports(*b), checkpoints=after, number=97))


def test_equal_reports_and_checkpoints_are_bit_identical():
    results = verdict([0.5, float("nan")], [0.5, float("nan")], ({10: "aa"}, {10: "aa"})).results
    assert (results.identical, results.equal_to) == (True, 10)
    assert results.text == "bit-identical: the checkpoints of step 10, and all 2 reports of the same steps are equal"


def test_results_part_at_the_first_report_that_differs_in_a_bit():
    results = verdict([0.5, 0.25, 0.1], [0.5, 0.25000000000000006, 0.2], ({10: "aa"}, {10: "bb"})).results
    assert (results.identical, results.equal_to, results.parted_at) == (False, 1, 2)
    assert results.text.startswith(
        "results part at step 2: training loss 0.25 and 0.25000000000000006, equal up to step 1"
    )


def test_weights_may_part_where_no_report_tells():
    results = verdict([0.5], [0.5], ({5: "aa", 10: "aa"}, {5: "aa", 10: "bb"})).results
    assert (results.identical, results.parted_at) == (False, 10)
    assert "the checkpoints of step 10 differ in model" in results.text


def test_one_that_was_stopped_early_is_identical_so_far():
    results = verdict([0.5], [0.5], ({5: "aa", 10: "bb"}, {5: "aa"})).results
    assert results.identical is None
    assert results.text.startswith("bit-identical so far: the checkpoints of step 5")


def test_one_that_was_to_go_no_further_is_identical():
    a = side(checkpoints={5: {"model": "aa"}, 10: {"model": "bb"}})
    b = side(config={"until": 5}, checkpoints={5: {"model": "aa"}})
    assert diff(a, b).results.identical is True


@pytest.mark.parametrize("ends", [({}, {}), ({10: "aa"}, {20: "aa"}), ({}, {20: "aa"})])
def test_without_a_common_checkpoint_nobody_says_identical(ends):
    results = verdict([0.5], [0.5], ends).results
    assert results.identical is None
    assert "no checkpoints of the same step" in results.text
