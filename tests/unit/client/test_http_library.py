"""httpx is imported without its command line, and a user's own import of httpx still works."""

from __future__ import annotations

import subprocess
import sys


def printed(program: str) -> list[str]:
    """Return the words that a program prints in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


IMPORT = "import sys; from kernel_backend.client.http_library import httpx_module\n"
LEFT = "print(*[name in sys.modules for name in ('httpx._main', 'rich', 'pygments')])"


def test_the_command_line_of_httpx_is_left_out() -> None:
    assert printed(f"{IMPORT}print(httpx_module().Client.__name__)\n{LEFT}") == ["Client", "False", "False", "False"]


def test_httpx_as_a_user_imported_it_is_taken_as_it_is() -> None:
    program = f"import httpx\n{IMPORT}print(httpx_module() is httpx, callable(httpx.main))\n{LEFT}"
    assert printed(program) == ["True", "True", "True", "True", "True"]


def test_a_user_can_import_httpx_afterwards() -> None:
    assert printed(f"{IMPORT}httpx_module()\nimport httpx, httpx._main\nprint(callable(httpx.main))") == ["True"]
