"""Connect to a cluster as kubectl does: by a context of the kubeconfig file, or from inside a pod."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_backend.engines.base import EngineUnavailable

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

IDLE_S = 600.0  # after which an unused connection is closed, as that of a pool that was removed
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Connected(NamedTuple):
    """Open client of a cluster's API, and the namespace that the kubeconfig context (or the pod's account) names."""

    client: ApiClient
    namespace: str


class Connection:
    """Connection to a cluster's API server, opened at the first use.

    An asyncio task owns the client and closes its sockets when the event loop ends. The client library is imported at
    the first use, since it is installed only where there are Kubernetes pools.
    """

    def __init__(self, context: str | None) -> None:
        self._context = context
        self._used_at = 0.0
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Connected] | None = None

    async def get(self) -> Connected:
        """Return the client, opened if there is none; raise EngineUnavailable if the cluster cannot be connected to."""
        loop, self._used_at = asyncio.get_running_loop(), time.monotonic()
        if self._owner is None or self._owner.done() or self._owner.get_loop() is not loop or self._ready is None:
            self._ready = loop.create_future()
            self._owner = loop.create_task(self._own(self._ready), name="connection to Kubernetes")
        return await asyncio.shield(self._ready)

    def drop(self) -> None:
        """Close the client; the next call of `get` opens a new one, which reads the credentials again."""
        if self._owner is not None:
            self._owner.cancel()
            self._owner = None

    async def _own(self, ready: asyncio.Future[Connected]) -> None:
        try:
            found = await _connect(self._context)
        except Exception as error:  # any error of the credentials or their plugin concerns only this pool
            ready.set_exception(EngineUnavailable(_problem(self._context, error)))
            ready.exception()  # so that one that nobody awaits any more is not reported
            return
        try:
            ready.set_result(found)
            while time.monotonic() < self._used_at + IDLE_S:
                await asyncio.sleep(IDLE_S / 10)
        finally:
            with contextlib.suppress(Exception):
                await found.client.close()


async def _connect(context: str | None) -> Connected:
    # It has some 700 modules, whose import would stop the service's event loop for seconds.
    await asyncio.to_thread(importlib.import_module, "kubernetes_asyncio.client")
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import ApiClient, Configuration

    path = os.path.expanduser(os.environ.get("KUBECONFIG") or "~/.kube/config")
    if context is None and not os.path.exists(path.split(os.pathsep)[0]):
        settings = Configuration()
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        return Connected(ApiClient(configuration=settings), await asyncio.to_thread(_NAMESPACE.read_text))
    client = await config.new_client_from_config(config_file=path, context=context, persist_config=False)
    return Connected(client, _namespace(config.list_kube_config_contexts, path, context))


def _namespace(contexts: Callable[[str], tuple[list[Any], Any]], path: str, name: str | None) -> str:
    known, current = contexts(path)
    found = next((each for each in known if each["name"] == name), current)
    return str((found or {}).get("context", {}).get("namespace") or "default")


def _problem(context: str | None, error: Exception) -> str:
    if isinstance(error, ImportError):
        return "kubernetes_asyncio is not installed: pip install 'daylight[kubernetes]' where the service runs"
    where = f"context {context}" if context else "the cluster"
    return f"{where} cannot be used: {error}. See `kubectl config get-contexts`, and `context` of the pool"
