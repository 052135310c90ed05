"""Test that the objects of a gang have all that its pods need, in any pool, and show no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.engines.kubernetes.manifests import GangName, Identity, gang, owned
from kernel_backend.launch.node import node_index, node_name, share
from kernel_backend.model.cluster.pools import Pool, read_pool
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.staging import VARIABLE, StagingRequest
from kernel_backend.model.resources import Share
from tests.support.builders import share as slots_of
from tests.unit.engines.test_slurm_script import job as slurm_job

FOLDER, WHO = Path("/home/ada/daylight/attempts/1.1-1"), Identity(1000, 100)
NAME = GangName("5f", "cloud", AttemptId(12, 3, 2), "digest")


def pool(**settings: Any) -> Pool:
    return read_pool("cloud", {"engine": "kubernetes", "image": "registry/daylight:1", **settings})


def job(*shares: Share, **fields: Any) -> LaunchSpec:
    found = {"placement": shares or (slots_of(kind="cuda"),), "staged": True, "service_urls": ("http://hub:1",)}
    return slurm_job(2).model_copy(update={**found, **fields})


def made(pool: Pool, job: LaunchSpec) -> list[dict[str, Any]]:
    _, objects = gang(NAME, job, "very-secret", pool, FOLDER, WHO)
    return [each for each in objects if each["kind"] == "Pod"]


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}


def test_a_pod_requests_what_its_slots_have_and_no_more():
    (pod,) = made(pool(cpus_per_slot=4, memory_per_slot=8000, shm_gb=2), job())
    (container,) = pod["spec"]["containers"]
    asked = {"cpu": "8", "memory": "16000Mi", "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert pod["spec"]["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2048Mi"}
    assert container["volumeMounts"][0]["mountPath"] == "/dev/shm"


def test_a_pod_ends_with_its_gang_and_never_begins_again():
    (pod,) = made(pool(), job())
    assert pod["spec"]["restartPolicy"] == "Never"
    owner, _ = gang(NAME, job(), "very-secret", pool(), FOLDER, WHO)
    created = {**owner, "metadata": {**owner["metadata"], "uid": "uid-1"}}
    (reference,) = owned(pod, created)["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == ("ConfigMap", NAME.owner, "uid-1")
    lost = [each for each in pod["spec"]["tolerations"] if each.get("tolerationSeconds")]
    assert {each["key"].partition("/")[2] for each in lost} == {"unreachable", "not-ready"}
    assert {each["tolerationSeconds"] for each in lost} == {30}


def test_each_node_is_a_pod_with_its_number_and_they_lie_on_different_nodes():
    first, second = made(pool(gpus=False), job(slots_of(), slots_of((0,), "other")))
    assert [first["metadata"]["name"], second["metadata"]["name"]] == [NAME.pod(0), NAME.pod(1)]
    variables = {**environment(second), "DAYLIGHT_NODE_NAME": "n7"}
    assert node_index("kubernetes", variables) == (1, 2)
    assert share(variables, node_index("kubernetes", variables)).slots == 1
    assert node_name(variables) == "n7"
    (apart,) = second["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"].items() <= first["metadata"]["labels"].items()


def test_nodes_that_are_left_out_are_not_chosen():
    (pod,) = made(pool(), job(excluded=("n2", "n1")))
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    assert [(each["operator"], each["values"]) for each in term["matchFields"]] == [
        ("NotIn", ["n1"]),
        ("NotIn", ["n2"]),
    ]


def test_nodes_that_have_the_data_are_preferred_where_pods_keep_it_on_their_nodes():
    near = job(preferred=("n1", "n3"), excluded=("n2",))
    (pod,) = made(pool(cache="/nvme"), near)
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = [each["preference"]["matchFields"] for each in affinity["preferredDuringSchedulingIgnoredDuringExecution"]]
    assert terms == [[{"key": "metadata.name", "operator": "In", "values": [name]}] for name in ("n1", "n3")]
    assert "requiredDuringSchedulingIgnoredDuringExecution" in affinity
    (other,) = made(pool(), near)
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in other["spec"]["affinity"]["nodeAffinity"]


def test_the_token_is_in_a_secret_alone():
    owner, (stored, pod) = gang(NAME, job(), "very-secret", pool(), FOLDER, WHO)
    request = StagingRequest.model_validate_json(stored["stringData"]["staging"])
    assert (request.token, request.urls) == ("very-secret", ("http://hub:1",))
    assert "very-secret" not in json.dumps([pod, owner])
    (variable,) = [each for each in pod["spec"]["containers"][0]["env"] if each["name"] == VARIABLE]
    assert variable["valueFrom"]["secretKeyRef"]["name"] == stored["metadata"]["name"]
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_on_a_volume_with_the_home_a_pod_is_the_services_user_in_the_working_folder():
    (pod,) = made(pool(shared=True, volumes=[{"claim": "home", "at": "/home/ada"}]), job(staged=False))
    assert pod["spec"]["securityContext"].items() >= {"runAsUser": 1000, "runAsGroup": 100}.items()
    (container,) = pod["spec"]["containers"]
    assert container["workingDir"] == "/home/ada/project"
    assert container["command"][-3:] == [str(FOLDER), "--step", "kubernetes"]
    assert {"name": "claim-0", "mountPath": "/home/ada", "readOnly": False} in container["volumeMounts"]
    assert environment(pod)["DAYLIGHT_ATTEMPT"] == str(FOLDER)


def cache_of(**settings: Any) -> tuple[str, list[dict[str, Any]], list[str]]:
    """Return a pod's variable with the folder of remote data, the volumes of its node, and where they are."""
    (pod,) = made(pool(**settings), job())
    volumes = [each["hostPath"] for each in pod["spec"]["volumes"] if "hostPath" in each]
    mounts = [each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"] if each["name"] == "cache"]
    return environment(pod)["DAYLIGHT_CACHE"], volumes, mounts


def test_remote_data_is_kept_in_the_pod_or_on_its_node_or_on_a_claim():
    assert cache_of() == ("/var/daylight/inputs", [], [])
    assert cache_of(scratch="/own") == ("/own/inputs", [], [])
    here = {"path": "/nvme/daylight", "type": "DirectoryOrCreate"}
    assert cache_of(cache="/nvme/daylight") == ("/nvme/daylight", [here], ["/nvme/daylight"])
    assert cache_of(cache="/data/cache", volumes=["data:/data"]) == ("/data/cache", [], [])
    (pod,) = made(pool(cache_gb=500), job())
    assert environment(pod)["DAYLIGHT_CACHE_GB"] == "500"


def test_where_a_pod_may_run_is_the_pools_setting():
    where = {
        "node_selector": {"gpu": "a100"},
        "tolerations": [{"key": "team", "value": "vision", "effect": "NoSchedule"}],
    }
    (pod,) = made(pool(**where, priority_class="low", service_account="trainer"), job())
    assert pod["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
    assert (pod["spec"]["priorityClassName"], pod["spec"]["serviceAccountName"]) == ("low", "trainer")


@pytest.mark.parametrize("other", [("6a", "cloud", "digest"), ("5f", "gpu", "digest"), ("5f", "cloud", "another")])
def test_gangs_of_other_services_pools_and_tokens_have_other_names(other):
    service, name, digest = other
    assert GangName(service, name, NAME.key, digest).owner != NAME.owner
    assert len(NAME.pod(999)) <= 63  # else a pod's host name is cut
