"""The front end's words are those of the model: the same fields, the same states, in files of the same names."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import get_args

import pytest

from kernel_backend.model import (
    artifacts,
    curves,
    experiment,
    overview,
    people,
    quotas,
    reports,
    resources,
    search,
    servers,
    sharing,
    space,
    standing,
    states,
    stream,
    trial,
)
from kernel_backend.model.record import Record

WORDS = {
    path.stem: path.read_text()
    for path in (Path(__file__).parents[2] / "labextension" / "src" / "model" / "words").glob("*.ts")
}

RECORDS: list[type[Record]] = [
    artifacts.Artifact,
    experiment.Experiment,
    experiment.Config,
    experiment.Cadence,
    experiment.Keep,
    experiment.Metric,
    experiment.LogPolicy,
    search.Search,
    search.Create,
    search.Resume,
    search.Continue,
    search.Pause,
    search.Prune,
    search.Complete,
    search.Vacancy,
    search.Reported,
    search.Exited,
    search.Told,
    search.Promoted,
    search.Extended,
    search.Closed,
    search.Failed,
    search.Entry,
    space.Space,
    space.Parameter,
    space.Range,
    space.Choices,
    space.When,
    trial.Best,
    trial.Trial,
    trial.Attempt,
    trial.Frame,
    trial.Failure,
    resources.Share,
    overview.Wait,
    overview.Overview,
    overview.LogChunk,
    overview.NodeRun,
    overview.NodeUse,
    people.Person,
    quotas.SlotHours,
    quotas.Quota,
    quotas.Use,
    servers.Server,
    sharing.Account,
    sharing.Self,
    sharing.UseOverTime,
    sharing.Waiting,
    sharing.Pool,
    sharing.Deed,
    reports.StoredReport,
    standing.TrialRow,
    standing.RungStanding,
    standing.BracketStanding,
    standing.Better,
    standing.Standing,
    standing.TrialLine,
    standing.SearchCurves,
    standing.Importance,
    curves.Curve,
    curves.Curves,
]
STATES: list[type[StrEnum]] = [
    states.ExperimentState,
    states.TrialState,
    states.AttemptState,
    states.Outcome,
]


def home(record: type) -> str:
    """The file that a word is in, here and there."""
    return record.__module__.removeprefix("kernel_backend.model.")


def fields(file: str, name: str) -> dict[str, str]:
    """Of an interface, with their types, in written order."""
    found = re.search(rf"^(?:export )?interface {name} \{{\n(.*?)^\}}", WORDS[file], re.MULTILINE | re.DOTALL)
    assert found, f"{file}.ts has no interface {name}"
    return dict(re.findall(r"^  (\w+): (.*?);", found[1], re.MULTILINE))


def union(file: str, name: str) -> list[str]:
    """The texts that a type allows, in written order."""
    found = re.search(rf"^export type {name} =(.*?);$", WORDS[file], re.MULTILINE | re.DOTALL)
    assert found, f"{file}.ts has no type {name}"
    return re.findall(r"'([^']+)'", found[1])


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_an_interface_has_the_fields_of_its_record(record):
    assert list(fields(home(record), record.__name__)) == list(record.model_fields)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_what_may_be_none_may_be_null(record):
    may_be_none = {name for name, field in record.model_fields.items() if type(None) in get_args(field.annotation)}
    written = fields(home(record), record.__name__)
    assert {name for name, type in written.items() if type.endswith("| null")} == may_be_none


@pytest.mark.parametrize("enum", STATES, ids=lambda enum: enum.__name__)
def test_a_union_has_the_states_of_its_enum(enum):
    assert union(home(enum), enum.__name__) == [str(state) for state in enum]


def test_every_interface_is_compared():
    # The first is a part of Message, the others what only views write.
    ours = {("stream", "About"), ("saved", "Saved"), ("saved", "SavedSearch")}
    written = [
        (file, name)
        for file, text in WORDS.items()
        for name in re.findall(r"^(?:export )?interface (\w+)", text, re.MULTILINE)
    ]
    assert sorted(written) == sorted(ours | {(home(record), record.__name__) for record in RECORDS})


def test_a_message_is_what_the_stream_says():
    types = re.findall(r"\{ type: '(\w+)'; data: (\w+|\{.*?\}) \}", WORDS["stream"])
    about = [name for name in stream.Message.model_fields if name not in ("type", "data")]
    assert list(fields("stream", "About")) == about
    assert [name for name, _ in types] == list(get_args(stream.Message.model_fields["type"].annotation))
    assert [data for _, data in types][:4] == ["Experiment", "Trial", "Attempt", "StoredReport"]


def test_choices_are_those_of_the_records():
    assert union("reports", "Kind") == list(get_args(reports.Kind))
    (backends,) = re.findall(r"^  backend: (.*' \| .*);$", WORDS["experiment"], re.MULTILINE)
    assert re.findall(r"'(\w+)'", backends) == list(get_args(experiment.BackendChoice))
