"""Fingerprint the data that a user has declared with `--data`, by a list of its files, and detect changes."""

from kernel_backend.data.base import File, Fingerprint, changed_text
from kernel_backend.data.declared import Declared, changed_since, declare, fingerprint

__all__ = ["Declared", "File", "Fingerprint", "changed_since", "changed_text", "declare", "fingerprint"]
