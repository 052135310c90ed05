"""Test CSV of reports, trials and experiments: numbers stay exact, and a spreadsheet evaluates no text."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Forbidden, NotFound
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.reports import Delivery
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, report, started, submit, token_of

KEY = AttemptId(1, 1, 1)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def train(served: Served, client: Client, name: str = "digits") -> None:
    submit(client, name)
    records = (started(), report(2, loss=0.5, accuracy=-0.25), report(3, loss=math.nan))
    client.deliver(KEY, token_of(served, KEY), Delivery(records=records))


def test_reports_are_exported_with_a_column_a_metric(served: Served, client: Client):
    train(served, client)
    found = rows(client.export(1))
    assert [(each["step"], each["loss"], each["accuracy"]) for each in found] == [
        ("2", "0.5", "-0.25"),
        ("3", "nan", ""),
    ]
    with pytest.raises(NotFound):
        client.export(1, trial=7)


def test_the_list_holds_labels_and_no_formula(service: Served, capsys: pytest.CaptureFixture[str]):
    client = service.client()
    train(service, client, name='=HYPERLINK("http://evil.example")')
    client.label(1, LabelEdit(note="@sum\nsecond line", add_tags=("paper", "good")))
    assert main(["export"]) == 0
    (found,) = rows(capsys.readouterr().out)
    assert (found["number"], found["name"]) == ("1", '\'=HYPERLINK("http://evil.example")')
    assert (found["note"], found["tags"], found["loss"]) == ("'@sum\nsecond line", "paper good", "nan")


def test_it_is_written_to_a_file(service: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    train(service, service.client())
    file = tmp_path / "metrics.csv"
    assert main(["export", "1.1", "-o", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 2 rows\n"
    assert len(rows(file.read_text())) == 2
    assert main(["export", "1", "--out", str(tmp_path / "no" / "folder.csv")]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_a_stranger_exports_nothing_and_the_group_what_it_sees(tmp_path: Path):
    served = Served(tmp_path, StillEngine(), identity=FakeHub())
    clients = {name: served.client(name, patience=5) for name in ("dave", "danielle", "eve")}
    train(served, clients["dave"])
    assert len(rows(clients["danielle"].export(1))) == 2
    with pytest.raises((NotFound, Forbidden)):
        clients["eve"].export(1)
    for each in clients.values():
        each.close()
    served.stop()
