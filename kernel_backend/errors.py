"""Define the error classes; each has an HTTP status. Messages say what happened, where, and what to do."""

from __future__ import annotations

from typing import Any

from kernel_backend.printable import harmless


class DaylightError(Exception):
    """Base class of the errors shown to users.

    Parameters
    ----------
    message : str
        What happened, with the value, and what to do next.
    **details : Any
        Values for programs, sent as JSON next to the message.

    Examples
    --------
    >>> import daylight as dl
    >>> from daylight import checkpoints
    >>> try:
    ...     checkpoints.load("runs/none")
    ... except dl.DaylightError as error:
    ...     print(error.message)
    there is no checkpoint in runs/none; steps that are there: none
    """

    http_status = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """Return the body of an HTTP error.

        Returns
        -------
        dict of str to Any
            ``{"error": NAME, "message": TEXT, "details": {...}}``.
        """
        return {"error": type(self).__name__, "message": self.message, "details": self.details}

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback through Daylight's own files."""
        return harmless(f"{type(self).__name__}: {self.message}").splitlines()


class InvalidRequest(DaylightError):
    """Error: a value is invalid; the message names it, and the most similar valid one."""

    http_status = 400


class OtherVersion(InvalidRequest):
    """Error: two versions of Daylight are incompatible; the message names both and a remedy."""


class InvalidDefinition(InvalidRequest):
    """Error: the cell or program is no valid training definition, for instance by its syntax or a missing function."""


class CaptureError(InvalidRequest):
    """Error: values that the cell needs cannot be captured; `details["problems"]` lists all of them."""


class ImpossibleAsk(InvalidRequest):
    """Error: more slots are requested than can ever be free; the message names the largest possible gang."""


class Unauthenticated(DaylightError):
    """Error: the token is missing or wrong."""

    http_status = 401


class Forbidden(DaylightError):
    """Error: the caller is authenticated, but not permitted."""

    http_status = 403


class NotFound(DaylightError):
    """Error: the object does not exist, or the user may not see it."""

    http_status = 404


class Conflict(DaylightError):
    """Error: the object's state does not allow the operation; the message names the state."""

    http_status = 409


class NoEnvironment(Conflict):
    """Error: an interpreter or environment is unavailable; the message says what is missing, and a remedy."""


class Fenced(Conflict):
    """Error: a newer attempt of the trial exists, so that this attempt must exit."""


class TooLarge(DaylightError):
    """Error: a request body exceeds its limit."""

    http_status = 413


class ServiceUnreachable(DaylightError):
    """Error: no service answers; the message says how to start one."""

    http_status = 503


class HomeUnusable(DaylightError):
    """Error: Daylight's home directory cannot be created or written; a retry would not help."""

    http_status = 503


class ExperimentFailed(DaylightError):
    """Error: the experiment waited for has failed; the message ends with the frames of the user's code.

    Parameters
    ----------
    message : str
        Which experiment failed and why, and how to read its output.
    **details : Any
        `number`, the number of the experiment.

    Examples
    --------
    >>> import daylight as dl
    >>> issubclass(dl.ExperimentFailed, dl.DaylightError)
    True
    """

    http_status = 500


class SearchFailed(DaylightError):
    """Error: a custom search class raised, did not answer in time, or returned an invalid answer."""

    http_status = 500


class NotFinite(DaylightError):
    """Error: the loss of a training is NaN or infinite, and stays so."""

    http_status = 500


class CheckpointDamaged(DaylightError):
    """Error: a checkpoint does not match its manifest: a file is missing, or has another digest or shape."""

    http_status = 500


class PlaceUnavailable(DaylightError):
    """Error: the storage of checkpoints or files cannot be read or written at present; retry later."""

    http_status = 503


class CheckpointFailed(DaylightError):
    """Error: the last checkpoint of a training could not be written."""

    http_status = 507


def _family(parent: type[DaylightError]) -> dict[str, type[DaylightError]]:
    found = {parent.__name__: parent}
    for child in parent.__subclasses__():
        found |= _family(child)
    return found


def from_json(body: dict[str, Any], status: int) -> DaylightError:
    """Return the error that a service described by `to_json`, for the client to raise.

    An unknown name of a class gives a DaylightError.
    """
    kind = _family(DaylightError).get(str(body.get("error")), DaylightError)
    error = kind(str(body.get("message", f"HTTP {status}")), **body.get("details", {}))
    error.http_status = status
    return error
