"""Run an agent as the current user; stdin is a socket to the service: `python -m kernel_backend.agent`."""

from __future__ import annotations

from kernel_backend.agent.serve import serve

if __name__ == "__main__":
    serve()
