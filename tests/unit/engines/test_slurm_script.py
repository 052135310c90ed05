"""Test that the options of sbatch and the script request what a gang needs, for any shape and pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.engines.slurm.commands import cleaned
from kernel_backend.engines.slurm.script import comment, job_env, sbatch_options, scratch_folder, script, step_script
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.staging import VARIABLE, StagingRequest
from tests.support.builders import share

FOLDER = Path("/home/ada/100%/attempts/1.1-1")
SCRATCH = Path("/scratch/my disk/5f")


def pool(**settings) -> Pool:
    return Pool(name="gpu", settings=PoolSettings(engine="slurm", **settings))


def job(*shares: int, kind: str = "cpu", **fields) -> LaunchSpec:
    """Return a gang's launch spec with this many slots on each of its placeholder nodes."""
    return LaunchSpec(
        experiment=1,
        trial=1,
        attempt=1,
        config=fields.pop("config", Config(slots=sum(shares))),
        params={},
        placement=tuple(share(tuple(range(slots)), f"any{node}", kind) for node, slots in enumerate(shares)),
        python="/opt/my python/bin/python",
        cwd="/home/ada/project",
        code="/code",
        snapshot="0" * 64,
        checkpoints="/checkpoints",
        home="/home/ada/100%",
        pool="gpu",
        **fields,
    )


def size(job: LaunchSpec, pool: Pool) -> str:
    return " ".join(sbatch_options(job, pool, FOLDER, "c")[8:])


def test_a_job_has_the_name_of_its_attempt_and_is_never_requeued():
    words = sbatch_options(
        job(2), pool(partition="a100", account="vision", qos="long"), FOLDER, "daylight:s:gpu:1.1-1:0"
    )
    assert words[:5] == [
        "--parsable",
        "--no-requeue",
        "--job-name=daylight-1.1-1",
        "--comment=daylight:s:gpu:1.1-1:0",
        "--chdir=/home/ada/project",
    ]
    assert "--output=/home/ada/100%%/attempts/1.1-1/launcher.log" in words  # sbatch replaces %
    assert [word for word in words if word.startswith(("--part", "--acc", "--qos", "--const"))] == [
        "--partition=a100",
        "--account=vision",
        "--qos=long",
    ]


@pytest.mark.parametrize(
    ("shares", "kind", "settings", "options"),
    [
        ((2,), "cpu", {}, "--nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=2"),
        (
            (4, 4),
            "cuda",
            {"cpus_per_slot": 6, "gpu_type": "a100", "memory_per_slot": 1000},
            "--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=24 --gres=gpu:a100:4 --mem=4000M",
        ),
        ((8, 4), "cuda", {}, "--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=6 --gres=gpu:6"),
        (
            (2, 1),
            "cuda",
            {"cpus_per_slot": 4, "memory_per_slot": 1000},
            "--nodes=2 --ntasks=2 --ntasks-per-node=1 --gpus=3 --cpus-per-gpu=4 --mem-per-gpu=1000M",
        ),
        (
            (2, 1),
            "cpu",
            {"cpus_per_slot": 3, "memory_per_slot": 1000},
            "--nodes=2 --ntasks=3 --cpus-per-task=3 --mem-per-cpu=334M",
        ),
        ((2,), "cpu", {"extra": ("--time=60", "--mem=0")}, "--cpus-per-task=2 --time=60 --mem=0"),
    ],
)
def test_shares_are_equal_where_they_can_be(shares, kind, settings, options):
    assert size(job(*shares, kind=kind), pool(**settings)).endswith(options)


def test_a_gang_on_one_node_has_one_launcher():
    assert script(job(2), pool(), FOLDER, SCRATCH).splitlines() == [
        "#!/bin/sh",
        "export DAYLIGHT_SLOTS_OF_NODES='2(x1)'",
        "exec srun --mpi=none --input=none --cpu-bind=none --kill-on-bad-exit=1 --nodes=1 --ntasks=1 "
        "--ntasks-per-node=1 --cpus-per-task=2 '/opt/my python/bin/python' -P -m kernel_backend.launch "
        "/home/ada/100%/attempts/1.1-1 --step slurm",
    ]


