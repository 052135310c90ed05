"""Test that refusals of the API server are explained, and retried if that may help."""

from __future__ import annotations

import pytest

from kernel_backend.engines.kubernetes.refusals import Refused, advice, waits, when

QUOTA = (
    'pods "daylight-1-1-1-ab-0" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=2, '
    "used: requests.nvidia.com/gpu=7, limited: requests.nvidia.com/gpu=8"
)
RIGHTS = 'pods is forbidden: User "ada" cannot create resource "pods" in API group "" in the namespace "ml"'
ACCOUNT = 'pods "x" is forbidden: error looking up service account ml/default: serviceaccount "default" not found'
ENDING = 'pods "x" is forbidden: unable to create new content in namespace ml because it is being terminated'
LIMITS = 'pods "x" is forbidden: maximum cpu usage per Container is 4, but limit is 8'
POLICY = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
MUST = 'pods "x" is forbidden: failed quota: all: must specify limits.memory for: ranks'


@pytest.mark.parametrize(
    ("status", "text", "then", "what"),
    [
        (403, QUOTA, "later", "ResourceQuota"),
        (403, QUOTA.replace("gpu=2,", "gpu=9,"), "never", "request fewer slots"),
        (403, RIGHTS, "later", "grant that right"),
        (403, ACCOUNT, "later", "service_account"),
        (403, ENDING, "later", "settings of the pool"),
        (403, LIMITS, "never", "request fewer slots"),
        (403, POLICY, "never", "permits such pods"),
        (403, MUST, "never", "memory_per_slot"),
        (404, 'namespaces "ml" not found', "later", "create the namespace"),
        (422, "spec.containers[0].image: Invalid value", "never", "`image`"),
        (409, "Operation cannot be fulfilled on resourcequotas", "later", "settings of the pool"),
        (500, "etcd is away", "later", "settings of the pool"),
    ],
)
def test_a_refusal_is_for_now_or_for_good_and_has_a_way_out(status, text, then, what):
    error = Refused(status, "", text)
    assert when(error) == then
    assert what in advice(error)


def test_a_quota_is_told_with_its_numbers():
    assert waits(Refused(403, "Forbidden", QUOTA)) == (
        "Kubernetes: quota gpus of the namespace: requests.nvidia.com/gpu 7 of 8 in use, 2 more wanted"
    )
