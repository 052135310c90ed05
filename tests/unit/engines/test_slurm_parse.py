"""Test parsing the output of Slurm's commands, and the advice on their error messages."""

from __future__ import annotations

from datetime import datetime

import pytest

from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.parse import (
    SlurmJob,
    never,
    no_answer,
    parse_job_id,
    parse_sinfo,
    parse_squeue,
    refusal_advice,
    sentence,
    too_many,
    wait_text,
    was_preempted,
)
from kernel_backend.model.cluster.pools import Pool, PoolSettings

NOW = datetime(2026, 11, 26, 12, 0)
NODES = """\
n1|main*|idle|8|gpu:a100:4(S:0-1),nic:1|none
n1|small|idle|8|gpu:a100:4(S:0-1),nic:1|none
n2|main*|mixed|8|gpu:a100:2,gpu:h100:2|none
n3|main*|idle*|8|(null)|Not responding
n4|main*|draining|8|gpu:2|fans | smoke
"""


def pool(**settings) -> Pool:
    return Pool(name="gpu", settings=PoolSettings(engine="slurm", **settings))


def job(state: str = "PENDING", reason: str = "Resources", start: str = "N/A", id: str = "7") -> SlurmJob:
    return SlurmJob(id, state, reason, "", start, "daylight:a:gpu:1.1-1:0")


def test_a_line_of_squeue_is_a_job_whose_comment_may_hold_anything():
    jobs = parse_squeue(
        "7|RUNNING|None|n[1-2]|2026-11-26T11:00:00|9:58|a|b\nslurm: garbage\n8|PENDING|Priority||N/A|1:00:00|(null)\n"
    )
    assert jobs["7"] == SlurmJob("7", "RUNNING", "None", "n[1-2]", "2026-11-26T11:00:00", "a|b", "9:58")
    assert list(jobs) == ["7", "8"]


def test_a_job_is_found_by_number_and_comment_or_by_comment_alone():
    queue = Queue({"7": job(id="7"), "12": job(id="12"), "13": job(id="13")._replace(comment="another's")})
    assert queue.find("7", job().comment) == job(id="7")
    assert queue.find("13", job().comment) is None  # a Slurm without its state began again with 1
    assert queue.find("", job().comment) == job(id="12")
    assert queue.find("", "nobody's") is None


@pytest.mark.parametrize("text", ["12\n", "12;cluster\n", "sbatch: site says hello\n12\n"])
def test_the_number_of_a_new_job(text):
    assert parse_job_id(text) == "12"


def test_an_answer_of_sbatch_without_a_number_is_an_error():
    with pytest.raises(ValueError, match="no job id: 'hello'"):
        parse_job_id("hello\n")


def test_slots_are_gpus_where_the_partition_has_any():
    nodes = parse_sinfo(NODES, pool())
    assert [(node.name, node.kind, node.slots, node.devices[:1]) for node in nodes] == [
        ("n1", "cuda", 4, ("a100",)),
        ("n2", "cuda", 4, ("a100",)),
        ("n3", "cuda", 0, ()),
        ("n4", "cuda", 2, ("gpu",)),
    ]
    assert [(node.healthy, node.drained) for node in nodes] == [
        (True, False),
        (True, False),
        (False, False),  # it does not answer
        (False, True),
    ]


def test_the_states_and_reasons_of_nodes_are_slurms():
    nodes = parse_sinfo(NODES, pool())
    assert [(node.state, node.reason) for node in nodes] == [
        ("idle", ""),
        ("mixed", ""),
        ("idle*", "Not responding"),
        ("draining", "fans | smoke"),
    ]


def test_only_gpus_of_the_pools_type_are_slots():
    assert [node.slots for node in parse_sinfo(NODES, pool(gpu_type="h100"))] == [0, 2, 0, 0]


def test_slots_are_shares_of_cpus_where_the_pool_says_so():
    assert [node.slots for node in parse_sinfo(NODES, pool(gpus=False, cpus_per_slot=3))] == [2, 2, 2, 2]


