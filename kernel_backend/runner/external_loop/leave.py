"""Define the exception that ends a training from within the user's or a framework's loop."""

from __future__ import annotations


class Leave(BaseException):
    """Exception that ends a training early, between two steps, after a checkpoint was committed.

    Its `code` is the exit code of the process. It is not a subclass of Exception, as a loop may catch those.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"the training ends here, with code {code}")
        self.code = code
