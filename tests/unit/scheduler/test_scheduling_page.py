"""Run the examples of docs/explanation/scheduling.md."""

from __future__ import annotations

import doctest
from pathlib import Path

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.cluster.site_load import OtherRequest, SiteLoad
from kernel_backend.model.experiment import FIRST
from kernel_backend.model.states import Outcome
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.run_lengths import Lengths
from kernel_backend.scheduler.speedup import Progress
from kernel_backend.text import estimate_text
from tests.support.clusters import Cluster, nodes

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "scheduling.md"


def test_every_example_of_the_page_says_what_happens():
    names = {"Cluster": Cluster, "nodes": nodes, "Quota": Quota, "FIRST": FIRST, "Rules": Rules, "Server": Server}
    names |= {"Outcome": Outcome, "Progress": Progress, "OtherRequest": OtherRequest, "SiteLoad": SiteLoad}
    names |= {"Key": RequestKey, "Lengths": Lengths, "explain": explain, "estimate_text": estimate_text}
    done = doctest.testfile(str(PAGE), module_relative=False, globs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert done.attempted > 50
    assert done.failed == 0