def test_a_pool_has_no_more_slots_than_its_largest_number():
    assert [node.slots for node in parse_sinfo(NODES, pool(most_slots=6))] == [4, 2, 0, 0]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (job(), "Slurm: Resources"),
        (job(reason="None"), "Slurm: submitted"),
        (job(start="2026-11-26T14:20:00"), "Slurm: Resources, expected to start 14:20"),
        (job(start="2026-11-27T14:20:00"), "Slurm: Resources, expected to start 2026-11-27 14:20"),
        (job(start="2026-11-26T11:20:00"), "Slurm: Resources"),
        (job(reason="QOSMaxGRESPerUser"), "Slurm: QOSMaxGRESPerUser (your site's limit for you)"),
        (job(reason="AssocGrpGRES"), "Slurm: AssocGrpGRES (your site's limit for your account)"),
        (job(reason="QOSGrpCpuLimit"), "Slurm: QOSGrpCpuLimit (your site's limit for this QOS)"),
        (job(reason="JobHeldUser"), "Slurm: JobHeldUser (scontrol release 7 lifts it)"),
        (job(state="CONFIGURING"), "Slurm: its nodes are being booted"),
    ],
)
def test_a_wait_is_explained_in_the_sites_words(found, text):
    assert wait_text(found, NOW) == text


@pytest.mark.parametrize(
    "reason", ["PartitionConfig", "PartitionNodeLimit", "BadConstraints", "QOSMaxNodePerJobLimit", "QOSMinGRES"]
)
def test_a_job_that_can_never_start_is_told_what_to_change(reason):
    assert never(reason)


@pytest.mark.parametrize(
    "reason",
    ["None", "Resources", "Priority", "QOSMaxGRESPerUser", "AssocGrpGRES", "PartitionDown", "ReqNodeNotAvail, May be"],
)
def test_a_wait_that_ends_by_itself_is_no_refusal(reason):
    assert never(reason) == ""


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (
            "sbatch: error: invalid partition specified: nope\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "invalid partition specified: nope; Invalid partition name specified",
        ),
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
            "Unable to contact slurm controller (connect failure)",
        ),
        (
            "sbatch: unrecognized option '--wrong=1'\nTry \"sbatch --help\" for more information\n",
            "unrecognized option '--wrong=1'",
        ),
    ],
)
def test_a_complaint_loses_its_prefixes(errors, said):
    assert sentence(errors) == said


@pytest.mark.parametrize(
    ("errors", "later"),
    [
        ("squeue: error: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Munge encode failed: Failed to access", True),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", False),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", False),
    ],
)
def test_a_controller_that_does_not_answer_is_told_from_a_refusal(errors, later):
    assert no_answer(errors) is later


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        ("Invalid partition name specified", "change `partition`"),
        ("Invalid account or account/partition combination specified", "change `account`"),
        ("Invalid qos specification", "change `qos`"),
        ("QOSMaxGRESPerUser; Job violates accounting/QOS policy (...)", "request less"),
        ("Requested node configuration is not available", "request fewer slots"),
    ],
)
def test_a_refusal_comes_with_what_to_change(refusal, advice):
    assert advice in refusal_advice(refusal)


def test_a_full_queue_is_no_refusal_for_good():
    assert too_many("QOSMaxSubmitJobPerUserLimit; Job violates accounting/QOS policy (job submit limit, ...)")
    assert too_many("Job violates accounting/QOS policy (job submit limit, ...)")  # where it names no limit
    assert not too_many("QOSMaxWallDurationPerJobLimit; Job violates accounting/QOS policy (job submit limit, ...)")
    assert not too_many("Invalid qos specification")


def test_a_preemption_is_told_by_its_time():
    assert was_preempted("JobState=TIMEOUT PreemptEligibleTime=2026-11-26T11:42:53 PreemptTime=2026-11-26T11:43:01")
    assert not was_preempted("JobState=TIMEOUT PreemptEligibleTime=2026-11-26T11:42:53 PreemptTime=None")
