"""Send requests to the API server of a cluster; no other module of the service does. API objects are plain dicts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.connection import Connection
from kernel_backend.engines.kubernetes.refusals import Refused

TIMEOUT_S = 20.0
PAUSES_S = (0.2, 1.0)  # before another try after an error of the server
LONGEST_S = 5.0  # of the pauses that the server may ask for
PAGE = 500  # objects of a list in one answer, so that none takes the service's event loop for long
WATCH_S = 60  # after which the server ends a watch, so that one that is cut silently misses at most a minute
_JSON = {"Accept": "application/json", "Content-Type": "application/json"}

Query = Mapping[str, str | int]
NONE: Query = {}


class Api:
    """Client of a cluster's API server, for one namespace.

    Each call raises EngineUnavailable if several tries get no answer, and Refused if the server refuses the request.
    Requests can be repeated safely: objects have names, and a repeated deletion finds nothing.
    """

    def __init__(self, context: str | None, namespace: str | None) -> None:
        self._connection, self._namespace = Connection(context), namespace

    async def namespace(self) -> str:
        """Return the namespace in which gangs run: the configured one, or that of the kubeconfig context."""
        return self._namespace or (await self._connection.get()).namespace

    async def of(self, kind: str, name: str = "", version: str = "v1") -> str:
        """Return the URL path of all objects of one kind (such as `pods`) in the namespace, or of the one named `name`.

        `version` is the API version of the kind, such as `v1` or `scheduling.k8s.io/v1alpha1`.
        """
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{base}/namespaces/{await self.namespace()}/{kind}{'/' if name else ''}{name}"

    async def get(self, path: str, query: Query = NONE) -> dict[str, Any]:
        """Return the JSON object at a path: one API object, or a list of them; `query` has the query parameters."""
        return await self._call("GET", path, query)

    async def list(self, path: str, query: Query = NONE) -> tuple[list[dict[str, Any]], str]:
        """Return all objects of a list, and the list's resource version, from which a watch can continue.

        The list is read in pages. `query` has the query parameters, such as a label selector.
        """
        found: list[dict[str, Any]] = []
        rest = ""
        while True:
            page = await self.get(path, {**query, "limit": PAGE, **({"continue": rest} if rest else {})})
            found += page["items"]
            rest = page["metadata"].get("continue", "")
            if not rest:
                return found, str(page["metadata"]["resourceVersion"])

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object by POST, and return it as the server has stored it."""
        return await self._call("POST", path, NONE, body)

    async def delete(self, path: str, options: dict[str, Any]) -> None:
        """Delete an object; do nothing if it does not exist.

        `options` are the fields of DeleteOptions, such as the grace period. They are sent in the body, as the server
        would ignore them in the query.
        """
        try:
            await self._call("DELETE", path, NONE, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except Refused as error:
            if error.status != 404:
                raise

    async def watch(self, path: str, query: Query) -> AsyncIterator[dict[str, Any]]:
        """Yield changes of objects that happen after the resource version in `query`, for about a minute.

        The server then ends the watch. Raises Refused with status 410 if the version is too old, and EngineUnavailable
        if the connection is cut.
        """
        response = await self._send("GET", path, {**query, "watch": "1", "timeoutSeconds": WATCH_S}, None)
        try:
            if response.status != 200:
                raise _refused(response.status, await response.read())
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise Refused(int(status.get("code", 500)), status.get("reason", ""), status.get("message", ""))
                yield event
        except (OSError, TimeoutError, ValueError, _client_error()) as error:
            raise EngineUnavailable(f"Kubernetes: the watch was cut ({_text(error)})") from None
        finally:
            response.close()

    async def _call(self, method: str, path: str, query: Query, body: dict[str, Any] | None = None) -> dict[str, Any]:
        renewed = False
        for pause in (*PAUSES_S, None):
            try:
                return await self._once(method, path, query, body)
            except Refused as error:
                if error.status == 401 and not renewed:  # the token has expired: the credentials are read again
                    renewed = True
                    self._connection.drop()
                    continue
                if error.status == 401:
                    raise EngineUnavailable(
                        "Kubernetes: the credentials are not valid (any more): log in to the cluster again"
                    ) from None
                if error.status != 429 and error.status < 500:
                    raise
                if pause is None:
                    raise EngineUnavailable(f"Kubernetes' API server fails: {error.message}") from None
                await asyncio.sleep(min(LONGEST_S, max(pause, error.details.get("after", 0.0))))
            except EngineUnavailable:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise EngineUnavailable("Kubernetes' API server does not accept the credentials")

    async def _once(self, method: str, path: str, query: Query, body: dict[str, Any] | None) -> dict[str, Any]:
        response = await self._send(method, path, query, body)
        try:
            data = await response.read()
        except (OSError, TimeoutError, _client_error()) as error:
            raise EngineUnavailable(f"Kubernetes' API server does not answer: {_text(error)}") from None
        finally:
            response.release()
        if not 200 <= response.status < 300:
            raise _refused(response.status, data, response.headers.get("Retry-After", ""))
        try:
            found: dict[str, Any] = json.loads(data)
        except ValueError:
            raise EngineUnavailable("Kubernetes' API server answers no JSON: another server may be there") from None
        return found

    async def _send(self, method: str, path: str, query: Query, body: dict[str, Any] | None) -> Any:
        client = (await self._connection.get()).client
        limit = TIMEOUT_S if "watch" not in query else WATCH_S + TIMEOUT_S
        try:
            return await client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params=dict(_JSON),
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=limit,
            )
        except (OSError, TimeoutError, _client_error()) as error:
            raise EngineUnavailable(f"Kubernetes' API server does not answer: {_text(error)}") from None


def _client_error() -> type[Exception]:
    from aiohttp import ClientError

    return ClientError


def _refused(status: int, data: bytes, after: str = "") -> Refused:
    """Return the error to raise for an HTTP answer that reports no success.

    Its message is that of the Status object in the body `data`, or else the body itself. `after` is the value of the
    header `Retry-After`, in seconds.
    """
    try:
        found = json.loads(data)
        message, reason = str(found["message"]), str(found.get("reason", ""))
    except (ValueError, KeyError, TypeError):
        message, reason = data.decode(errors="replace").strip()[:300] or f"status {status}", ""
    error = Refused(status, reason, message)
    error.details["after"] = float(after) if after.isdigit() else 0.0
    return error


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
