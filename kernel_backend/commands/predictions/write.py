"""Write predictions to one parquet or .npy file, or each shard into a folder; a file appears whole or not at all."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernel_backend.client import Client
from kernel_backend.commands.predictions.read import Piece, StoredPredictions, parse_piece, pieces, stored_predictions
from kernel_backend.durable import replacing
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.predictions import ROW, BadRow


def write_predictions(client: Client, number: int, to: Path) -> list[Path]:
    """Write all predictions of an experiment to `to`, and return the files.

    A `.parquet` file has a column `row`, and in its metadata the model's checkpoint; a `.npy` file has the only output,
    row by row; any other name is a folder that gets the shards. Bad rows are listed in a CSV beside it. Raises
    InvalidRequest if the predictions are not complete, or cannot be written so.
    """
    writer = _WRITERS.get(to.suffix, _write_shards)
    found = stored_predictions(client, number)
    bad: list[BadRow] = []
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        writer(client, found, to, bad)
        files = [to]
        if bad:
            files.append(to.with_name(f"{to.name}.bad.csv"))
            _write_bad(files[-1], bad)
    except OSError as error:
        raise InvalidRequest(f"cannot write to {to}: {error.strerror or error}") from error
    return files


def _read(client: Client, found: StoredPredictions, bad: list[BadRow]) -> Iterator[Piece]:
    for piece in pieces(client, found):
        bad.extend(piece.bad)
        yield piece


def _write_parquet(client: Client, found: StoredPredictions, to: Path, bad: list[BadRow]) -> None:
    arrow, parquet = _arrow(), None
    about = {b"daylight.model": found.summary.model.encode(), b"daylight.experiment": str(found.number).encode()}
    with replacing(to) as file:
        for piece in _read(client, found, bad):
            if not len(piece.rows):  # all of them are bad, so that it has no columns
                continue
            columns = {
                ROW: arrow.array(piece.rows),
                **{name: _cells(arrow, each) for name, each in piece.columns.items()},
            }
            table = arrow.table(columns).replace_schema_metadata(about)
            if parquet is None:
                parquet = importlib.import_module("pyarrow.parquet").ParquetWriter(file, table.schema)
            parquet.write_table(table)
        if parquet is None:
            raise InvalidRequest(f"no row of #{found.number} could be predicted: see daylight show {found.number}")
        parquet.close()


def _cells(arrow: Any, values: Any) -> Any:
    """Return a column for a table: numbers, texts, or lists of a fixed length, nested for each further dimension."""
    if isinstance(values, list):
        return arrow.array(values, type=arrow.string())
    column = arrow.array(values.reshape(-1))
    for length in reversed(values.shape[1:]):
        column = arrow.FixedSizeListArray.from_arrays(column, length)
    return column


def _arrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise InvalidRequest(
            "a parquet file is written with pyarrow: pip install 'daylight[predict]', or name a .npy file or a folder"
        ) from None


def _write_array(client: Client, found: StoredPredictions, to: Path, bad: list[BadRow]) -> None:
    import numpy as np

    begun = False
    with replacing(to) as file:
        for piece in _read(client, found, bad):
            if len(piece.columns) > 1 or any(isinstance(each, list) for each in piece.columns.values()):
                names = ", ".join(piece.columns)
                raise InvalidRequest(
                    f"a .npy file has one array of numbers, and these are {names}: name a .parquet file"
                )
            if piece.bad and found.summary.bad:
                raise InvalidRequest(f"a .npy file has each row, and {found.summary.bad} are bad: name a .parquet file")
            (values,) = piece.columns.values()
            if not begun:
                head = np.lib.format.header_data_from_array_1_0(values)
                np.lib.format.write_array_header_1_0(file, {**head, "shape": (found.summary.rows, *values.shape[1:])})
            begun = True
            file.write(np.ascontiguousarray(values).tobytes())


def _write_shards(client: Client, found: StoredPredictions, to: Path, bad: list[BadRow]) -> None:
    if to.suffix or to.is_file():
        raise InvalidRequest(f"{to.name}: name a .parquet or .npy file, or a folder")
    to.mkdir(exist_ok=True)
    for shard in found.shards:
        data = client.artifact(found.number, 1, shard.name)
        bad.extend(parse_piece(data).bad)
        with replacing(to / shard.name) as file:
            file.write(data)


def _write_bad(path: Path, bad: list[BadRow]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([ROW, "error"])
        writer.writerows((each.row, each.error) for each in bad)


_WRITERS: dict[str, Callable[[Client, StoredPredictions, Path, list[BadRow]], None]] = {
    ".parquet": _write_parquet,
    ".npy": _write_array,
}
