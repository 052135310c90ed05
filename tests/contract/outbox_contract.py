"""Contract of webhooks and their outbox, a part of the store's contract."""

from __future__ import annotations

from typing import Any

import pytest
from store_contract import draft

from kernel_backend.errors import Conflict, NotFound
from kernel_backend.model import events
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.states import IllegalTransition
from kernel_backend.model.webhooks.records import EVENTS, MOST_WAITING, StoredWebhook
from kernel_backend.store.base import Store

ENTRY = AuditEntry(at=1.0, who="ada", act="add webhook", on="webhook", detail="")


def hook(owner: str = "dave", **fields: Any) -> StoredWebhook:
    plain = {"url": "https://example.org", "secret": "s", "events": EVENTS, "everyone": False, "at": 1.0}
    return StoredWebhook(**plain | {"owner": owner} | fields)


def waiting(store: Store, webhook: int) -> list[tuple[str, int]]:
    """Take all notices that wait for a webhook; return events and experiments in order."""
    found = []
    while (notice := store.next_notice(webhook)) is not None:
        found.append((notice.event, notice.experiment))
        store.delivered(notice, 9.0)
    return found


class OutboxContract:
    """Tests of the outbox, a mixin for the test class of each store."""

    def test_what_happens_to_an_experiment_waits_for_the_webhooks_that_want_it(self, store: Store) -> None:
        owner = draft().owner
        mine = store.add_webhook(hook(owner), 20, None).id
        ends = store.add_webhook(hook(owner, events=("stopped",)), 20, None).id
        other = store.add_webhook(hook("nobody"), 20, None).id
        everyone = store.add_webhook(hook("ada", everyone=True), 20, ENTRY).id
        off = store.add_webhook(hook(owner, off="it has failed"), 20, None).id
        unconfirmed = store.add_webhook(hook(owner, link="0" * 64), 20, None).id
        assert store.waiting_notices() == {}
        store.add_experiment(draft(), at=1.0)
        for event in (events.Paused(), events.Resumed(), events.Stop()):
            store.advance_experiment(1, event, at=2.0)
        with pytest.raises(IllegalTransition):
            store.advance_experiment(1, events.Paused(), at=2.0)
        assert store.waiting_notices() == {mine: 3, everyone: 3}
        store.advance_experiment(1, events.Ended(), at=3.0)
        all_of_it = [("submitted", 1), ("paused", 1), ("resumed", 1), ("stopped", 1)]
        assert waiting(store, mine) == waiting(store, everyone) == all_of_it
        assert waiting(store, ends) == [("stopped", 1)]
        assert waiting(store, other) == waiting(store, off) == waiting(store, unconfirmed) == []
        assert store.webhook(mine).delivered_at == 9.0
        assert [each.act for each in store.audit()] == ["add webhook"]

    def test_a_webhook_that_is_removed_or_switched_off_has_nothing_waiting(self, store: Store) -> None:
        first, second = (store.add_webhook(hook(draft().owner), 2, None) for _ in range(2))
        with pytest.raises(Conflict, match="2 webhooks, which is the limit"):
            store.add_webhook(hook(draft().owner), 2, None)
        store.add_experiment(draft(), at=1.0)
        store.remove_webhook(first.id, None)
        store.change_webhook(second, off="it has failed for a day", problem="500", failing_since=2.0)
        store.change_webhook(first, problem="it was removed meanwhile")
        assert store.waiting_notices() == {}
        (left,) = store.webhooks()
        assert (left.off, left.dropped, left.failing_since) == ("it has failed for a day", 1, 2.0)
        for gone in (lambda: store.webhook(first.id), lambda: store.remove_webhook(first.id, None)):
            with pytest.raises(NotFound, match=f"there is no webhook {first.id}"):
                gone()

    def test_a_request_that_is_repeated_adds_one_webhook(self, store: Store) -> None:
        first = store.add_webhook(hook(request="a"), 1, ENTRY)
        again = store.add_webhook(hook(request="a", secret="another"), 1, ENTRY)
        assert again == first == store.webhook(first.id)
        assert len(store.audit()) == 1
        store.seen_admin("dave", at=5.0)
        assert store.webhook(first.id).admin_at is None, "it is for their own experiments"
        others = [store.add_webhook(each, 3, None) for each in (hook("eve", request="a"), hook(), hook())]
        assert [each.id for each in others] == [2, 3, 4]
        everyone = store.add_webhook(hook("ada", everyone=True), 3, None).id
        store.seen_admin("ada", at=5.0)
        assert store.webhook(everyone).admin_at == 5.0

    def test_so_many_notices_wait_and_then_the_oldest_is_dropped(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert MOST_WAITING == 1000
        monkeypatch.setattr("kernel_backend.store.outbox.sql.MOST_WAITING", 3)
        mine = store.add_webhook(hook(draft().owner), 20, None).id
        for _ in range(5):
            store.add_experiment(draft(), at=1.0)
        assert waiting(store, mine) == [("submitted", number) for number in (3, 4, 5)]
        assert store.webhook(mine).dropped == 2
