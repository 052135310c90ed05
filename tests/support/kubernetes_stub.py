"""Simulate a Kubernetes API server: lists, watches, creations and deletions, with faults on demand."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from tests.support import kueue
from tests.support.pod_processes import Manifest, is_over, stamp

ROOT = Path(__file__).parents[2]
Fault = Callable[["Request"], None]


class Refusal(Exception):
    """Fault: the server answers with this error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Cut(Exception):
    """Fault: the server closes the connection without an answer."""


class Cluster:
    """Objects of a simulated cluster with their history, used only by the server's thread."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}  # by kind and name, which no two namespaces share
        self.nodes: list[Manifest] = []
        self.quota: dict[str, int] = {}  # most pods, or of another resource that they request
        self.events: dict[str, list[Manifest]] = {}  # by name of the pod
        self.used: set[tuple[str, str]] = set()  # verb and kind of every call
        self.forbidden: set[tuple[str, str]] = set()  # verb and kind without a right
        self.groups: dict[
            str, list[str]
        ] = {}  # resources by version of a further API, such as `kueue.x-k8s.io/v1beta1`
        self.namespace = "ml"
        self.history: list[tuple[int, str, Manifest]] = []
        self.oldest = 0  # resource version from which the history is known
        self.created = Counter[str]()  # how often an object of each name was created
        self.requests = Counter[str]()
        self.before: list[Fault] = []  # each may refuse a request before it is carried out
        self.after: list[Fault] = []  # the same once it was carried out
        self.changed = asyncio.Condition()
        self.cuts = 0  # grows when watches are to be cut
        self._versions, self._uids = itertools.count(1), itertools.count(1)
        self.version = 0

    def put(self, kind: str, item: Manifest, event: str) -> Manifest:
        """Store an object, and notify the watches."""
        self.version = next(self._versions)
        item["metadata"]["resourceVersion"] = str(self.version)
        if event == "DELETED":
            self.objects.pop((kind, item["metadata"]["name"]), None)
        else:
            self.objects[kind, item["metadata"]["name"]] = item
        self.history.append((self.version, kind, {"type": event, "object": copy.deepcopy(item)}))
        return item

    async def tell(self) -> None:
        """Wake the watches."""
        async with self.changed:
            self.changed.notify_all()

    def create(self, kind: str, item: Manifest) -> Manifest:
        """Store a new object."""
        name = item["metadata"]["name"]
        if (kind, name) in self.objects:
            raise Refusal(409, "AlreadyExists", f'{kind} "{name}" already exists')
        if kind == "pods":
            self._charge(item)
            item["status"] = {"phase": "Pending"}
            kueue.hold(self, item)
        if kind == "secrets":
            item["data"] = item.pop("stringData")
        item["metadata"].setdefault("namespace", self.namespace)
        item["metadata"] |= {"uid": f"uid-{next(self._uids)}", "creationTimestamp": stamp()}
        self.created[name] += 1
        return self.put(kind, item, "ADDED")

    def _charge(self, pod: Manifest) -> None:
        """Refuse a pod that exceeds the quota; ended pods do not count."""
        for name, most in self.quota.items():
            pods = [each for (kind, _), each in self.objects.items() if kind == "pods" and not is_over(each)]
            used, asked = sum(amount(each, name) for each in pods), amount(pod, name)
            if used + asked > most:
                text = f"exceeded quota: gpus, requested: {name}={asked}, used: {name}={used}, limited: {name}={most}"
                raise Refusal(403, "Forbidden", f'pods "{pod["metadata"]["name"]}" is forbidden: {text}')

    def delete(self, kind: str, name: str, options: Manifest) -> Manifest:
        """Delete an object; a pod with running processes gets a deadline instead."""
        item = self.get(kind, name)
        wanted = options.get("preconditions", {}).get("uid")
        if wanted not in (None, item["metadata"]["uid"]):
            raise Refusal(409, "Conflict", "the UID in the precondition is another")
        if kind != "pods" or is_over(item) or not item["spec"].get("nodeName"):
            self.put(kind, item, "DELETED")
            self.collect()
            return item
        grace = options.get("gracePeriodSeconds", item["spec"].get("terminationGracePeriodSeconds", 30))
        if grace == 0:
            return self.put(kind, item, "DELETED")
        until = datetime.now(UTC) + timedelta(seconds=grace)
        known = item["metadata"].get("deletionTimestamp")
        if known is None or stamp(until) < known:
            item["metadata"] |= {"deletionTimestamp": stamp(until), "deletionGracePeriodSeconds": grace}
            self.put(kind, item, "MODIFIED")
        return item

    def collect(self) -> None:
        """Delete the objects whose owner is gone, like Kubernetes' garbage collector."""
        uids = {each["metadata"]["uid"] for each in self.objects.values()}
        for (kind, name), item in list(self.objects.items()):
            owners = [each["uid"] for each in item["metadata"].get("ownerReferences", [])]
            if owners and not uids.intersection(owners) and not item["metadata"].get("deletionTimestamp"):
                self.delete(kind, name, {})

    def get(self, kind: str, name: str) -> Manifest:
        """Return an object by its name."""
        if (kind, name) not in self.objects:
            raise Refusal(404, "NotFound", f'{kind} "{name}" not found')
        return self.objects[kind, name]

    def list(self, kind: str, select: Callable[[Manifest], bool] = lambda item: True) -> Manifest:
        """Return the selected objects of a kind."""
        items = self.nodes if kind == "nodes" else [each for (of, _), each in self.objects.items() if of == kind]
        if kind == "resourcequotas" and self.quota:
            hard = {name: str(most) for name, most in self.quota.items()}
            items = [{"metadata": {"name": "gpus", "namespace": self.namespace}, "status": {"hard": hard}}]
        found = [each for each in items if select(each)]
        return {"kind": "List", "metadata": {"resourceVersion": str(self.version)}, "items": found}


