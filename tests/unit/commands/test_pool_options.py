"""The options of `pool add` are the fields of PoolSettings: a new setting needs no line for them."""

from __future__ import annotations

import shlex

import pytest

from kernel_backend.commands.pools import POOL
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
    shared=False,
    scratch="/local/ada",
    interface="ib0",
    join_timeout=90.5,
)


def test_each_setting_has_an_option_with_its_description():
    found = {option.dest: option for option in POOL.arguments if option.dest not in ("words", "json")}
    assert list(found) == list(PoolSettings.model_fields)
    assert all(found[name].help == field.description for name, field in PoolSettings.model_fields.items())


def test_the_example_sets_every_field():
    assert WHOLE.model_dump(exclude_defaults=True).keys() == PoolSettings.model_fields.keys()


@pytest.mark.parametrize("settings", [WHOLE, PoolSettings(engine="slurm"), PoolSettings(engine="slurm", gpus=True)])
def test_options_that_are_written_are_read_back(settings: PoolSettings):
    parsed = POOL.parse(["add", "gpu", *shlex.split(options(settings))], "terminal")
    given = {name: value for name in PoolSettings.model_fields if (value := getattr(parsed, name)) is not None}
    assert read_pool("gpu", given).settings == settings


def test_changes_name_old_and_new_values():
    plain = PoolSettings(engine="slurm")
    assert changes(plain, plain) == []
    assert changes(plain, PoolSettings(engine="slurm", gpus=True, join_timeout=60)) == [
        "gpus default -> yes",
        "join_timeout default -> 60",
    ]
    assert changes(None, PoolSettings(engine="slurm", extra=("-x", "--y=1"))) == ["engine slurm", "extra -x --y=1"]
