"""What a state's rules say about the status: the next one, why, and what it rests on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """`status` as it should be now (equal to the present one: no write). `confirm` names an absence the move rests on: then
    it may only follow a fresh read. `head_lost`: the job ended with its head, so nothing may start it again.
    """

    status: Json
    reason: str
    confirm: str = ""
    head_lost: bool = False
