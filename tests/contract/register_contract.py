"""Contract of registered models, a part of the store's contract."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kernel_backend.errors import Conflict
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.experiment import Metric
from kernel_backend.model.register.history import decide_change
from kernel_backend.model.register.records import Model, ModelChange, ModelEdit, ModelVersion
from kernel_backend.store.base import Store
from kernel_backend.store.register.base import ModelStep


def version(experiment: int = 1, **fields: Any) -> ModelVersion:
    plain: dict[str, Any] = {
        "owner": "ada", "name": "memes", "version": 1, "experiment": experiment, "trial": 1, "search": False,
        "checkpoint": "10-1", "step": 10, "digest": "d", "snapshot": "0" * 64, "author": "ada", "group": "lab",
        "metric": Metric(name="accuracy", mode="max"), "metrics": {"accuracy": 0.5}, "who": "ada", "at": 1.0,
    }  # fmt: skip
    return ModelVersion(**plain | fields)


def register(store: Store, new: ModelVersion, entry: AuditEntry | None = None) -> Model:
    change = ModelChange(at=new.at, who=new.who, act="register", note=new.note)
    found = store.change_model(new.owner, new.name, lambda before: ModelStep(change, new, entry))
    assert found is not None
    return found


def edit(store: Store, act: Any, at: float = 2.0, name: str = "memes", **fields: Any) -> Model | None:
    asked = ModelEdit(act=act, **fields)

    def decide(model: Model | None) -> ModelStep | None:
        change = None if model is None else decide_change(model, asked, "bob", at, admin=False)
        return None if change is None else ModelStep(change)

    return store.change_model("ada", name, decide)


class RegisterContract:
    """Tests of registered models, a mixin for the test class of each store."""

    def test_a_model_is_its_versions_and_the_log_of_its_aliases(self, store: Store) -> None:
        assert (store.models(), edit(store, "unset", alias="production")) == ([], None)
        entry = AuditEntry(at=1.0, who="eve", act="register model", on="ada/memes", detail="1.1/10-1")
        register(store, version(1, note="the first"), entry)
        register(store, version(2, at=5.0, data="0f", guarantee="bits", search=True))
        edit(store, "set", at=4.0, alias="production", version=1, note="good")
        edit(store, "set", at=7.0, alias="production", version=2, expect=1)
        assert edit(store, "set", at=8.0, alias="production", version=2) == store.models()[0]
        found = store.models("ada", "memes")[0]
        assert [each.version for each in found.versions] == [1, 2]
        assert found.versions[1] == version(2, version=2, at=5.0, data="0f", guarantee="bits", search=True)
        # The third entry's clock was behind.
        assert [(each.number, each.at, each.act) for each in found.log] == [
            (1, 1.0, "register"), (2, 5.0, "register"), (3, 5.0, "set"), (4, 7.0, "set"),
        ]  # fmt: skip
        assert (found.log[2].note, found.log[3].before, found.aliases) == ("good", 1, {"production": 2})
        with pytest.raises(Conflict, match="production is 2, not 1"):
            edit(store, "set", alias="production", version=1, expect=1)
        assert store.models() == [found]
        assert [each.on for each in store.audit()] == ["ada/memes"]

    def test_models_are_apart_by_owner_and_name_and_removed_numbers_are_not_used_again(self, store: Store) -> None:
        for owner, name in (("ada", "memes"), ("ada", "cats"), ("vision", "memes")):
            register(store, version(1, owner=owner, name=name))
        register(store, version(2, name="cats"))
        edit(store, "remove", name="cats", version=2)
        assert [each.version for each in register(store, version(3, name="cats")).versions] == [1, 3]
        assert [(each.owner, each.name) for each in store.models()] == [
            ("ada", "cats"), ("ada", "memes"), ("vision", "memes"),
        ]  # fmt: skip
        assert [each.owner for each in store.models(name="memes")] == ["ada", "vision"]
        assert [each.title for each in store.registered(1)] == ["cats 1", "memes 1", "vision/memes 1"]
        assert (store.registered(2), [each.version for each in store.registered(3)]) == ([], [3])

    def test_writers_at_once_make_one_linear_log(self, store: Store) -> None:
        for number in (1, 2, 3):
            register(store, version(number))

        def move(writer: int) -> None:
            for step in range(30):
                edit(store, "set", at=float(step - writer), alias=f"a{step % 2}", version=1 + (step + writer) % 3)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(move, range(2)))
        log, aliases = store.models()[0].log, dict[str, int]()
        assert [each.number for each in log] == list(range(1, len(log) + 1))
        assert [each.at for each in log] == sorted(each.at for each in log)
        for each in log[3:]:
            assert aliases.get(each.alias) == each.before != each.version
            assert each.version is not None
            aliases[each.alias] = each.version
        assert store.models()[0].aliases == aliases