def matches(item: Manifest, selector: str) -> bool:
    """Return whether an object matches a label selector."""
    labels = item["metadata"].get("labels", {})
    return all(
        labels.get(key) == value for key, _, value in (each.partition("=") for each in selector.split(",") if each)
    )


def _left_out(item: Manifest, field: str) -> bool:
    """Return whether a field selector `status.phase!=VALUE` excludes an object."""
    path, _, value = field.partition("!=")
    return path == "status.phase" and item.get("status", {}).get("phase") == value


def amount(pod: Manifest, name: str) -> int:
    """Return the amount of a resource that a pod requests; of the resource `pods` it is 1."""
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return 1 if name == "pods" else int(requests.get(name.removeprefix("requests."), 0))


class Request(RequestHandler):
    """Handler of one request to the API."""

    def initialize(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def prepare(self) -> None:
        self.cluster.requests[self.request.method or ""] += 1
        self._answer(self._refuse)

    async def get(self, namespace: str, kind: str, name: str = "") -> None:
        if self.get_query_argument("watch", ""):
            self.cluster.used.add(("watch", kind))
            await self._watch(namespace, kind)
            return
        self.cluster.used.add(("get" if name else "list", kind))
        if kind == "events":
            about = self.get_query_argument("fieldSelector").partition("=")[2]
            self._answer(lambda: {"items": self.cluster.events.get(about, [])})
            return
        self._answer(
            lambda: (
                self._may("get" if name else "list", namespace, kind if namespace else f"{kind} of the cluster")
                or (self.cluster.get(kind, name) if name else self.cluster.list(kind, self._selects(namespace)))
            )
        )

    def _selects(self, namespace: str) -> Callable[[Manifest], bool]:
        """Return whether the request's namespace and selectors include an object."""
        labels, fields = self.get_query_argument("labelSelector", ""), self.get_query_argument("fieldSelector", "")

        def selects(item: Manifest) -> bool:
            there = not namespace or item["metadata"].get("namespace") == namespace
            return there and matches(item, labels) and not any(_left_out(item, each) for each in fields.split(","))

        return selects

    async def post(self, namespace: str, kind: str, name: str = "") -> None:
        if kind == "selfsubjectaccessreviews":
            asked = json.loads(self.request.body)["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in self.cluster.forbidden
            self._answer(lambda: {"status": {"allowed": allowed}})
            return
        self.cluster.used.add(("create", kind))
        body = json.loads(self.request.body)
        self._answer(lambda: self._may("create", namespace, kind) or self.cluster.create(kind, body))
        await self.cluster.tell()

    async def delete(self, namespace: str, kind: str, name: str) -> None:
        self.cluster.used.add(("delete", kind))
        options = json.loads(self.request.body or b"{}")
        self._answer(lambda: self._may("delete", namespace, kind) or self.cluster.delete(kind, name, options))
        await self.cluster.tell()

    def _refuse(self) -> None:
        for fault in self.cluster.before:
            fault(self)

    def _may(self, verb: str, namespace: str, kind: str) -> None:
        if namespace and namespace != self.cluster.namespace:
            raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found')
        if (verb, kind) in self.cluster.forbidden:
            text = f'{kind} is forbidden: User "ada" cannot {verb} resource "{kind}" in API group ""'
            raise Refusal(403, "Forbidden", text)

    def _answer(self, make: Callable[[], Manifest | None]) -> None:
        try:
            found = make()
            if found is not None:
                for fault in self.cluster.after:
                    fault(self)
                self.finish(json.dumps(found))
        except Refusal as error:
            self.set_status(error.status)
            self.finish({"kind": "Status", "code": error.status, "reason": error.reason, "message": str(error)})
        except Cut:
            self.request.connection.stream.close()  # type: ignore[attr-defined]
            self._finished = True

    async def _watch(self, namespace: str, kind: str) -> None:
        """Write events after a version until the watch is cut or the client disconnects."""
        at, cuts = int(self.get_query_argument("resourceVersion")), self.cluster.cuts
        selects = self._selects(namespace)
        with contextlib.suppress(StreamClosedError):
            while cuts == self.cluster.cuts:
                if at < self.cluster.oldest:
                    status = {"code": 410, "reason": "Expired", "message": f"too old resource version: {at}"}
                    self.write(json.dumps({"type": "ERROR", "object": status}) + "\n")
                    break
                for version, of, event in self.cluster.history:
                    if version > at and of == kind and selects(event["object"]):
                        self.write(json.dumps(event) + "\n")
                    elif version > at and of == kind and not namespace:  # it is selected no more
                        self.write(json.dumps({**event, "type": "DELETED"}) + "\n")
                at = self.cluster.version
                await self.flush()
                async with self.cluster.changed:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.cluster.changed.wait(), 0.5)
            await self.finish()


class Groups(RequestHandler):
    """Handler that lists the additional API groups."""

    def initialize(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def get(self, group: str, version: str = "") -> None:
        known = self.cluster.groups
        if version and f"{group}/{version}" in known:
            self.finish({"resources": [{"name": each} for each in known[f"{group}/{version}"]]})
        elif found := [{"groupVersion": each} for each in known if each.startswith(f"{group}/") and not version]:
            self.finish({"versions": found, "preferredVersion": found[0]})
        else:
            self.set_status(404)
            self.finish({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no such API"})


class Version(RequestHandler):
    """Handler that returns the version of the cluster."""

    def get(self) -> None:
        self.finish({"gitVersion": "v1.30.1"})


class Stub:
    """Simulated cluster behind an API server, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster()
        self.config = folder / "kubeconfig"
        self._loop = asyncio.new_event_loop()
        self._begun, self._stop = threading.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []  # what runs next to the server

    def do(self, act: Callable[[Cluster], Any]) -> Any:
        """Call a function with the cluster, in the server's thread."""

        async def call() -> Any:
            found = act(self.cluster)
            await self.cluster.tell()
            return copy.deepcopy(found) if isinstance(found, dict | list) else found

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(30)

    def begin(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine, such as a kubelet, in the server's event loop until the server ends."""

        async def begin() -> None:
            self._tasks.append(asyncio.create_task(run()))

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(30)

    def pods(self) -> list[Manifest]:
        """Return all pods."""
        return list(self.do(lambda cluster: cluster.list("pods")["items"]))

    def expire(self) -> None:
        """Discard the history, so that watches must list again, and cut the running ones."""

        def act(cluster: Cluster) -> None:
            cluster.oldest, cluster.cuts = cluster.version, cluster.cuts + 1
            cluster.history.clear()

        self.do(act)

    @contextlib.contextmanager
    def serving(self) -> Iterator[Stub]:
        """Serve on a free port during the block; the file `config` is a kubeconfig for it."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        assert self._begun.wait(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(30)
            assert self.cluster.used <= granted(), "deploy/kubernetes grants all that the engine does"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        given = {"cluster": self.cluster}
        routes = [
            (r"/version", Version),
            (r"()/api/v1/(nodes|pods)", Request, given),
            (r"()/apis/authorization.k8s.io/v1/(selfsubjectaccessreviews)", Request, given),
            (r"/apis/([^/]+)/?([^/]*)", Groups, given),
            (r"/(?:api|apis/[^/]+)/v1[a-z0-9]*/namespaces/([^/]+)/([a-z]+)/?([^/]*)", Request, given),
        ]
        server = HTTPServer(Application(routes, log_function=lambda handler: None))
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        self._write_config(sockets[0].getsockname()[1])
        self._begun.set()
        await self._stop.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        server.stop()
        await server.close_all_connections()

    def _write_config(self, port: int) -> None:
        cluster = {"name": "stub", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        context = {"name": "stub", "context": {"cluster": "stub", "user": "ada", "namespace": self.cluster.namespace}}
        user = {"name": "ada", "user": {"token": "a-token"}}
        every = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "stub"}
        self.config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **every}))


def granted() -> set[tuple[str, str]]:
    """Return the verbs and kinds that the manifests of deploy/kubernetes grant the service."""
    rights = yaml.safe_load_all((ROOT / "deploy/kubernetes/base/rights.yaml").read_text())
    rules = [rule for each in rights if "rules" in each for rule in each["rules"]]
    return {(verb, kind) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}


def node(name: str, cpus: int = 8, gpus: int = 0) -> Manifest:
    """Return a node that is ready."""
    offered = {"cpu": str(cpus), "memory": "64Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}, "status": status}


def other_pod(name: str, node: str = "", namespace: str = "jhub", **requests: int) -> Manifest:
    """Return a pod of another program with these requests; in resource names, `__` stands for `.` and `___` for `/`."""
    amounts = {key.replace("___", "/").replace("__", "."): str(value) for key, value in requests.items()}
    metadata = {"name": name, "namespace": namespace, "labels": {}}
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": amounts}}]}
    return {"metadata": metadata, "spec": spec}


def notebook_pod(owner: str, node: str, gpus: int, server: str = "") -> Manifest:
    """Return the pod of a notebook server, as KubeSpawner creates it."""
    found = other_pod(f"jupyter-{owner}-{server}".rstrip("-"), node, nvidia__com___gpu=gpus)
    about = {"hub.jupyter.org/username": owner, **({"hub.jupyter.org/servername": server} if server else {})}
    found["metadata"]["annotations"] = about
    return found


def at_random(seed: int, rate: float, *faults: Callable[[], Exception]) -> Fault:
    """Return a fault that raises one of these errors for a random part of all requests."""
    draws = random.Random(seed)

    def fault(request: Request) -> None:
        if draws.random() < rate:
            raise draws.choice(faults)()

    return fault
