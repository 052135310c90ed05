"""End a training from within the user's or a framework's loop."""

from __future__ import annotations

FINISHED, RELEASED = 0, 85


class Leave(BaseException):
    """Raised at a step boundary when the training is to end early with this exit code; its checkpoint is committed.

    No subclass of Exception, as a loop may catch those.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"the training ends here, with code {code}")
        self.code = code
