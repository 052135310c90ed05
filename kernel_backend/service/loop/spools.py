"""Store the records and measurements that ended attempts have left in files (spools), one page at a time.

A spool is written by the user's processes, so its length and content are not trusted. As the attempt holds no slots any
more, reading its spool delays only its own trial.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence

from kernel_backend.engines.base import Engine
from kernel_backend.launch.spool import Refused, left_out_note, send_in_parts
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import SpoolPage, SpoolPosition, SpoolRecord
from kernel_backend.retry import RetryPolicy, exponential
from kernel_backend.store.base import Store, StoreUnavailable

PAGES_AT_ONCE = 16  # pages of all users at once: in memory a page takes about twenty times its size on disk
MOST_PAGES = 1024  # per spool: about 1 GiB of new records
LONGEST_PAUSE_S = 1.0  # between pages: as long as the last page took, so that other work is not starved
RETRY = RetryPolicy(exponential(0.5, 10.0), limit=60.0)  # of reading a spool

_log = logging.getLogger(__name__)


class SpoolIntake:
    """Reader that stores the records which ended attempts have left in files (spools)."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store, self._engine = store, engine
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)

    async def take_in(self, key: AttemptId, owner: str) -> None:
        """Store the records that are left in an attempt's spool (file of records), and its ranks' final measurements.

        If records are refused, or the spool cannot be read, a note on the trial says so. Raises StoreUnavailable;
        another call then continues after the last stored record.
        """
        after = (await asyncio.to_thread(self._store.attempt, key)).accepted
        begin, left_out, problem = SpoolPosition(), 0, ""
        for _ in range(MOST_PAGES):
            began = time.monotonic()
            try:
                page, refused = await self._retried(key, owner, after, begin)
            except _Unreadable as error:
                await self._note(key, f"what attempt {key.number} still had to say cannot be read: {error}")
                return
            left_out += page.skipped + len(refused)
            problem = problem or page.problem or "".join(map(str, refused[:1]))
            if page.last or page.end.offset <= begin.offset:
                break
            after, begin = max(after, page.end.number), page.end
            await asyncio.sleep(min(LONGEST_PAUSE_S, time.monotonic() - began))
        else:
            rest = f"its spool is too long, and what lies behind byte {begin.offset} is left out"
            await self._note(key, f"attempt {key.number}: {rest} (spool.jsonl in the attempt's folder has all of it)")
        if left_out:
            await self._note(key, left_out_note(key.number, left_out, problem))

    async def _retried(
        self, key: AttemptId, owner: str, after: int, begin: SpoolPosition
    ) -> tuple[SpoolPage, list[Refused]]:
        """Read a page of an attempt's spool and store it, with retries; return it and the records that were refused.

        The page starts at position `begin` in the file; records up to number `after` are stored already and left out.
        Raises _Unreadable if the page still cannot be read after all retries.
        """
        waits = RETRY.waits()
        while True:
            try:
                async with self._locks[owner], self._pages:
                    page = await self._engine.records(key, after, begin)
                    return page, await asyncio.to_thread(self._store_page, key, page)
            except StoreUnavailable:
                raise
            except Exception as error:  # with Unix accounts the user's own process answers, and may raise anything
                pause = next(waits, None)
                if pause is None:
                    raise _Unreadable(str(error)) from None
                _log.warning("the spool of attempt %s cannot be read now: %s", key, error)
            await asyncio.sleep(pause)

    def _store_page(self, key: AttemptId, page: SpoolPage) -> list[Refused]:
        """Store the records and measurements of a page of a spool; return the records that were refused. Blocks."""
        for each in page.measured:
            self._store.keep_measured(key, each, time.time())
        return send_in_parts(page.records, lambda some: self._accept(key, some), (_Unstorable,))

    def _accept(self, key: AttemptId, records: Sequence[SpoolRecord]) -> None:
        try:
            self._store.accept(key, records, time.time())
        except StoreUnavailable:
            raise
        except Exception as error:  # whatever it is, a retry would meet the same record
            raise _Unstorable(str(error)) from error

    async def _note(self, key: AttemptId, text: str) -> None:
        await asyncio.to_thread(self._store.note, key, text, time.time())


class _Unreadable(Exception):
    """Error: the records that an attempt has left in its spool cannot be read."""


class _Unstorable(Exception):
    """Error: the store refuses a record, and would refuse it again if it were sent again."""
