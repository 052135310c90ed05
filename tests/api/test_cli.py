"""Test the output and the exit codes of the command line against a real service."""

from __future__ import annotations

import compileall
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from jupyter_ext.magics.commands import run_command
from jupyter_ext.values.awaited import AwaitedValues
from kernel_backend import discovery
from kernel_backend.cli import main
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery, Fact, Report
from kernel_backend.model.trial import HANG, Failure
from kernel_backend.model.views.overview import LogChunk
from tests.api.served import DEFINITION, Served, report, started, token_of
from tests.plugins import ANNEALING, importable, install, written
from tests.support.builders import user_error

KEY = AttemptId(1, 1, 1)
DELIVERED = {"samples": 40, "digest": "ab12", "seed": 0, "code": "c0de", "whole": True}


def submitted(file: Path, *options: str) -> None:
    assert main(["submit", str(file), "--quiet", *options]) == 0


def trained(service: Served, client) -> None:
    """Run one gang until its training completes."""
    token = token_of(service, KEY)
    client.deliver(KEY, token, Delivery(records=(started(), report(2, 1.0, accuracy=0.9, loss=0.412), report(3, 2.0))))
    service.engine.end(KEY)


def failed(service: Served, client) -> None:
    client.deliver(KEY, token_of(service, KEY), Delivery(records=(started(),)))
    service.engine.end(KEY, user_error(step=7, message="boom", rank=1))


def later(work, *args) -> threading.Thread:
    thread = threading.Thread(target=work, args=args)
    thread.start()
    return thread


def test_a_file_is_submitted_with_options_and_values_in_any_order(service, file, capsys):
    code = main(["submit", "--epochs", "3", "lr=0.5", str(file), "--slots=2", "width=16", "--json"])
    assert code == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer)[:3] == ["id", "state", "name"]
    assert (answer["id"], answer["name"]) == (1, "digits")
    assert answer["experiment"]["config"]["epochs"] == 3
    assert answer["experiment"]["params"] == {"width": 16, "lr": 0.5}


