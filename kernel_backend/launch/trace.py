"""Pass on requests to record a trace, from the service's answers to the ranks of a node."""

from __future__ import annotations

from collections.abc import Callable

from kernel_backend.model.reports import Instruction


class TraceRelay:
    """Relay that passes each request for a trace on to the ranks once, though the service repeats it.

    The service repeats a request in its answers until rank 0 has responded.
    """

    def __init__(self, instruct: Callable[[str], None]) -> None:
        self._instruct = instruct
        self._passed = ""  # id of the newest request

    def take(self, answer: Instruction) -> None:
        """Pass on the trace request in an answer of the service, unless there is none or it was passed on before."""
        if answer.trace is not None and answer.trace.id != self._passed:
            self._passed = answer.trace.id
            self._instruct(answer.trace.instruction)
