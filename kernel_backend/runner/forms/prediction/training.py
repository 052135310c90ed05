"""Predict in a rank of a job: each slot computes a shard at a time, which is kept as an artifact under its own name.

Shard n is rows [n k, (n + 1) k) of the data, whatever the number of slots. In a round each rank computes one of the
next shards; then rank 0 records them, and a checkpoint says how many rows are done. So after a kill only the shards in
work are computed again, since those that are complete are there (where nodes send them away, those of one round more);
their files get the same bytes, and a later attempt may have another number of slots.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import xxhash

from kernel_backend.artifacts.outbox import Outbox
from kernel_backend.artifacts.write import keep, look, sweep, written
from kernel_backend.definition.prediction_form import ON_BAD, POST, PREDICT, PREDICT_DATA, SHARD_ROWS
from kernel_backend.errors import InvalidDefinition
from kernel_backend.home import artifact_folder, attempt_folder
from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.model.predictions import SUMMARY, BadRow, Shard, ShardAbout, Summary, shard_rows, shards_of
from kernel_backend.model.reports import ArtifactSaved
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.random_states import Reseeded
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.forms.prediction.inputs import default_prediction
from kernel_backend.runner.forms.prediction.model import TrainedModel
from kernel_backend.runner.forms.prediction.outputs import (
    Columns,
    bad_row,
    columns_of,
    intact_shard,
    joined,
    write_shard,
)
from kernel_backend.runner.loop.forward import to_device

_LOOK_S = 0.05  # between checks whether a node's artifacts were sent
_POLICIES = ("fail", "skip")
_GUARANTEE = "reproducible: each row is predicted once, and a kill changes no bit of the result, on any number of slots"


class _Released(Exception):
    """This rank must give up its slot before its shard is complete."""


class Prediction:
    """Predictions of all rows of `predict_data()` in this rank."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank
        params = rank.functions.params
        if params[ON_BAD] not in _POLICIES:
            raise InvalidDefinition(f"{ON_BAD}={params[ON_BAD]}: write {' or '.join(_POLICIES)}")
        self._skips = params[ON_BAD] == "skip"
        job = rank.job
        self._trained = TrainedModel(rank)
        self._origin = self._trained.manifest.origin
        self._rows = self._trained.rows(rank.functions, PREDICT_DATA)
        self._size = shard_rows(len(self._rows), rank.config.batch_size, int(str(params[SHARD_ROWS])))
        self._shards = shards_of(len(self._rows), self._size)
        self._outbox = Outbox(attempt_folder(Path(job.home), job.id)) if job.staged else None
        self._folder = artifact_folder(Path(job.home), job.experiment, job.trial)
        if rank.ranks.rank == 0:
            sweep(self._folder)
        self._training = ExternalTraining(rank, "prediction", own=Reseeded())
        # Of all shards that are done, in their order: a comparison of checkpoints is one of predictions.
        self._digest = torch.zeros(16, dtype=torch.uint8)
        self._training.register("predictions", self._digest)
        self._training.guarantee = _GUARANTEE
        self._training.expected_steps = len(self._rows)
        self._training.form_state = lambda: {"rows": len(self._rows), "bad": self._bad}
        before = self._training.position.form
        self._bad = int(before.get("bad", 0))
        if before.get("rows", len(self._rows)) != len(self._rows):
            raise InvalidDefinition(
                f"the data has {len(self._rows)} rows now, and had {before['rows']} when the prediction began: submit "
                "it again"
            )

    @property
    def step(self) -> int:
        """Return the number of rows that are done."""
        return self._training.position.step

    def train(self) -> int:
        """Predict the rows that are left, and return the exit code."""
        training, ranks = self._training, self._rank.ranks
        predict = self._predictor()
        try:
            training.begin()
            while self.step < len(self._rows):
                at = self.step // self._size
                mine = at + ranks.rank
                training.begin_step()
                done = self._predicted(self._shards[mine], predict) if mine < len(self._shards) else None
                self._record(at, ranks.all_gather_object(done))
            if ranks.rank == 0:
                self._summarise()
            training.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def close(self) -> None:
        """Wait for a checkpoint that is being written."""
        self._training.close()

    def _predictor(self) -> Callable[[Any], Any]:
        """Return the function that computes the outputs of a batch."""
        model: Any = self._trained.load().models
        own = vars(self._rank.loaded.module)
        compute = own.get(PREDICT) or default_prediction(model)
        post = own.get(POST)

        def predict(batch: Any) -> Any:
            with torch.no_grad():
                found = compute(model, to_device(batch, self._rank.device))
                return found if post is None else post(found)

        return predict

    def _predicted(self, shard: Shard, predict: Callable[[Any], Any]) -> _Done | None:
        """Compute and keep a shard; None if this rank must give up its slot before it is complete."""
        if (done := self._done_before(shard)) is not None:
            return done
        seeds.reseed(seeds.mix(self._rank.config.seed, "predict", shard.first))
        parts: list[Columns] = []
        rows: list[int] = []
        bad: list[BadRow] = []
        try:
            for first in range(shard.first, shard.end, self._rank.config.batch_size):
                self._alive(first - shard.first)
                end = min(shard.end, first + self._rank.config.batch_size)
                self._batch(first, end, predict, parts, rows, bad)
        except _Released:
            return None
        about = ShardAbout(first=shard.first, end=shard.end, model=self._origin, bad=tuple(bad))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, shard.name)
            write_shard(path, joined(parts), rows, about)
            return len(bad), self._kept(shard.name, path).to_json()

    def _done_before(self, shard: Shard) -> _Done | None:
        """Return the record of a shard that an earlier attempt has completed after its last checkpoint, if it is here.

        A node that shares no disk with the service has sent its shards away, and computes them again.
        """
        path = self._folder / shard.name
        about = intact_shard(path)
        if about is None or self._outbox is not None:
            return None
        return len(about.bad), written(path).record(look(shard.name, path), self.step).to_json()

    def _batch(
        self,
        first: int,
        end: int,
        predict: Callable[[Any], Any],
        parts: list[Columns],
        rows: list[int],
        bad: list[BadRow],
    ) -> None:
        """Predict a batch; if that raises an error, predict its rows one by one to find those that raise it."""
        try:
            parts.append(columns_of(predict(self._rows.batch(first, end)), end - first))
            rows.extend(range(first, end))
            return
        except Exception as error:  # any error of the user's code and of the data
            failed = error
        for row in range(first, end):
            self._alive(0)
            try:
                part = columns_of(predict(self._rows.batch(row, row + 1)), 1)
            except Exception as error:
                if not self._skips:
                    error.add_note(f"row {row} of the data; {ON_BAD}=skip lists such rows and goes on")
                    raise
                bad.append(bad_row(row, error))
            else:
                if self._skips:
                    parts.append(part)
                    rows.append(row)
        if not self._skips or not bad:  # the batch fails, and each of its rows alone does not
            raise failed

    def _alive(self, rows: int) -> None:
        if self._rank.instructions.release:
            raise _Released
        self._rank.progress.tick("step", min(len(self._rows), self.step + rows * self._rank.ranks.size) + 1)

    def _kept(self, name: str, path: Path) -> ArtifactSaved:
        """Keep a file as an artifact, and return its record."""
        source = look(name, path)
        if self._outbox is None:
            return keep(source, self._folder).record(source, self.step)
        saved = self._outbox.put(source, self.step)
        while not self._outbox.empty:  # a shard counts as done once it is where no node can lose it
            self._rank.progress.tick("step", self.step + 1)
            time.sleep(_LOOK_S)
        return saved

    def _say(self, saved: ArtifactSaved) -> None:
        if self._outbox is None:  # else each node has sent its own to the service
            self._rank.spool.say(saved)

    def _record(self, at: int, done: Sequence[_Done | None]) -> None:
        """Record the shards of a round, and count the rows up to the first that is not complete. Raises Leave."""
        training, complete = self._training, 0
        whole = done[: len(self._shards) - at]
        for each in whole:
            if each is None:
                break
            complete += 1
            bad, record = each
            saved = ArtifactSaved.model_validate(record)
            self._bad += bad
            found = xxhash.xxh3_128_digest(self._digest.numpy().tobytes() + saved.digest.encode())
            self._digest.copy_(torch.frombuffer(bytearray(found), dtype=torch.uint8))
            self._say(saved)
        reached = self._shards[at + complete - 1].end if at + complete else 0
        if not reached:
            raise Leave(RELEASED)  # there is nothing yet that a checkpoint could hold
        training.position.step = reached - 1
        training.position.fraction = reached / len(self._rows)
        training.report("training", {"bad_rows": float(self._bad)})
        training.request_checkpoint()
        training.end_step(last=reached == len(self._rows))

    def _summarise(self) -> None:
        summary = Summary(rows=len(self._rows), shard_rows=self._size, model=self._origin, bad=self._bad)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, SUMMARY)
            path.write_text(summary.model_dump_json())
            self._say(self._kept(SUMMARY, path))


_Done = tuple[int, dict[str, Any]]  # number of bad rows, and the record of the shard's artifact