def test_quiet_prints_the_number_alone(service, file, capsys):
    submitted(file)
    assert capsys.readouterr().out == "1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epochs", "-3"], "--epochs -3: must be at least 1"),
        (["--epoch", "3"], "did you mean --epochs?"),
        (["--slots", "0"], "--slots 0: must be at least 1"),
        (["--slots", "7"], "The most for one trial there: 2"),
        (["--backend", "mpi"], "auto, horovod or torch"),
        (["lrr=1"], "did you mean lr?"),
        (["other.py"], "one file"),
        (["--checkpoint-every", "often"], "write 60s, 10m, 1epoch or 500steps"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(service, file, capsys, words, said):
    assert main(["submit", str(file), *words]) == 2
    assert said in capsys.readouterr().err
    assert service.client().experiments() == []


def test_a_file_without_a_model_names_the_file(service, tmp_path, capsys):
    (tmp_path / "bad.py").write_text("def loss(output, target) return 0\n")
    assert main(["submit", str(tmp_path / "bad.py")]) == 2
    assert "bad.py line 1" in capsys.readouterr().err
    assert main(["submit", str(tmp_path / "none.py")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_refused_in_a_sentence(service, tmp_path, capsys):
    (tmp_path / "latin.py").write_bytes("# größer\n".encode("latin-1"))
    assert main(["submit", str(tmp_path / "latin.py")]) == 2
    assert "latin.py cannot be read: it is no UTF-8 text" in capsys.readouterr().err


def test_a_dry_run_sends_nothing_and_spells_the_command_out(service, file, capsys):
    assert main(["submit", str(file), "--dry-run", "lr=2", "--slots", "2", "--steps", "5"]) == 0
    said = capsys.readouterr().out
    assert "# lr = 2.0" in said
    assert "def model(" in said
    assert service.client().experiments() == []
    command = next(line for line in said.split("\n") if line.startswith("# daylight submit"))
    assert "--slots 2" in command
    assert "--steps 5" in command
    assert "--seed 0" in command
    submitted(file, *shlex.split(command)[4:])
    (made,) = service.client().experiments()
    assert made.experiment.config.steps == 5
    assert made.experiment.params["lr"] == 2


def test_the_same_file_again_is_shown_and_another_made_on_demand(service, file, capsys):
    submitted(file)
    assert main(["submit", str(file)]) == 0
    assert f"{file} is experiment #1, which is " in capsys.readouterr().err
    submitted(file, "--again")
    assert capsys.readouterr().out.endswith("2\n")


def test_all_that_is_wrong_is_told_at_once(service, tmp_path, capsys):
    bad = tmp_path / "bad.py"
    bad.write_text("import nowhere_at_all\npassword = 'hunter2'\ndef model(): ...\n")
    assert main(["submit", str(bad), "--slots", "0", "--include", "nothing", "lr=", "--project-limit", "much"]) == 2
    said = capsys.readouterr().err
    for each in ("--slots 0", "'lr=' has no value", "--project-limit much", "bad.py line 1 imports nowhere_at_all",
                 "bad.py line 2 holds what looks like a secret", "no train_data"):  # fmt: skip
        assert each in said
    assert "hunter2" not in said


def test_waiting_prints_a_line_on_each_validation_and_ends_well(service, file, capsys):
    training = later(trained, service, service.client())
    assert main(["submit", str(file), "--wait", "--epochs", "10"]) == 0
    training.join()
    lines = capsys.readouterr().out.splitlines()
    assert "#1  epoch 1/10  step 2  loss 0.412  accuracy 0.9" in lines
    assert "#1  completed" in lines
    assert lines[-1].startswith("#1 digits  completed  1 slot, torch")


def test_waiting_with_json_leaves_standard_output_to_the_answer(service, file, capsys):
    training = later(trained, service, service.client())
    assert main(["submit", str(file), "--wait", "--json"]) == 0
    training.join()
    printed = capsys.readouterr()
    assert json.loads(printed.out)["state"] == "completed"
    assert "epoch 1/1" in printed.err


def test_a_failed_experiment_ends_with_1_and_shows_the_users_own_line(service, file, capsys):
    training = later(failed, service, service.client())
    assert main(["submit", str(file), "--wait", "--max-restarts", "0"]) == 1
    training.join()
    printed = capsys.readouterr()
    assert "ValueError: boom  (rank 1, step 7)" in printed.err
    assert "cell [4] line 3, in loss" in printed.err
    assert "daylight logs 1" in printed.err
    assert main(["show", "1"]) == 0
    shown = capsys.readouterr().out
    assert "cell [4] line 3, in loss" in shown
    assert "in a browser" not in shown
    service.service.pages = "https://hub.example.org/services/daylight"
    assert main(["show", "1"]) == 0
    assert "in a browser: https://hub.example.org/services/daylight/experiments/1\n" in capsys.readouterr().out


def test_interrupting_only_stops_waiting(service, file, tmp_path):
    command = [sys.executable, "-m", "kernel_backend.cli", "submit", str(file), "--wait"]
    # A suite that a shell started in the background ignores SIGINT, and so would all processes that it starts.
    interruptible = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    waiting = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible
    )
    assert "#1" in waiting.stdout.readline()
    token_of(service, KEY)
    time.sleep(0.5)
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=600)
    assert "#1 continues in the background; daylight stop 1 ends it" in said
    assert "Traceback" not in said
    assert waiting.returncode == 130
    assert service.client().experiment(1).state in ("starting", "running")


def test_a_terminal_gets_a_live_bar(service, file):
    submitted(file)
    watched, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "kernel_backend.cli", "show", "1", "--follow"]
    following = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = os.read(watched, 65536)  # it is there: now let something happen
    time.sleep(0.5)
    training = later(trained, service, service.client())
    try:
        while piece := os.read(watched, 65536):
            shown += piece
    except OSError:  # the other end is closed
        pass
    training.join()
    assert following.wait(120) == 0
    text = shown.decode()
    assert "epoch 1/1" in text
    assert "accuracy 0.9" in text
    assert "\x1b[" in text


def test_every_reading_verb_speaks_clean_json(service, file, capsys):
    submitted(file)
    trained(service, service.client())
    capsys.readouterr()
    for verb in ("list", "show 1", "logs 1", "metrics 1", "checkpoints 1", "source 1", "nodes"):
        assert main([*verb.split(), "--json"]) == 0
        assert isinstance(json.loads(capsys.readouterr().out), dict), verb


