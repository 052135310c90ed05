"""Test the output of a program: which text is passed on, received by the listener, or muted.

Each program is a process of its own, as pytest replaces the streams and the function that shows warnings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

HEAD = """
import json, sys, warnings
from kernel_backend.runner.forms.script.output import Output
heard = []
output = Output(heard.append)
"""
TAIL = """
output.close()
print(json.dumps({"heard": "".join(heard), "logged": output.text}))
"""


def run(source: str) -> tuple[str, str, str, str]:
    """Return the text that the listener, the log, stdout and stderr receive."""
    program = HEAD + textwrap.dedent(source) + TAIL
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *printed, last = done.stdout.splitlines(keepends=True)
    return *json.loads(last).values(), "".join(printed), done.stderr


def test_numbers_in_a_warning_are_printed_and_logged_but_no_results():
    heard, logged, _, shown = run("""
        warnings.warn("lr is 0.5")
        print("loss 0.25", file=sys.stderr)
    """)
    assert heard == "loss 0.25\n"
    assert logged == shown
    assert "UserWarning: lr is 0.5" in shown


def test_a_warning_that_cannot_be_shown_does_not_silence_what_follows():
    heard, *_ = run("""
        def broken(*_, **__):
            raise OSError("closed")
        output.close()
        warnings.showwarning = broken
        output = Output(heard.append)
        try:
            warnings.warn("0.5")
        except OSError:
            print("acc 0.5")
    """)
    assert heard == "acc 0.5\n"


def test_a_function_that_the_program_sets_for_warnings_stays():
    _, _, printed, _ = run("""
        warnings.showwarning = lambda *_, **__: print("shown")
        output.close()
        warnings.warn("lr is 0.5")
    """)
    assert printed == "shown\n"


def test_a_muted_output_is_neither_printed_nor_heard():
    heard, logged, printed, _ = run("""
        output.muted = True
        print("loss 1.0")
        output.resume("loss 2.0\\n")
        print("loss 3.0")
    """)
    assert (heard, logged, printed) == ("loss 3.0\n", "loss 2.0\nloss 3.0\n", "loss 2.0\nloss 3.0\n")
