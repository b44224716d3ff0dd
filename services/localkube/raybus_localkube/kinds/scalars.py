"""Values with a form of their own: quantities, times, base64. Pure."""

from __future__ import annotations

import binascii
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?")
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
QUANTITY_HINT = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def quantity(value: Any) -> str:
    """The canonical text of a quantity ("1024Mi" is "1Gi", 0.5 is "500m"). ValueError if it is none."""
    text = str(value)
    found = QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(QUANTITY_HINT)
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in BINARY:
        return _binary(number * 1024 ** BINARY[suffix])
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return _decimal(number.scaleb(int(suffix[1:])))
    return _decimal(number.scaleb(DECIMAL[suffix]))


def _binary(number: Decimal) -> str:
    if number != number.to_integral_value():
        return _decimal(number)
    whole, power = int(number), 0
    while whole and whole % 1024 == 0 and power < 6:
        whole, power = whole // 1024, power + 1
    suffix = next((name for name, exponent in BINARY.items() if exponent == power), "")
    return f"{whole}{suffix}"


def _decimal(number: Decimal) -> str:
    nanos = int(number.scaleb(9).to_integral_value(rounding="ROUND_UP"))
    exponent = -9
    while nanos and nanos % 1000 == 0 and exponent < 18:
        nanos, exponent = nanos // 1000, exponent + 3
    suffix = next(name for name, power in DECIMAL.items() if power == exponent) if nanos else ""
    return f"{nanos}{suffix}"


def quantity_value(text: str) -> Decimal:
    """The number behind a quantity. ValueError if it is none."""
    found = QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(QUANTITY_HINT)
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in BINARY:
        return number * Decimal(1024) ** BINARY[suffix]
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return number.scaleb(int(suffix[1:]))
    return number.scaleb(DECIMAL[suffix])


def parse_time(text: str) -> datetime:
    """An RFC 3339 time. ValueError if it is none."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None or "T" not in text:
        raise ValueError(text)
    return parsed.astimezone(UTC)


def time(text: str) -> str:
    try:
        return parse_time(text).strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise ValueError(_time_hint(text, "2006-01-02T15:04:05Z07:00")) from None


def micro_time(text: str) -> str:
    layout = "2006-01-02T15:04:05.000000Z07:00"
    try:
        parsed = parse_time(text)
    except ValueError:
        raise ValueError(_time_hint(text, layout)) from None
    if not re.match(r"\.\d{6}(?!\d)", text[19:]):
        rest = text[19:]
        raise ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"')
    return parsed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time_hint(text: str, layout: str) -> str:
    year = re.match(r"\d{4}", text)
    rest, part = (text[4:], "-") if year else (text, "2006")
    return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{part}"'


def base64_bytes(text: str) -> bytes:
    """Decoded standard base64. ValueError names the first wrong byte as Go does."""
    for index, char in enumerate(text):
        if not (char.isascii() and (char.isalnum() or char in "+/=")):
            raise ValueError(f"illegal base64 data at input byte {index}")
    try:
        return binascii.a2b_base64(text, strict_mode=bool(text))
    except binascii.Error:
        raise ValueError(f"illegal base64 data at input byte {len(text) // 4 * 4}") from None
