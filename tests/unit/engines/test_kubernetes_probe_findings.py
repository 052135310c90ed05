"""Test the findings about pods that did not answer a check: each problem comes with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.engines.kubernetes.pods import PodState, pod_state
from kernel_backend.engines.kubernetes.probe_findings import TERMS, findings
from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.model.cluster.pools import read_pool
from kernel_backend.model.launch.probe import Versions
from tests.unit.engines.test_probe_findings import VERSIONS, node

POOL = read_pool("cloud", {"engine": "kubernetes", "image": "i"})
SETUP = ProbeSetup(POOL, "python3", VERSIONS, "/home", "s3://bucket/runs", "", 2, False, TERMS)


def pod(number: int, phase: str, state: dict[str, Any] | None = None, **status: Any) -> PodState:
    containers = [{"state": state}] if state is not None else []
    spec = {"nodeName": f"n{number + 1}"} if "conditions" not in status else {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return pod_state(
        {
            "metadata": {"name": f"daylight-check-{number}"},
            "spec": spec,
            "status": {"phase": phase, "containerStatuses": containers, "conditions": [scheduled], **status},
        }
    )


def ended(number: int, said: str, code: int = 1) -> PodState:
    return pod(number, "Failed", {"terminated": {"exitCode": code, "reason": "Error", "message": said}})


def test_two_good_nodes_are_all_green():
    found = findings(SETUP, [], [node(0), node(1)], 3.2, 90)
    assert all(each.ok for each in found), found
    assert found[-1].says == "3.2 s from the creation of the pods to the first answer"


@pytest.mark.parametrize(
    ("states", "name", "says", "todo"),
    [
        (
            [ended(0, "a line\ncannot reach the service (http://hub:1: timed out)\n")],
            "service",
            "n1 cannot reach the service (http://hub:1: timed out)",
            "NetworkPolicy",
        ),
        ([ended(1, "No module named kernel_backend")], "probe", "the pod on n2 could not run", "into the image"),
        ([ended(0, "exec failed", 127)], "probe", "(exec failed): the rest was not checked", "`image` or `python`"),
        (
            [pod(0, "Pending", {"waiting": {"reason": "ErrImagePull", "message": "no such image"}})],
            "probe",
            "Kubernetes: ErrImagePull: no such image: the rest was not checked",
            "change `image` of the pool",
        ),
        (
            [
                pod(0, "Running"),
                pod(
                    1,
                    "Pending",
                    conditions=[{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}],
                ),
            ],
            "probe",
            "no 2 nodes became free within 90 s (Kubernetes: 1 of 2 pods have a node; 0/2 nodes are available)",
            "try again when nodes are free",
        ),
        ([pod(0, "Running"), pod(1, "Running")], "probe", "daylight-check-0, daylight-check-1 run", "kubectl logs"),
    ],
)
def test_pods_that_do_not_answer_are_told_with_what_to_change(states, name, says, todo):
    (found,) = findings(SETUP, states, [], 0.0, 90)
    assert (found.ok, found.name) == (False, name)
    assert says in found.says
    assert todo in found.todo


def test_the_pod_that_answered_is_told_next_to_the_one_that_did_not():
    first, *others = findings(SETUP, [pod(0, "Running"), ended(1, "killed")], [node(0)], 1.0, 90)
    assert first.says == "the pod on n2 could not run the probe (killed): 1 of 2 nodes did not answer, only n1 did"
    assert [each.name for each in others if each.ok] == [
        *("versions", "home", "service", "clocks", "checkpoints", "devices", "start")
    ]


def test_a_service_without_torch_needs_it_in_the_image_alone():
    ours = Versions(daylight=VERSIONS.daylight, python=VERSIONS.python, torch="")
    found = findings(SETUP._replace(versions=ours), [], [node(0), node(1)], 1.0, 90)[0]
    assert (found.ok, found.says) == (
        True,
        "Daylight 0.1.0, Python 3.11.7, here and on n1, n2; torch 2.6.0 there, and none here",
    )
    lacking = [node(0), node(1, versions=ours)]
    assert findings(SETUP._replace(versions=ours), [], lacking, 1.0, 90)[0].todo == "install torch for python3"
