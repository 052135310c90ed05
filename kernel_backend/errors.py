"""One family of errors: each knows its HTTP status, says what happened, where, and what to do next."""

from __future__ import annotations

from typing import Any

from kernel_backend.printable import harmless


class DaylightError(Exception):
    """Whatever Daylight tells a person about; `details` travel as JSON beside the message."""

    http_status = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """The body of an HTTP error: `{"error": NAME, "message": TEXT, "details": {...}}`."""
        return {"error": type(self).__name__, "message": self.message, "details": self.details}

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback, which would lead through our files and not the person's."""
        return harmless(f"{type(self).__name__}: {self.message}").splitlines()


class InvalidRequest(DaylightError):
    """A value that cannot be: the message holds it, and the nearest one that can."""

    http_status = 400


class OtherVersion(InvalidRequest):
    """Two versions of Daylight do not understand each other; the message names both, and what to do."""


class InvalidDefinition(InvalidRequest):
    """The cell is not a definition: syntax, a missing role, a hyperparameter without a value."""


class CaptureError(InvalidRequest):
    """What the cell needs cannot be taken along; `details["problems"]` lists all of it at once."""


class ImpossibleAsk(InvalidRequest):
    """More slots than there are; the message names the largest gang."""


class Unauthenticated(DaylightError):
    """No token, or a wrong one."""

    http_status = 401


class Forbidden(DaylightError):
    """It is known who asks, and he may not."""

    http_status = 403


class NotFound(DaylightError):
    """There is no such thing, or none that you may see."""

    http_status = 404


class Conflict(DaylightError):
    """The thing is in a state that does not allow this; the message names the state."""

    http_status = 409


class NoEnvironment(Conflict):
    """An interpreter or an environment that cannot be had; the message names what is missing, and the way out."""


class Fenced(Conflict):
    """An older attempt speaks after a newer one was made: it must exit."""


class TooLarge(DaylightError):
    """A request body beyond its limit."""

    http_status = 413


class ServiceUnreachable(DaylightError):
    """No service answers; the message says how to start one."""

    http_status = 503


class HomeUnusable(DaylightError):
    """The folder that Daylight keeps its files in cannot be made or written; trying again would not help."""

    http_status = 503


class ExperimentFailed(DaylightError):
    """Raised to whoever waits for an experiment that failed, with the user's own frames."""

    http_status = 500


class SearchFailed(DaylightError):
    """A search of the person's own raised, did not answer in time, or answered with what is no answer."""

    http_status = 500


class NotFinite(DaylightError):
    """The loss of a training is nan or infinite, and stays so."""

    http_status = 500


class CheckpointDamaged(DaylightError):
    """A digest, a shape or a part does not agree with the manifest."""

    http_status = 500


class PlaceUnavailable(DaylightError):
    """The folder or store of checkpoints cannot be read or written just now: repeat it later."""

    http_status = 503


class CheckpointFailed(DaylightError):
    """The last checkpoint of a training could not be written."""

    http_status = 507


def _family(parent: type[DaylightError]) -> dict[str, type[DaylightError]]:
    found = {parent.__name__: parent}
    for child in parent.__subclasses__():
        found |= _family(child)
    return found


def from_json(body: dict[str, Any], status: int) -> DaylightError:
    """The error that `to_json` described, as the client raises it again; unknown names become DaylightError."""
    kind = _family(DaylightError).get(str(body.get("error")), DaylightError)
    error = kind(str(body.get("message", f"HTTP {status}")), **body.get("details", {}))
    error.http_status = status
    return error
