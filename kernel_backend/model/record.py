"""What every word is made of: a frozen, checked record that is the same in Python, SQL and JSON."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict

# A hyperparameter's value: what a person can write after `name=`.
Value = bool | int | float | str | None | list[Any] | dict[str, Any]


class Record(BaseModel):
    """Immutable; unknown fields are refused; NaN and infinity travel as JSON strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values (`json.dumps` takes it as it is)."""
        # Not `model_dump(mode="json")`: that leaves NaN and infinity as floats, which strict JSON refuses.
        return dict(json.loads(self.model_dump_json()))
