"""Define the exception that ends a training from within the user's or a framework's loop."""

from __future__ import annotations

FINISHED, RELEASED = 0, 85


class Leave(BaseException):
    """Raised at a step boundary to end the training early with this exit code, after its checkpoint was committed.

    It is not a subclass of Exception, as a loop may catch those.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"the training ends here, with code {code}")
        self.code = code
