"""Test that a real Prometheus reads `/metrics`, and that the values agree with the API."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from kernel_backend.model.resources import Node
from kernel_backend.model.trial import Failure
from kernel_backend.routes.attempts import ATTEMPT
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, ended, report, started, submit, token_of
from tests.support.ports import free_ports
from tests.support.world import until

ROOT = Path(__file__).parents[2]
HTTP = httpx.Client(timeout=30, trust_env=False)
PATIENCE_S = 120.0
NODES = tuple(Node(name=name, kind="cpu", address="127.0.0.1", slots=2, cores=2) for name in ("n1", "n2"))
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: daylight
    authorization: {{credentials: prometheus}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Served]:
    """Provide two nodes of two slots.

    A training of dave's has ended, another one runs, and one of danielle's waits for three slots.
    """
    hub = FakeHub()
    hub.people["prometheus"] = Person(name="service:prometheus", submits=False, monitors=True)
    served = Served(tmp_path, StillEngine(NODES), identity=hub)
    dave, danielle = served.client("dave"), served.client("danielle")
    for number in (1, 2):
        submit(dave, slots=2, name=f"digits {number}")
        key = AttemptId(number, 1, 1)
        dave.deliver(key, token_of(served, key), Delivery(records=(started(), report(2), report(3, 1.5))))
        if number == 1:
            ended(served, dave, key)
    submit(danielle, slots=3, name="waits")
    yield served
    dave.close()
    danielle.close()
    served.stop()


def scrape(served: Served, token: str = "prometheus", **headers: str) -> httpx.Response:
    return HTTP.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {token}", **headers})


def samples(served: Served) -> dict[str, float]:
    """Return the values by name and labels, as in `daylight_nodes pool=local state=ready`."""
    answer = scrape(served)
    assert answer.status_code == 200, answer.text
    found = [each for family in text_string_to_metric_families(answer.text) for each in family.samples]
    return {
        " ".join([each.name, *(f"{name}={label}" for name, label in sorted(each.labels.items()))]): each.value
        for each in found
    }


def test_the_numbers_are_those_of_the_api(cluster: Served):
    found = samples(cluster)
    admin = cluster.client("ada")
    try:
        (pool,) = admin.pools()
        (waiting,) = admin.queue()
        running = admin.experiment(2).trials[0]
        assert found["daylight_pool_up pool=local"] == 1
        assert found["daylight_slots pool=local state=ready"] == pool.slots == 4
        assert found["daylight_slots_used group=vision pool=local use=training user=dave"] == pool.used == 2
        assert found["daylight_gangs pool=local state=running"] == 1
        assert found["daylight_queued_requests pool=local"] == pool.waiting == 1
        assert found["daylight_queued_slots pool=local"] == waiting.slots == 3
        assert found["daylight_oldest_request_seconds pool=local"] > 0
        assert found["daylight_experiments state=active"] == 2
        assert found["daylight_experiments state=completed"] == 1
        assert found["daylight_attempts_total outcome=ok"] == 1
        assert found["daylight_trial_step experiment=2 trial=1"] == running.step == 3
        assert found["daylight_trial_epoch experiment=2 trial=1"] == running.epoch == 1.5
        assert "daylight_trial_step experiment=1 trial=1" not in found
        assert found[f"daylight_http_request_seconds_count method=POST route={ATTEMPT}/records status=200"] >= 3
        assert found["process_resident_memory_bytes"] > 2**20
        admin.drain("n2")
        assert samples(cluster)["daylight_slots pool=local state=drained"] == 2
    finally:
        admin.close()


def test_a_suspect_node_has_a_state_of_its_own(cluster: Served):
    cluster.engine.end(AttemptId(2, 1, 1), Failure(rank=0, type="RuntimeError", message="uncorrectable ECC error"))
    until(lambda: samples(cluster).get("daylight_slots pool=local state=suspect") == 2, "n1 is suspect")


@pytest.mark.parametrize(("token", "status"), [("ada", 200), ("prometheus", 200), ("dave", 403), ("nobody", 401)])
def test_admins_and_monitoring_systems_alone_read_them(cluster: Served, token: str, status: int):
    answer = scrape(cluster, token)
    assert answer.status_code == status
    if status == 403:
        assert "custom:daylight:monitor" in answer.text


def test_a_monitoring_system_may_do_nothing_else(cluster: Served):
    monitor = {"Authorization": "Bearer prometheus"}
    for method, path in (("GET", "/api/experiments/2"), ("POST", "/api/experiments/2/stop"), ("GET", "/api/audit")):
        assert HTTP.request(method, cluster.url + path, headers=monitor).status_code in (403, 404)


def test_openmetrics_is_answered_where_it_is_asked_for(cluster: Served):
    answer = scrape(cluster, Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_the_dashboard_reads_only_metrics_that_there_are(cluster: Served):
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "daylight.json").read_text())
    asked = "\n".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked += " " + dashboard["templating"]["list"][1]["query"]["query"]
    names = set(re.findall(r"\b(?:daylight|process)_\w+", asked))
    assert len(names) > 10
    assert names <= {sample.partition(" ")[0] for sample in samples(cluster)}


@pytest.fixture
def prometheus(cluster: Served, tmp_path: Path) -> Iterator[str]:
    """Provide the address of a real Prometheus that reads the cluster's metrics every second."""
    binary = shutil.which("prometheus")
    if binary is None:
        assert not os.environ.get("CI"), "Prometheus is missing: .ci/run installs it"
        pytest.skip("Prometheus is not installed (Debian: apt-get install prometheus)")
    (port,) = free_ports(1)
    config = tmp_path / "prometheus.yml"
    config.write_text(CONFIG.format(port=cluster.port))
    command = [binary, f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/tsdb"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_real_prometheus_scrapes_it(cluster: Served, prometheus: str):
    assert value(prometheus, "up") == 1
    assert value(prometheus, 'sum(daylight_slots_used{user="dave"})') == 2
    assert value(prometheus, "daylight_queued_slots") == 3
    assert value(prometheus, 'daylight_attempts_total{outcome="ok"}') == 1


def value(prometheus: str, query: str) -> float:
    """Wait until a query has a value, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            answer = HTTP.get(f"{prometheus}/api/v1/query", params={"query": query}).json()
            if answer["data"]["result"]:
                return float(answer["data"]["result"][0]["value"][1])
        except (httpx.HTTPError, KeyError, ValueError):
            pass  # it is starting
        time.sleep(0.3)
    raise AssertionError(f"Prometheus has no value of {query}")
