"""Serve the service at the other end of stdin as the current user: `python -m kernel_backend.agent`."""

from __future__ import annotations

from kernel_backend.agent.serve import serve

if __name__ == "__main__":
    serve()
