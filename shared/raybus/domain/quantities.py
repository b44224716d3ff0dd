"""Kubernetes quantities: reading, adding and printing in canonical form.

Pure. A sum keeps the notation (binary, decimal or exponent) of its first non-zero addend, as the API's own type does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from math import ceil

_TEXT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS = {suffix: power for power, suffix in _DECIMAL.items()}
_NANO = Fraction(1, 10**9)


class Notation(Enum):
    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount and how it is written."""

    amount: Fraction = Fraction(0)
    notation: Notation = Notation.DECIMAL

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.amount + other.amount, self.notation if self.amount else other.notation)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.amount * times, self.notation)

    def __bool__(self) -> bool:
        return bool(self.amount)

    def __str__(self) -> str:
        return _canonical(self)

    @property
    def rounded_up(self) -> int:
        """The amount as an integer, rounded away from zero."""
        return ceil(self.amount) if self.amount >= 0 else -ceil(-self.amount)


ZERO = Quantity()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity | None:
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    amount = Fraction(number)
    if exponent:
        amount, notation = amount * Fraction(10) ** int(exponent[1:]), Notation.EXPONENT
    elif suffix in _BINARY:
        amount, notation = amount * 1024 ** _BINARY.index(suffix), Notation.BINARY
    else:
        amount, notation = amount * Fraction(10) ** _POWERS[suffix or ""], Notation.DECIMAL
    if amount % _NANO:  # the API keeps nothing smaller and rounds up
        amount = (amount // _NANO + (1 if amount > 0 else 0)) * _NANO
    return Quantity(amount, notation)


def parse(value: str | float | None) -> Quantity | None:
    """A quantity as it stands in JSON (text or number); None if it is absent or is none."""
    return None if value is None else _parse(str(value).strip())


def total(quantities: Iterable[Quantity]) -> Quantity:
    return sum(quantities, ZERO)


def _canonical(quantity: Quantity) -> str:
    amount, notation = quantity.amount, quantity.notation
    if not amount:
        return "0"
    if notation is Notation.BINARY and abs(amount) >= 1024:
        whole, power = quantity.rounded_up, 0
        while whole % 1024 == 0 and power < len(_BINARY) - 1:
            whole, power = whole // 1024, power + 1
        return f"{whole}{_BINARY[power]}"
    power = max(power for power in _DECIMAL if power == -9 or (amount / Fraction(10) ** power).denominator == 1)
    mantissa = amount / Fraction(10) ** power
    if notation is Notation.EXPONENT:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL[power]}"
