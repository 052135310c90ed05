"""Define the values of a hyperparameter: a range of numbers, or choices."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from kernel_backend.model.record import Record, Value
from kernel_backend.model.values import written

_End = Annotated[float, WithJsonSchema({"type": "number"})]  # `Range` refuses infinity and NaN


class Range(Record):
    """Range of numbers from `low` to `high`, both included, from which a search takes values of a hyperparameter.

    Parameters
    ----------
    type : str
        Always ``"range"``.
    low : float
        Smallest number.
    high : float
        Largest number; greater than `low`.
    whole : bool, default False
        True if it contains only integers.
    scale : {"linear", "log", "log2"}, default "linear"
        Scale on which values are drawn. A range with ``log2`` contains only powers of two.
    count : int, optional
        Number of values that a grid search takes from the range.

    Examples
    --------
    >>> from daylight.search import Range
    >>> str(Range(low=1e-4, high=0.1, scale="log"))
    '0.0001..0.1:log'
    >>> Range(low=1, high=8, whole=True).holds(2.5)
    False
    """

    type: Literal["range"] = "range"
    low: _End
    high: _End
    whole: bool = False
    scale: Literal["linear", "log", "log2"] = "linear"  # log2: powers of two
    count: int | None = Field(None, ge=2)  # number of values in a grid

    @model_validator(mode="after")
    def _checked(self) -> Self:
        low, high = self._ends
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"{low}..{high} has no finite width")
        if self.low == self.high:
            raise ValueError(f"{low}..{high} holds one value only: write {low} alone, or another end")
        if self.low > self.high:
            raise ValueError(f"{low}..{high} holds nothing: write {high}..{low}")
        if self.whole and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"{low}..{high} has ends that are no whole numbers")
        if self.whole and max(-self.low, self.high) > 2**53:
            raise ValueError(f"{low}..{high} is too far from zero to tell whole numbers apart: stay within 2**53")
        if self.scale != "linear" and self.low <= 0:
            better = f"{1 if self.whole and self.high > 1 else 1e-6}..{high}"
            raise ValueError(f"{low} has no logarithm: begin above zero, such as {better}:{self.scale}")
        if self.scale == "log2" and self.exponents[0] >= self.exponents[1]:
            raise ValueError(f"{low}..{high} needs two powers of two inside, or more, such as 16..256")
        return self

    @property
    def _ends(self) -> tuple[str, str]:
        if self.whole and math.isfinite(self.low + self.high):
            return f"{self.low:.0f}", f"{self.high:.0f}"
        shown = (f"{self.low:.15g}", f"{self.high:.15g}")
        exact = (float(shown[0]), float(shown[1])) == (self.low, self.high)
        # Two ends without a fraction would be read as integers.
        return (
            shown
            if exact and not all(each.lstrip("-").isdigit() for each in shown)
            else (
                repr(self.low),
                repr(self.high),
            )
        )

    @property
    def exponents(self) -> tuple[int, int]:
        """Return the exponents of the smallest and the largest power of two in the range."""
        part, exponent = math.frexp(self.low)  # low == part * 2**exponent, 0.5 <= part < 1
        return exponent - (part == 0.5), math.frexp(self.high)[1] - 1

    def holds(self, value: Value) -> bool:
        """Return whether a value is a number of this range.

        Parameters
        ----------
        value : Any
            Value of a hyperparameter.

        Returns
        -------
        bool
            True if the value is a number within the range; with scale ``log2`` it must be a power of two, and with
            `whole` an integer.
        """
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        if self.scale == "log2":
            return math.frexp(value)[0] == 0.5
        return not self.whole or float(value).is_integer()

    def __str__(self) -> str:
        """Format the range as users write it: `0.0001..0.1:log:5`."""
        scale = "" if self.scale == "linear" else f":{self.scale}"
        return "..".join(self._ends) + scale + ("" if self.count is None else f":{self.count}")


class Choices(Record):
    """List of values, one of which is chosen.

    Parameters
    ----------
    type : str
        Always ``"choices"``.
    values : tuple
        Numbers, strings, booleans or None, each of them once.

    Examples
    --------
    >>> from daylight.search import Choices
    >>> Choices(values=("adam", "sgd")).holds("sgd")
    True
    """

    type: Literal["choices"] = "choices"
    values: tuple[Value, ...] = Field(min_length=1)  # a single value fixes a parameter on which others depend

    @model_validator(mode="after")
    def _checked(self) -> Self:
        for index, value in enumerate(self.values):
            if value != value:
                raise ValueError("nan is no value to choose: it does not even equal itself")
            if value in self.values[:index]:
                raise ValueError(f"{written(value)} is given twice")
        return self

    def holds(self, value: Value) -> bool:
        """Return whether a value is one of the list.

        Parameters
        ----------
        value : Any
            Value of a hyperparameter.

        Returns
        -------
        bool
            True if the list has a value that equals it.
        """
        return value in self.values

    def __str__(self) -> str:
        """Format the choices as users write them: `conv,res`."""
        return ",".join(map(written, self.values))


Domain = Range | Choices
