"""Test that gangs of Kubernetes are never lost or duplicated, whatever the API server answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_backend.engines.base import CheckContext, EngineUnavailable
from kernel_backend.engines.kubernetes import events, leftovers, pods, watch
from kernel_backend.engines.kubernetes.cluster import nodes
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.engines.kubernetes.objects import GangObjects
from kernel_backend.engines.kubernetes.submission import read_submission, write_submission
from kernel_backend.engines.probing.callers import CallingProbes
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.states import Outcome
from tests.engines.contract import ended, until
from tests.engines.contract import status as status_of
from tests.support.builders import share
from tests.support.kubernetes_stub import Cluster, Cut, Manifest, Refusal, Request, Stub, at_random

TWO_NODES = (share((0, 1), "n1"), share((0, 1), "n2"))


def always(make: Callable[[], Exception], method: str = "") -> Callable[[Request], None]:
    """Return a fault for all requests, or for those with one method."""

    def fault(request: Request) -> None:
        if method in ("", request.request.method):
            raise make()

    return fault


def broken(stub: Stub, make: Callable[[], Exception], method: str = "") -> None:
    stub.do(lambda cluster: cluster.before.append(always(make, method)))


def mend(stub: Stub) -> None:
    def act(cluster: Cluster) -> None:
        for each in (cluster.before, cluster.after, cluster.forbidden):
            each.clear()

    stub.do(act)


async def reason(engine: KubernetesEngine, job: LaunchSpec) -> str:
    found = await status_of(engine, job.id)
    assert found is not None
    assert found.phase == "pending", found
    return found.reason


async def submitted(engine: KubernetesEngine, stub: Stub, count: int = 1) -> None:
    async def look() -> bool:
        await engine.statuses()
        return len(stub.pods()) == count

    await until(look, f"{count} pods are created")


def test_a_gang_beyond_the_quota_waits_with_its_numbers_and_holds_nothing(stub, make, job):
    async def go():
        engine, gang = make(), job(placement=TWO_NODES)
        stub.do(lambda cluster: cluster.quota.update(pods=2))
        await engine.submit(job(2), "a")
        await engine.submit(gang, "b")
        assert (
            await reason(engine, gang) == "Kubernetes: quota gpus of the namespace: pods 2 of 2 in use, 1 more wanted"
        )
        await submitted(engine, stub, 1)  # the half that was accepted is given back, also by another try that runs now
        await engine.submit(job(3), "c")
        assert "quota gpus" in await reason(engine, job(3))  # it fits, and waits behind the other
        stub.do(lambda cluster: cluster.quota.clear())
        await submitted(engine, stub, 4)

    asyncio.run(go())


def test_a_gang_that_the_quota_never_admits_ends_with_what_to_change(stub, make, job):
    async def go():
        engine = make()
        stub.do(lambda cluster: cluster.quota.update({"requests.cpu": 1}))
        await engine.submit(job(), "a")
        found = await ended(engine, job().id)
        assert found.outcome is Outcome.INFEASIBLE
        assert "request fewer slots" in found.result.failure.message

    asyncio.run(go())


def test_without_a_right_a_gang_waits_until_it_is_granted(stub, make, job):
    async def go():
        engine = make()
        stub.do(lambda cluster: cluster.forbidden.add(("create", "pods")))
        await engine.submit(job(), "a")
        assert 'User "ada" cannot create resource "pods"' in await reason(engine, job())
        mend(stub)
        await submitted(engine, stub)

    asyncio.run(go())


def test_a_namespace_that_is_gone_is_told(stub, make, job):
    async def go():
        engine = make(namespace="nope")
        await engine.submit(job(), "a")
        assert await reason(engine, job()) == 'Kubernetes: namespaces "nope" not found'

    asyncio.run(go())


def test_a_token_that_has_expired_is_told(stub, make, job):
    async def go():
        engine = make()
        broken(stub, lambda: Refusal(401, "Unauthorized", "Unauthorized"))
        with pytest.raises(EngineUnavailable, match="log in to the cluster again"):
            await engine.nodes()
        await engine.submit(job(), "a")
        assert "log in" in await reason(engine, job())
        mend(stub)
        await submitted(engine, stub)

    asyncio.run(go())


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_server_that_falls_silent_midway_makes_no_second_gang(stub, make, job, lost):
    async def go():
        engine = make()
        stub.do(lambda cluster: getattr(cluster, lost).append(always(Cut, "POST")))
        await engine.submit(job(), "a")
        assert lost == "after" or "does not answer" in await reason(engine, job())
        mend(stub)
        await submitted(engine, stub)
        assert set(stub.do(lambda cluster: dict(cluster.created)).values()) == {1}

    asyncio.run(go())


def test_a_submission_that_was_cut_is_completed_by_the_next_service(stub, make, job, tmp_path):
    async def go():
        engine, folder = make(), AttemptFolder(attempt_folder(tmp_path / "home", job().id))
        await engine.submit(job(placement=TWO_NODES), "a")
        (first, second) = sorted(pod["metadata"]["name"] for pod in stub.pods())
        stub.do(lambda cluster: cluster.delete("pods", second, {}))
        write_submission(folder, read_submission(folder).model_copy(update={"uid": "", "at": time.time() - 60}))
        await submitted(make(), stub, 2)
        assert stub.do(lambda cluster: cluster.created[first]) == 1

    asyncio.run(go())


def test_a_gang_that_is_released_while_it_waits_leaves_nothing(stub, make, job):
    async def go():
        engine = make()
        broken(stub, Cut, "POST")
        await engine.submit(job(), "a")
        await engine.release(job().id)
        assert (await ended(engine, job().id)).outcome is Outcome.RELEASED
        mend(stub)
        await engine.kill(job().id)
        assert stub.do(lambda cluster: list(cluster.objects)) == []

    asyncio.run(go())


def test_pods_are_followed_across_watches_that_are_cut_or_too_old(stub, make, job, kubelet):
    async def go():
        engine = make()
        await engine.submit(job(), "a")

        async def runs():
            return (await status_of(engine, job().id)).phase == "running"

        await until(runs, "the pod runs")
        for number in range(2, 5):
            stub.expire()
            await engine.submit(job(number), "a")
            await until(lambda number=number: is_running(engine, job(number)), "the pod runs")

    async def is_running(engine, gang):
        return (await status_of(engine, gang.id)).phase == "running"

    asyncio.run(go())


def test_a_half_gang_gives_its_nodes_back_and_its_trial_waits(stub, make, job, kubelet):
    async def go():
        stub.do(lambda cluster: cluster.nodes[1]["status"]["allocatable"].update(cpu="1"))
        engine, gang = make(placement_timeout=0.3), job(placement=TWO_NODES)
        await engine.submit(gang, "a")
        found = await ended(engine, gang.id)
        assert (found.outcome, found.result.failure.type) == (Outcome.LOST, "NotPlaced")
        assert "1 of 2 pods have a node; 0/2 nodes are available" in found.result.failure.message
        await engine.kill(gang.id)
        assert stub.pods() == []
        await engine.submit(job(2, placement=TWO_NODES), "b")
        assert "1 of 2 pods have a node" in await reason(engine, job(2))
        assert stub.pods() == []

    asyncio.run(go())


def test_what_an_autoscaler_does_about_a_waiting_pod_is_told(stub, make, job, kubelet, monkeypatch):
    monkeypatch.setattr(watch, "SOON_S", -1.0)
    monkeypatch.setattr(events, "EVERY_S", 0.0)

    async def go():
        stub.do(lambda cluster: [each["status"]["allocatable"].update(cpu="1") for each in cluster.nodes] and None)
        engine = make()
        await engine.submit(job(), "a")
        (pod,) = stub.pods()
        grows = {"reason": "TriggeredScaleUp", "message": "pod triggered scale-up: [{gpu 0->1 (max: 4)}]"}
        stub.do(lambda cluster: cluster.events.update({pod["metadata"]["name"]: [grows]}))

        async def told():
            return "the autoscaler adds nodes (pod triggered scale-up" in await reason(engine, job())

        await until(told, "the event is told")

    asyncio.run(go())


def test_an_image_that_there_is_not_ends_the_gang_with_what_to_change(stub, make, job, kubelet, monkeypatch):
    monkeypatch.setattr(pods, "IMAGE_S", 0.0)

    async def go():
        engine = make(image="missing/image")
        await engine.submit(job(), "a")
        found = await ended(engine, job().id)
        assert found.outcome is Outcome.INFEASIBLE
        assert "ImagePullBackOff" in found.result.failure.message

    asyncio.run(go())


def test_an_interpreter_that_the_image_lacks_is_told(stub, make, job, kubelet):
    async def go():
        engine = make(python="/no/such/python")
        await engine.submit(job(), "a")
        found = await ended(engine, job().id)
        assert (found.outcome, found.result.failure.type) == (Outcome.FAILED, "LauncherFailed")
        assert "/no/such/python" in found.result.failure.message

    asyncio.run(go())


def test_a_pod_that_somebody_deletes_ends_the_gang_as_lost(stub, make, job, kubelet):
    async def go():
        engine = make()
        await engine.submit(job(), "a")

        async def runs():
            return (await status_of(engine, job().id)).phase == "running"

        await until(runs, "the pod runs")
        stub.do(
            lambda cluster: cluster.delete("pods", next(name for kind, name in cluster.objects if kind == "pods"), {})
        )
        found = await ended(engine, job().id)
        assert (found.outcome, found.result.failure.type) == (Outcome.LOST, "Deleted")

    asyncio.run(go())


def test_a_lost_node_ends_the_gang_though_its_pod_is_still_said_to_run(stub, make, job, kubelet, monkeypatch):
    monkeypatch.setattr(nodes, "EVERY_S", 0.0)

    async def go():
        engine = make()
        await engine.submit(job(), "a")

        async def runs():
            return (await status_of(engine, job().id)).phase == "running"

        await until(runs, "the pod runs")
        (pod,) = stub.pods()
        kubelet.lost.add("n1")
        stub.do(lambda cluster: cluster.nodes[0]["status"]["conditions"][0].update(status="Unknown"))
        assert [each.healthy for each in await engine.nodes()] == [True, False]
        stub.do(lambda cluster: cluster.delete("pods", pod["metadata"]["name"], {}))  # as Kubernetes does after 30 s
        found = await ended(engine, job().id)
        assert (found.outcome, found.result.failure.type) == (Outcome.LOST, "NodeLost")
        assert [each.node for each in found.result.problems] == ["n1"]
        assert [each["status"]["phase"] for each in stub.pods()] == ["Running"]
        await engine.kill(job().id)  # confirmed, as nobody can end it: what it commits is refused

    asyncio.run(go())


def test_many_gangs_whose_pods_are_gone_are_found_by_one_request(stub, make, job, monkeypatch):
    monkeypatch.setattr(events, "MOST", 0)  # events of lost pods are read by requests of their own, a few at a time

    async def go():
        engine = make()
        for number in range(1, 31):
            await engine.submit(job(number), "a")
        await submitted(engine, stub, 30)
        stub.do(lambda cluster: [cluster.delete("pods", each["metadata"]["name"], {}) for each in _pods(cluster)])

        async def seen() -> bool:
            before = stub.do(lambda cluster: cluster.requests["GET"])
            ended = [each for each in await engine.statuses() if each.phase == "ended"]
            # A look amid the changes sees only some as gone, and lists the pods of up to watch.FEW gangs one by one.
            assert stub.do(lambda cluster: cluster.requests["GET"]) <= before + watch.FEW + 3
            return len(ended) == 30

        await until(seen, "all are lost")

    asyncio.run(go())


def _pods(cluster: Cluster) -> list[Manifest]:
    return list(cluster.list("pods")["items"])


def test_objects_of_no_gang_are_deleted(stub, make, job, monkeypatch):
    monkeypatch.setattr(leftovers, "YOUNG_S", -1.0)

    async def go():
        await make().submit(job(), "a")
        await make().submit(job(2), "b")
        (attempt_folder(Path(job().home), job().id) / "listed").unlink()
        await submitted(make(), stub, 1)

    asyncio.run(go())


def test_the_pods_of_a_check_whose_service_was_killed_are_deleted(stub, make, kubelet, monkeypatch, tmp_path):
    (tmp_path / "home").mkdir()

    async def checked(engine: KubernetesEngine) -> None:
        probes = CallingProbes()
        context = CheckContext("python3", "s3://bucket/runs", ("http://127.0.0.1:1",), probes=probes)
        await engine.check(context)

    async def go():
        killed = make()
        check = asyncio.create_task(checked(killed))
        await submitted(killed, stub, 2)
        monkeypatch.setattr(leftovers, "YOUNG_S", -1.0)
        monkeypatch.setattr(leftovers, "EVERY_S", 0.0)
        await looked(killed)
        assert len(stub.pods()) == 2  # those of a check in progress stay
        with monkeypatch.context() as dying:
            dying.setattr(GangObjects, "remove", _nothing)
            check.cancel()
            await asyncio.gather(check, return_exceptions=True)
        assert len(stub.pods()) == 2
        await submitted(make(), stub, 0)

    asyncio.run(go())


async def looked(engine: KubernetesEngine) -> None:
    """Let an engine complete a search for leftovers."""
    await engine.statuses()
    (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "leftovers in Kubernetes")
    await task


async def _nothing(objects: GangObjects, owner: str) -> None:
    """Delete nothing, like a service that was killed."""


def test_of_many_submissions_with_faults_none_is_lost_and_none_doubled(stub, make, job):
    """Answers are lost, servers fail, watches are cut, and the service is restarted halfway."""
    count = 60
    fail = [lambda: Refusal(500, "InternalError", "etcd"), lambda: Refusal(429, "TooManyRequests", "slow down"), Cut]

    async def go():
        stub.do(lambda cluster: cluster.before.append(at_random(1, 0.15, *fail)))
        stub.do(lambda cluster: cluster.after.append(at_random(2, 0.15, Cut)))
        engine, gate = make(), asyncio.Semaphore(50)

        async def submit(number: int) -> None:
            async with gate:
                await engine.submit(job(number), f"token {number}")

        await asyncio.gather(*map(submit, range(1, count // 2 + 1)))
        stub.expire()
        engine = make()
        await asyncio.gather(*map(submit, range(count // 4, count + 1)))
        mend(stub)
        await submitted(engine, stub, count)
        found = await engine.statuses()
        assert (len(found), {each.phase for each in found}) == (count, {"pending"})
        assert set(stub.do(lambda cluster: dict(cluster.created)).values()) == {1}

    asyncio.run(go())
