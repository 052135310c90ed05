"""Answer the requests that a page may send to the service through its kernel, from one table."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_backend.client import Client
from kernel_backend.errors import DaylightError, InvalidRequest, NotFound, TooLarge
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.record import Record, checked
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import Extension

Json = dict[str, Any]
MOST_BYTES = 4 * 2**20  # of a file: other requests to the kernel wait for it


@dataclass(frozen=True)
class _Question:
    """Row of the table: `ask` takes the client, the experiment's number and the query values it declares.

    With `body`, it takes all query values as that record instead.
    """

    ask: Callable[..., Json]
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    body: type[Record] | None = None

    def given(self, query: Mapping[str, Any]) -> Json:
        if self.body is not None:
            return {"asked": checked(self.body, **query)}
        found: Json = {name: _number(name, query[name]) for name in self.numbers if name in query}
        return found | {name: str(query[name]) for name in self.texts if name in query}


def _overview(client: Client, number: int) -> Json:
    return client.experiment(number).to_json()


def _reports(client: Client, number: int, **query: Any) -> Json:
    return {"reports": [each.to_json() for each in client.reports(number, **query)]}


def _checkpoints(client: Client, number: int) -> Json:
    return {"checkpoints": [each.to_json() for each in client.checkpoints(number)]}


def _artifacts(client: Client, number: int) -> Json:
    return {"artifacts": [each.to_json() for each in client.artifacts(number)]}


def _artifact(client: Client, number: int, trial: int, name: str) -> Json:
    kept = next((each for each in client.artifacts(number) if (each.trial, each.name) == (trial, name)), None)
    if kept is not None and kept.size > MOST_BYTES:
        raise TooLarge(f"{name} is too large to come through the kernel: %dl artifacts {number}.{trial} --get {name!r}")
    return {"base64": b64encode(client.artifact(number, trial, name)).decode()}


def _source(client: Client, number: int) -> Json:
    definition, snapshot = client.source(number)
    return {"definition": definition, "snapshot": snapshot.to_json()}


def _logs(client: Client, number: int, **query: Any) -> Json:
    return client.logs(number, **query).to_json()


def _curves(client: Client, number: int, **query: Any) -> Json:
    return client.curves(number, **query).to_json()


def _search(client: Client, number: int, **query: Any) -> Json:
    return client.search(number, **query).to_json()


def _search_curves(client: Client, number: int, **query: Any) -> Json:
    return client.search_curves(number, **query).to_json()


def _importance(client: Client, number: int) -> Json:
    return client.importance(number).to_json()


def _act(verb: Callable[[Client, int], Overview]) -> _Question:
    return _Question(lambda client, number: verb(client, number).to_json())


def _steer(verb: Callable[[Client, int, int], Overview]) -> _Question:
    return _Question(lambda client, number, trial: verb(client, number, trial).to_json(), ("trial",))


def _change(verb: Callable[[Client, int, Any], Overview], body: type[Record]) -> _Question:
    return _Question(lambda client, number, asked: verb(client, number, asked).to_json(), body=body)


QUESTIONS: dict[tuple[str, str], _Question] = {
    ("GET", ""): _Question(_overview),
    ("GET", "/reports"): _Question(_reports, ("trial", "after", "limit"), ("kind",)),
    ("GET", "/curves"): _Question(_curves, ("trial", "points")),
    ("GET", "/search"): _Question(_search, ("limit", "offset"), ("sort",)),
    ("GET", "/search/curves"): _Question(_search_curves, ("limit", "points")),
    ("GET", "/search/importance"): _Question(_importance),
    ("GET", "/logs"): _Question(_logs, ("trial", "attempt", "rank", "offset", "tail")),
    ("GET", "/checkpoints"): _Question(_checkpoints),
    ("GET", "/artifacts"): _Question(_artifacts),
    ("GET", "/artifact"): _Question(_artifact, ("trial",), ("name",)),
    ("GET", "/source"): _Question(_source),
    ("POST", "/stop"): _act(Client.stop),
    ("POST", "/pause"): _act(Client.pause),
    ("POST", "/resume"): _act(Client.resume),
    ("POST", "/extend"): _change(Client.extend, Extension),
    ("POST", "/label"): _change(Client.label, LabelEdit),
    ("POST", "/trials/{trial}/promote"): _steer(Client.promote),
    ("POST", "/trials/{trial}/prune"): _steer(Client.prune),
}
OF_A_TRIAL = re.compile(r"/trials/(?P<trial>[0-9]{1,9})/")


def answer(client: Client, number: int, method: str, path: str, query: Mapping[str, Any]) -> tuple[int, Json]:
    """Return status and JSON as the service would, errors included, for experiment `number` only."""
    try:
        below = path.removeprefix(f"/experiments/{number}")
        trial = OF_A_TRIAL.match(below)
        question = QUESTIONS.get((method, OF_A_TRIAL.sub("/trials/{trial}/", below)))
        if question is None or not path.startswith("/experiments/"):
            raise NotFound(f"this view asks about experiment {number} only, not {method} {path[:100]}")
        return 200, question.ask(client, number, **question.given({**query, **(trial.groupdict() if trial else {})}))
    except DaylightError as error:
        return error.http_status, error.to_json()
    except Exception as error:  # the page must never wait for ever
        return 500, DaylightError(f"the kernel made a mistake ({type(error).__name__}: {error})").to_json()


def _number(name: str, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"{name}={text[:50]}: must be a whole number")
    return int(text)
