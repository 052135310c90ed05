"""Test the output of a program: which text is passed on, received by the listener, or muted.

Each program is a process of its own, as pytest replaces the streams and the function that shows warnings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

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


ENDINGS = {
    "absl": "from absl import logging; print('loss 0.5')",
    "handler": "import logging; logging.getLogger().addHandler(logging.StreamHandler()); print('loss 0.5')",
    "close": "print('loss 0.5'); sys.stdout.close(); sys.stderr.close()",
    "with": "with sys.stdout as out:\n    print('loss 0.5', file=out)",
    "none": "print('loss 0.5'); sys.stdout = sys.stderr = None; print('nothing')",
    "bytes": "sys.stdout.buffer.write(b'loss 0.5\\n'); sys.stdout.buffer.flush()",
    "wrapped": "import io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8'); print('loss 0.5')",
    "detached": "import io; sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8'); print('loss 0.5')",
    "codecs": "import codecs; sys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach()); print('loss 0.5')",
    "reconfigured": "sys.stdout.reconfigure(line_buffering=True, encoding='utf-8'); print('loss 0.5')",
    "redirected": "import contextlib\nwith contextlib.redirect_stdout(sys.stderr):\n    pass\nprint('loss 0.5')",
    "faulthandler": "import faulthandler; faulthandler.enable(); print('loss 0.5')",
    "shutdown": "import logging; logging.basicConfig(); logging.shutdown(); print('loss 0.5')",
    "object": "class Tee:\n    write = print\n    flush = lambda _: None\nprint('loss 0.5'); sys.stdout = Tee()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_that_touches_its_streams_ends_as_in_plain_python(ending):
    """Its output is in the log once, and the rank's exit code is 0."""
    plain = subprocess.run([sys.executable, "-c", "import sys\n" + ENDINGS[ending]], capture_output=True, check=True)
    program = (
        f"{HEAD}{ENDINGS[ending]}\noutput.close()\nimport kernel_backend.runner.__main__ as runner\nrunner.leave(0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
    assert done.stdout == b"loss 0.5\n"


def test_bytes_and_wrapped_streams_are_heard_and_muted_as_text_is():
    heard, logged, printed, _ = run("""
        import io
        sys.stdout.buffer.write("löss 1.0\\n".encode())
        sys.stdout.buffer.flush()
        output.muted = True
        sys.stdout.buffer.write(b"loss 2.0\\n")
        wrapped = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", write_through=True)
        print("loss 3.0", file=wrapped)
        output.muted = False
        print("loss 4.0", file=wrapped, flush=True)
    """)
    assert heard == logged == printed == "löss 1.0\nloss 4.0\n"


def test_a_closed_stream_takes_no_more_text():
    heard, *_ = run("""
        sys.stderr.close()
        try:
            print("loss 1.0", file=sys.stderr)
        except ValueError as error:
            print(sys.stderr.closed, error)
    """)
    assert heard == "True I/O operation on closed file.\n"


def test_what_a_stream_refuses_is_not_heard():
    heard, *_ = run("""
        try:
            sys.stdout.write(5)
        except TypeError:
            print("refused")
    """)
    assert heard == "refused\n"