def test_launchers_of_several_nodes_meet_and_know_their_shares():
    equal, unequal = script(job(2, 2), pool(), FOLDER, SCRATCH), script(job(2, 1), pool(), FOLDER, SCRATCH)
    assert equal.endswith(" --step slurm\n")
    assert "export DAYLIGHT_SLOTS_OF_NODES='2(x2)'" in equal
    assert "--cpus-per-task=2" in equal
    assert 'export DAYLIGHT_SLOTS_OF_NODES="$SLURM_TASKS_PER_NODE"' in unequal
    assert "--cpus-per-task" not in unequal


def test_a_comment_tells_services_attempts_and_tokens_apart():
    comments = {comment(service, job(2), digest) for service in ("a", "b") for digest in ("0" * 64, "1" * 64)}
    assert len(comments) == 4
    assert "daylight:a:gpu:1.1-1:0000000000000000" in comments


def test_the_environment_is_free_of_a_surrounding_job_and_of_options_for_slurm():
    base = {"SLURM_CONF": "/c", "SLURM_JOB_ID": "4", "SLURMD_NODENAME": "n", "SLURM_JWT": "x", "SBATCH_QOS": "q"}
    assert cleaned({**base, "PMI_RANK": "0", "HOME": "/h"}) == {"SLURM_CONF": "/c", "HOME": "/h"}


def test_a_job_is_marked_as_its_attempts_and_a_locked_environment_is_alone():
    base = {"PYTHONPATH": "/p", "HOME": "/h", "DAYLIGHT_HOME": "/another"}
    mine = {"DAYLIGHT_ATTEMPT": str(FOLDER), "DAYLIGHT_HOME": "/home/ada/100%"}
    locked = job(2, config=Config(slots=2, env="locked"))
    assert job_env(base, job(2), pool(), FOLDER, SCRATCH, "secret") == {"PYTHONPATH": "/p", "HOME": "/h", **mine}
    assert job_env(base, locked, pool(), FOLDER, SCRATCH, "secret") == {"HOME": "/h", **mine}


def test_a_pool_says_where_its_nodes_keep_remote_data_and_else_the_services_environment():
    nvme, theirs = pool(cache="/nvme/data", cache_gb=500), {"DAYLIGHT_CACHE": "/service"}
    env = job_env(theirs, job(2), nvme, FOLDER, SCRATCH, "secret")
    assert (env["DAYLIGHT_CACHE"], env["DAYLIGHT_CACHE_GB"]) == ("/nvme/data", "500")
    assert job_env(theirs, job(2), pool(), FOLDER, SCRATCH, "secret")["DAYLIGHT_CACHE"] == "/service"
    assert "export DAYLIGHT_CACHE=/nvme/data" in step_script(job(2), nvme, FOLDER).splitlines()


def test_a_job_whose_nodes_see_no_home_has_its_secret_in_the_environment_alone():
    staged = job(2, 2, staged=True, service_urls=("http://login:7070",), service_uid=1000)
    text, options = script(staged, pool(shared=False), FOLDER, SCRATCH), sbatch_options(staged, pool(), FOLDER, "c")
    assert "secret" not in text
    assert "--output=/dev/null" in options
    assert "--chdir=/" in options
    assert str(FOLDER) not in text + "".join(options)
    out = "'/scratch/my disk/5f/1.1-1.out'"
    prepared = f"mkdir -p '/scratch/my disk/5f' && (: >>{out}) && exec >>{out} 2>&1"
    assert text.splitlines()[1:3] == ["umask 077", prepared]
    assert text.endswith(" -P -m kernel_backend.staging --step slurm\n")
    env = job_env({"DAYLIGHT_HOME": "/another", "HOME": "/h"}, staged, pool(), FOLDER, SCRATCH, "secret")
    request = StagingRequest.model_validate_json(env.pop(VARIABLE))
    assert env == {"HOME": "/h", "DAYLIGHT_SCRATCH": str(SCRATCH)}
    assert (request.key, request.token, request.urls) == ("1.1-1", "secret", ("http://login:7070",))


def test_files_of_trainings_lie_in_the_cache_folder_or_where_the_pool_says():
    home = {"HOME": "/home/ada"}
    assert scratch_folder(home, pool(), "5f") == Path("/home/ada/.cache/daylight/5f")
    assert scratch_folder({**home, "XDG_CACHE_HOME": "/cache"}, pool(), "5f") == Path("/cache/daylight/5f")
    assert scratch_folder(home, pool(scratch="/local/ada"), "5f") == Path("/local/ada/5f")
