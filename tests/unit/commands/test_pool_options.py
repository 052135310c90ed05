"""Test that the options of `pool add` are the fields of PoolSettings, so that a new setting needs no extra code."""

from __future__ import annotations

import re
import shlex

import pytest

from kernel_backend.commands.pools import POOL
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.pools import PoolSettings, changes, read_pool
from kernel_backend.text.pools import options

WHOLE = PoolSettings(
    engine="slurm",
    partition="a100",
    account="vision",
    qos="high",
    constraint="nvlink",
    gpu_type="a100",
    gpus=False,
    cpus_per_slot=8,
    memory_per_slot=16_000,
    extra=("--reservation=course", "-x"),
    most_slots=64,
    most_waiting=3,
    keep_idle=45.5,
    shared=False,
    scratch="/local/ada",
    cache="/nvme/daylight",
    cache_gb=500,
    interface="ib0",
    join_timeout=90.5,
    price=1.5,
)

CLOUD = PoolSettings(
    engine="kubernetes",
    image="registry/team/daylight:1",
    namespace="ml",
    context="prod",
    service_account="trainer",
    node_selector=("gpu=a100", "zone=a"),
    tolerations=("team=vision:NoSchedule", "nvidia.com/gpu"),
    priority_class="low",
    queue="team",
    scheduler="scheduler-plugins-scheduler",
    resource="amd.com/gpu",
    shared_devices=True,
    node_slots=8,
    shm_gb=16,
    volumes=("home:/home", "data:/data:ro"),
    python="/opt/python",
    placement_timeout=90,
    keep_idle=30,
    shared=False,
)


def test_each_setting_has_an_option_with_its_description():
    found = {option.dest: option for option in POOL.arguments if option.dest not in ("words", "json")}
    assert list(found) == list(PoolSettings.model_fields)
    assert all(found[name].help == field.description for name, field in PoolSettings.model_fields.items())


def test_the_examples_set_every_field():
    set_by = WHOLE.model_dump(exclude_defaults=True).keys() | CLOUD.model_dump(exclude_defaults=True).keys()
    assert set_by == PoolSettings.model_fields.keys()


@pytest.mark.parametrize(
    "settings", [WHOLE, CLOUD, PoolSettings(engine="slurm"), PoolSettings(engine="slurm", gpus=True)]
)
def test_options_that_are_written_are_read_back(settings: PoolSettings):
    parsed = POOL.parse(["add", "gpu", *shlex.split(options(settings))], "terminal")
    given = {name: value for name in PoolSettings.model_fields if (value := getattr(parsed, name)) is not None}
    assert read_pool("gpu", given).settings == settings


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"engine": "slurm", "image": "x"}, "image is a setting of pools with the engine kubernetes, not slurm"),
        (
            {"engine": "kubernetes", "image": "x", "partition": "a"},
            "partition is a setting of pools with the engine slurm",
        ),
        ({"engine": "slurm", "cache": "nvme"}, "cache: 'nvme' must be an absolute path on the nodes"),
        ({"engine": "kubernetes"}, "name a container image with Daylight"),
        ({"engine": "kubernetes", "image": "x", "shared": True}, "name the volume claim with the service's home"),
        ({"engine": "kubernetes", "image": "x", "volumes": ["data"]}, "'data' must be written as claim:/path"),
        ({"engine": "kubernetes", "image": "x", "node_selector": ["gpu"]}, "'gpu' must be written as label=value"),
        (
            {"engine": "kubernetes", "image": "x", "tolerations": ["a:b"]},
            "'a:b' must be written as key=value:NoSchedule",
        ),
    ],
)
def test_a_setting_of_another_engine_or_form_is_refused(given, problem):
    with pytest.raises(InvalidRequest, match=re.escape(problem)):
        read_pool("cloud", given)


def test_kubernetes_own_forms_are_read_too():
    written = {
        "node_selector": {"gpu": "a100"},
        "tolerations": [{"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}],
        "volumes": [{"claim": "data", "at": "/data", "read_only": True}],
    }
    settings = read_pool("cloud", {"engine": "kubernetes", "image": "x", **written}).settings
    assert (settings.node_selector, settings.shared) == (("gpu=a100",), False)
    assert (settings.tolerations, settings.volumes) == (("team=vision:NoSchedule",), ("data:/data:ro",))


def test_changes_name_old_and_new_values():
    plain = PoolSettings(engine="slurm")
    assert changes(plain, plain) == []
    assert changes(plain, PoolSettings(engine="slurm", gpus=True, join_timeout=60)) == [
        "gpus default -> yes",
        "join_timeout default -> 60",
    ]
    assert changes(None, PoolSettings(engine="slurm", extra=("-x", "--y=1"))) == ["engine slurm", "extra -x --y=1"]