def test_pipes_get_plain_aligned_columns(service, file, capsys):
    submitted(file, "--name", "a [bold] name")
    capsys.readouterr()
    assert main(["list"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["id", "name", "state"]
    assert "a [bold] name" in row
    assert row.index("a [bold]") == head.index("name")
    assert main(["nodes"]) == 0
    assert "here  local  cpu" in capsys.readouterr().out
    assert main(["checkpoints", "1"]) == 0
    assert "no checkpoint" in capsys.readouterr().out


def test_metrics_are_a_row_each(service, file, capsys):
    submitted(file)
    client = service.client()
    client.deliver(
        KEY, token_of(service, KEY), Delivery(records=(started(), report(2, loss=0.5), report(3, loss=0.25)))
    )
    capsys.readouterr()
    assert main(["metrics", "1"]) == 0
    assert [row.split() for row in capsys.readouterr().out.splitlines()] == [
        ["step", "epoch", "kind", "loss"],
        ["2", "1.00", "validation", "0.5"],
        ["3", "1.00", "validation", "0.25"],
    ]


def test_logs_are_printed_filtered_and_followed_to_the_end(service, file, capsys):
    submitted(file)
    token_of(service, KEY)
    capsys.readouterr()
    assert main(["logs", "1"]) == 0
    assert capsys.readouterr().out == "hello\nworld\n"
    assert main(["logs", "1.1", "--grep", "^w"]) == 0
    assert capsys.readouterr().out == "world\n"
    assert main(["logs", "1", "--grep", "("]) == 2
    assert main(["logs", "1", "--rank", "5"]) == 2
    assert "--rank 5: experiment #1 has rank 0 alone" in capsys.readouterr().err
    ending = later(trained, service, service.client())
    assert main(["logs", "1", "--follow"]) == 0
    ending.join()
    assert capsys.readouterr().out == "hello\nworld\n"


def test_behind_the_log_of_an_attempt_that_hung_stands_where_its_ranks_were(service, file, capsys):
    submitted(file, "--max-restarts", "0")
    token_of(service, KEY)
    hung = Failure(rank=0, type=HANG, message="rank 0 made no progress", traceback="rank 0:\n  in loss")
    service.engine.end(KEY, hung)
    capsys.readouterr()
    stacks = "rank 0 made no progress\nrank 0:\n  in loss\n"
    assert main(["logs", "1", "--follow"]) == 0
    assert capsys.readouterr().out == f"hello\nworld\n\n{stacks}"
    run_command(["logs", "1"], AwaitedValues({}))
    assert capsys.readouterr().out == f"hello\nworld\n{stacks}"
    assert main(["show", "1"]) == 0
    assert "note: not tried again: --max-restarts 0" in capsys.readouterr().out


def test_a_log_without_a_word_is_said_beside_the_answer(service, file, capsys, monkeypatch):
    async def silent(key, rank, offset=0, tail=None):
        return LogChunk(attempt=key.number, rank=rank, text="", offset=0, size=0, ended=False)

    monkeypatch.setattr(service.engine, "logs", silent)
    submitted(file)
    token_of(service, KEY)
    capsys.readouterr()
    assert main(["logs", "1"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "nothing was printed\n")


def test_the_source_comes_back_as_it_was(service, file, capsys):
    submitted(file)
    capsys.readouterr()
    assert main(["source", "1"]) == 0
    assert capsys.readouterr().out == DEFINITION


def test_an_experiment_is_stopped_once_and_for_all(service, file, capsys):
    submitted(file)
    token_of(service, KEY)
    assert main(["stop", "1"]) == 0
    service.engine.end(KEY)
    assert main(["show", "1", "--follow"]) == 0
    assert "stopped" in capsys.readouterr().out
    assert main(["resume", "1"]) == 2
    assert "nothing to resume" in capsys.readouterr().err


def test_a_number_that_is_none_is_refused(service, capsys):
    assert main(["show", "7"]) == 2
    assert "7" in capsys.readouterr().err


def test_no_service_is_3_and_says_how_to_start_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path))
    monkeypatch.setattr(discovery, "_NEEDED", ("surely_not_installed",))
    assert main(["list"]) == 3
    assert "daylight serve" in capsys.readouterr().err


def test_the_doctor_tells_what_is_there(service, capsys, monkeypatch):
    monkeypatch.setattr("kernel_backend.cli.doctor._probe", lambda code: "ModuleNotFoundError: No module named 'torch'")
    assert main(["doctor", "--json"]) == 1
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert not found["torch"]["ok"]
    assert "install torch" in found["torch"]["todo"]
    assert found["service"]["ok"]
    assert "2 cpu" in found["slots"]["says"]
    assert main(["doctor"]) == 1
    assert "what to do" in capsys.readouterr().out


def test_the_doctor_tells_that_modules_are_compiled_in_each_process(tmp_path, capsys, monkeypatch):
    (tmp_path / "torch").mkdir()
    source = "__version__ = '2'\nclass cuda: is_available = device_count = staticmethod(int)\n"
    (tmp_path / "torch" / "__init__.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def told():
        main(["doctor", "--json"])
        return {each["name"]: each for each in json.loads(capsys.readouterr().out)["findings"]}.get("bytecode")

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    found = told()
    assert found["ok"]
    assert "modules that torch imports are compiled again in each process" in found["says"]
    assert found["todo"].startswith(f"{sys.executable} -m compileall -q ")
    assert compileall.compile_dir(tmp_path, quiet=1)
    assert told() is None


def test_the_doctor_names_packages_whose_search_methods_are_broken(service, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("kernel_backend.cli.doctor._probe", lambda code: "ModuleNotFoundError: No module named 'torch'")
    written(tmp_path / "site", "torn-search", "import nothing_of_this_name", "torn")
    written(tmp_path / "site", "shadow-search", "", "asha")
    install(ANNEALING, tmp_path / "site")
    with importable(tmp_path / "site"):
        main(["doctor", "--json"])
    found = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["name"] == "search methods"]
    works, shadowed, torn = found
    assert works["ok"]
    assert works["says"] == "of packages: annealing (daylight-annealing 1.0)"
    assert "asha of package shadow-search 1.0 is not used" in shadowed["says"]
    assert "uninstall" in shadowed["todo"]
    assert "--search torn: the method of package torn-search 1.0 cannot be used" in torn["says"]
    assert torn["todo"].startswith("upgrade or uninstall the package")


def test_facts_are_shown_as_lines_and_as_json(service, file, capsys):
    submitted(file)
    client = service.client()
    assert main(["facts", "1"]) == 0
    assert "nothing is known yet" in capsys.readouterr().out
    given = Fact(number=2, name="delivered", value=DELIVERED)
    client.deliver(KEY, token_of(service, KEY), Delivery(records=(started(), given)))
    assert main(["facts", "1"]) == 0
    assert "delivered  40 samples in the first epoch, digest ab12, seed 0" in capsys.readouterr().out
    assert main(["facts", "1", "--json"]) == 0
    assert {fact["name"] for fact in json.loads(capsys.readouterr().out)["facts"]} == {"delivered", "runtime"}
    assert main(["show", "1"]) == 0
    assert "data: 40 samples delivered (digest ab12...)" in capsys.readouterr().out
    run_command(["facts", "1"], AwaitedValues({}))
    assert "delivered  40 samples" in capsys.readouterr().out


def test_declared_data_and_external_versions_travel_and_are_shown(service, file, tmp_path, capsys):
    (tmp_path / "leslie").mkdir()
    (tmp_path / "leslie" / "a.csv").write_text("1,2\n")
    submitted(file, "--data", str(tmp_path / "leslie"), "--commit", "lakefs://photos@c0ffee")
    capsys.readouterr()
    assert main(["show", "1"]) == 0
    said = capsys.readouterr().out
    assert f"data: declared {tmp_path}/leslie 1 file 4 B, commit lakefs://photos@c0ffee" in said
    assert main(["facts", "1", "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)["data"]
    assert (data["files"], data["bytes"], data["listed"]) == (1, 4, "data/0.tsv")


def test_data_that_is_not_there_is_told_before_anything_is_sent(service, file, tmp_path, capsys):
    assert main(["submit", str(file), "--data", str(tmp_path / "gone")]) == 2
    assert f"--data {tmp_path}/gone is not there: name a folder with files" in capsys.readouterr().err
    assert service.client().experiments() == []


def test_the_name_of_a_metric_steers_no_terminal(service, client, file, capsys):
    submitted(file)
    name = "acc\x1b]0;owned\x07"
    told = (started(), Report(number=2, at=1.0, kind="validation", step=2, epoch=1.0, metrics={name: 0.5}))
    client.deliver(KEY, token_of(service, KEY), Delivery(records=told))
    capsys.readouterr()
    for verb in ("metrics", "show", "list"):
        assert main([verb, *(["1"] if verb != "list" else [])]) == 0
        out = capsys.readouterr().out
        assert not set(out) & set("\x1b\x07")
        assert verb != "metrics" or r"acc\x1b]0;owned\x07" in out
