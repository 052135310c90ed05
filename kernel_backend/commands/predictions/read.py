"""Read the predictions of an experiment from the service: all rows in order, each shard's bytes verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_backend.client import Client
from kernel_backend.definition.prediction_form import CHECKPOINT
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model import versions
from kernel_backend.model.predictions import (
    ABOUT,
    OUTPUT,
    ROW,
    SUMMARY,
    BadRow,
    Shard,
    ShardAbout,
    Summary,
    missing_rows,
    parse_shard,
)
from kernel_backend.model.states import EXPERIMENT_ENDED

if TYPE_CHECKING:
    import numpy as np

_HEADER = 8  # bytes that hold the length of a safetensors file's header


class StoredPredictions(NamedTuple):
    """Complete predictions of an experiment: what is known of all of them, and their shards in order."""

    number: int
    summary: Summary
    shards: list[Shard]


class Piece(NamedTuple):
    """Predictions of one shard: the numbers of its rows, and its columns as arrays or lists of text."""

    rows: np.ndarray[Any, Any]
    columns: dict[str, Any]
    bad: tuple[BadRow, ...]


def stored_predictions(client: Client, number: int) -> StoredPredictions:
    """Return the predictions of an experiment; raise InvalidRequest unless each row is there."""
    experiment = client.experiment(number).experiment
    if experiment.config.form != "prediction":
        raise InvalidRequest(f"#{number} is no prediction: daylight predict {number} --data DATA")
    found = {each.name for each in client.artifacts(number)}
    shards = sorted(shard for name in found if (shard := parse_shard(name)) is not None)
    if SUMMARY not in found:
        reached = next(iter(missing_rows(shards, shards[-1].end + 1)), Shard(0, 0)).first if shards else 0
        ended = experiment.state in EXPERIMENT_ENDED
        state = f"it has {experiment.state}: daylight resume {number}" if ended else f"daylight show {number} --follow"
        raise InvalidRequest(
            f"the predictions of #{number} are not complete: the first {reached} rows are done; {state}"
        )
    summary = versions.read(Summary, client.artifact(number, 1, SUMMARY))
    if lost := missing_rows(shards, summary.rows):
        raise NotFound(
            f"rows {lost[0].first} to {lost[0].end - 1} of #{number} are not there: their file was not kept; "
            f"daylight rerun {number} predicts them again"
        )
    return StoredPredictions(number, summary, shards)


def pieces(client: Client, found: StoredPredictions) -> Iterator[Piece]:
    """Yield the shards in the order of their rows."""
    for shard in found.shards:
        yield parse_piece(client.artifact(found.number, 1, shard.name))


def parse_piece(data: bytes) -> Piece:
    """Return the content of a shard's file; numbers of types that numpy lacks become float32."""
    from safetensors.torch import load

    about = _about(data)
    tensors = load(data)
    columns: dict[str, Any] = {}
    for name in about.columns:
        tensor = tensors[name]
        if name in about.texts:
            columns[name] = json.loads(tensor.numpy().tobytes())
        else:
            columns[name] = (tensor.float() if str(tensor.dtype).endswith(("bfloat16", "float8")) else tensor).numpy()
    return Piece(tensors[ROW].numpy(), columns, about.bad)


def as_values(client: Client, number: int) -> Any:
    """Return all predictions: an array if the outputs have no names, else arrays and lists by column.

    If rows were left out as bad, the dict has the column `row`, too.
    """
    import numpy as np

    found = list(pieces(client, stored_predictions(client, number)))
    columns: dict[str, Any] = {}
    for name in next((each.columns for each in found if len(each.rows)), {}):
        parts = [each.columns[name] for each in found if len(each.rows)]
        columns[name] = (
            [text for part in parts for text in part] if isinstance(parts[0], list) else np.concatenate(parts)
        )
    if any(each.bad for each in found):
        columns = {ROW: np.concatenate([each.rows for each in found]), **columns}
    return columns[OUTPUT] if list(columns) == [OUTPUT] else columns


def _about(data: bytes) -> ShardAbout:
    length = int.from_bytes(data[:_HEADER], "little")
    header = json.loads(data[_HEADER : _HEADER + length])
    return versions.read(ShardAbout, header["__metadata__"][ABOUT].encode())


def measured_checkpoints(client: Client, number: int) -> dict[str, dict[str, float]]:
    """Return what an evaluation has measured of each checkpoint, such as 12.1@500, in the order of its trials."""
    return {
        str(row.params[CHECKPOINT]): dict(reports[-1].metrics)
        for row in client.trial_rows(number, sort="trial")
        if (reports := client.reports(number, row.trial, kind="validation"))
    }
