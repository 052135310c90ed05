"""Call the API server of Kubernetes with a token, to set up objects for tests and to inspect them."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
_MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """Error: the API server refuses a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Admin:
    """Client of an API server; paths without an API group are those of the core group (`namespaces/ml/pods`)."""

    def __init__(self, url: str, token: str, certificate: Path) -> None:
        self.url, self.token, self._certificate = url, token, certificate

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the server's own certificate."""
        return ssl.create_default_context(cafile=str(self._certificate))

    def is_ready(self) -> bool:
        """Return whether the server answers; it creates its certificate when it starts."""
        return self._certificate.exists() and self._send("GET", "/readyz", None) == b"ok"

    def exists(self, path: str) -> bool:
        """Return whether an object exists."""
        try:
            return bool(self.get(path))
        except ApiError as error:
            if error.status == 404:
                return False
            raise

    def get(self, path: str) -> Manifest:
        """Return an object, or a list of objects."""
        return self._call("GET", path)

    def list(self, path: str) -> list[Manifest]:
        """Return the objects of a list."""
        return list(self.get(path)["items"])

    def create(self, path: str, body: Manifest) -> Manifest:
        """Create an object."""
        return self._call("POST", path, body)

    def change(self, path: str, body: Manifest) -> Manifest:
        """Change an object by a merge patch."""
        return self._call("PATCH", path, body)

    def delete(self, path: str, **options: object) -> None:
        """Delete an object, if it exists."""
        try:
            self._call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except ApiError as error:
            if error.status != 404:
                raise

    def _call(self, method: str, path: str, body: Manifest | None = None) -> Manifest:
        whole = path if path.startswith("/") else f"/api/v1/{path}"
        found: Manifest = json.loads(self._send(method, whole, body))
        return found

    def _send(self, method: str, path: str, body: Manifest | None) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = _MERGE
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.tls) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from None
