"""What is free in a partition, and who waits for it, is read from Slurm's own tables."""

from __future__ import annotations

from typing import Any

from kernel_backend.engines.slurm.parse import parse_sinfo
from kernel_backend.engines.slurm.site_load import (
    free_slots,
    gives_whole_nodes,
    hides_jobs,
    is_ending,
    parse_nodes,
    partitions_of,
    pending,
)
from kernel_backend.model.cluster.pools import Pool, read_pool
from kernel_backend.model.resources import Node

SINFO = """\
n1|main|mixed|16|gpu:a100:4|none
n2|main|idle|16|gpu:a100:4|none
n3|main|down*|16|gpu:a100:4|Not responding
"""
# As `scontrol -d -o show node` of Slurm 22.05 prints it, shortened.
NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8 CPUAlloc=6 CPUEfctv=16 CPUTot=16 CPULoad=0.1 Gres=gpu:a100:4(S:0) \
GresDrain=N/A GresUsed=gpu:a100:3(IDX:0-2) State=MIXED Partitions=main,short AllocTRES=cpu=6
NodeName=n2 CPUAlloc=0 CPUTot=16 Gres=gpu:a100:4 GresUsed=gpu:a100:0(IDX:N/A) State=IDLE Partitions=main
NodeName=n3 CPUAlloc=0 CPUTot=16 Gres=gpu:a100:4 GresUsed=gpu:0 State=DOWN* Partitions=main
NodeName=n9 CPUAlloc=1 CPUTot=2 State=MIXED Partitions=other
"""
MARK = "daylight:5f:gpu:"


def pool(**settings: Any) -> Pool:
    return read_pool("gpu", {"engine": "slurm", "partition": "main", **settings})


def of(pool: Pool) -> list[Node]:
    return parse_sinfo(SINFO, pool)


def waiting(text: str, **settings: Any) -> list[tuple[str, int, bool]]:
    here = pool(**settings)
    return [(each.name, each.slots, each.one_node) for each in pending(text, here, of(here), MARK)]


def test_a_slot_is_free_with_its_gpu_and_its_cpus():
    use = parse_nodes(NODES)
    assert free_slots(use, of(pool()), pool()) == {"n1": 1, "n2": 4}
    narrow = pool(cpus_per_slot=8)
    assert free_slots(use, of(narrow), narrow) == {"n1": 1, "n2": 2}
    cpus = pool(gpus=False, cpus_per_slot=3)
    assert free_slots(use, of(cpus), cpus) == {"n1": 3, "n2": 5}


def test_jobs_of_all_partitions_that_share_a_node_are_looked_at():
    assert partitions_of(parse_nodes(NODES), {"n1", "n2"}) == ["main", "short"]


def test_pending_jobs_of_others_wait_if_a_node_is_what_they_lack():
    rows = [
        "31|bob|PENDING|Resources|8|2|gres/gpu:2|OK|",
        "32|cy|PENDING|Priority|2|1|gres:gpu:a100:1|OK|a comment|with a bar",
        "33|di|PENDING|None|4|1|N/A|OK|",
        "34|di|PENDING|Dependency|4|1|N/A|OK|",
        "35|di|PENDING|QOSMaxGRESPerUser|4|1|gres/gpu:1|OK|",
        "36|di|PENDING|JobHeldUser|4|1|gres/gpu:1|OK|",
        f"37|ada|PENDING|Resources|4|1|gres/gpu:1|OK|{MARK}1.1-1:abc",
        "38|ada|PENDING|Resources|4|1|gres/gpu:4|OK|daylight:77:gpu:1.1-1:abc",
        "39|ada|COMPLETING|None|4|1|gres/gpu:4|OK|",
    ]
    assert waiting("\n".join(rows)) == [
        ("job 31 of bob", 8, False),
        ("job 32 of cy", 2, True),
        ("job 33 of di", 4, True),
        ("job 38 of ada", 4, True),
    ]


def test_a_job_asks_for_no_more_slots_than_its_nodes_have():
    assert waiting("31|bob|PENDING|Resources|64|1|N/A|OK|") == [("job 31 of bob", 4, True)]


def test_a_job_that_wants_its_nodes_for_itself_waits_for_all_of_their_slots():
    assert waiting("31|bob|PENDING|Resources|1|2|N/A|NO|") == [("job 31 of bob", 8, False)]


def test_own_jobs_that_leave_their_nodes_are_waited_for():
    rows = ["38|ada|COMPLETING|None|4|1|N/A|OK|daylight:77:gpu:1.1-1:abc", f"39|ada|PENDING|None|4|1|N/A|OK|{MARK}x"]
    assert not is_ending("\n".join(rows), MARK)
    assert is_ending("\n".join([*rows, f"40|ada|COMPLETING|None|4|1|N/A|OK|{MARK}1.1-1:abc"]), MARK)


def test_rules_of_the_site_are_read():
    assert not hides_jobs("PrivateData             = none\n")
    assert hides_jobs("PriorityWeightAge = 0\nPrivateData             = jobs,usage\n")
    assert gives_whole_nodes("main|EXCLUSIVE\n")
    assert not gives_whole_nodes("other|EXCLUSIVE\nmain*|NO\n")
