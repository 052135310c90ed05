"""`python -m kernel_backend.agent`: an agent of whoever runs it, for the service at the other end of its stdin."""

from __future__ import annotations

from kernel_backend.agent.serve import serve

if __name__ == "__main__":
    serve()
