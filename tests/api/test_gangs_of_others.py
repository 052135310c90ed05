"""Test that a gang with an attempt's key but another token is treated as one from a lost database."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.engines.base import GangStatus
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import token_digest
from tests.api.served import Served, StillEngine, submit, token_of

FIRST, SECOND = AttemptId(1, 1, 1), AttemptId(1, 1, 2)


class Haunted(StillEngine):
    """Engine in which the first attempt's folder has a gang from another database."""

    def __init__(self) -> None:
        super().__init__()
        self.others, self.put_away = {FIRST}, list[AttemptId]()

    async def statuses(self) -> list[GangStatus]:
        return [
            each.model_copy(update={"token_digest": token_digest(self._token(each.key))})
            for each in await super().statuses()
        ]

    async def set_aside(self, key: AttemptId) -> None:
        self.put_away.append(key)
        self.others.discard(key)
        await self.kill(key)

    def _token(self, key: AttemptId) -> str:
        return "of another database" if key in self.others else self.tokens[key]


def test_a_gang_with_another_token_is_put_aside_and_its_attempt_is_lost(tmp_path: Path) -> None:
    engine = Haunted()
    served = Served(tmp_path, engine)
    client = served.client()
    try:
        submit(client)
        token_of(served, SECOND)
        first, second = client.experiment(1).attempts
        assert (first.number, first.outcome, second.number, second.outcome) == (1, "lost", 2, None)
        assert engine.put_away == [FIRST]
        assert client.experiment(1).trials[0].failures == 0
    finally:
        client.close()
        served.stop()
