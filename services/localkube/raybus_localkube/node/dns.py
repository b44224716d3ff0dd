"""DNS messages: a query's bytes to an answer's bytes.

Pure. Only A answers are ever given. A name that exists has no AAAA (an empty answer), any other name does not exist (NXDOMAIN), at
once: a resolver that gets no answer waits for seconds, and Ray then joins late or never.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

TTL_S = 1
_A, _OPT, _ANY = 1, 41, 255
_IN = 1
_RESPONSE, _AUTHORITATIVE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x0400, 0x0100, 0x0080
_FORMAT_ERROR, _NO_SUCH_NAME, _NOT_IMPLEMENTED = 1, 3, 4
_PLAIN_MAX, _EDNS_MAX = 512, 4096
_HEADER = struct.Struct(">HHHHHH")


def answer(query: bytes, lookup: Callable[[str], tuple[str, ...] | None]) -> bytes | None:
    """The answer to a query, None for what deserves none. `lookup` gives addresses, () or None (no such name)."""
    if len(query) < _HEADER.size:
        return None
    number, flags, questions, _, _, additional = _HEADER.unpack_from(query)
    if flags & _RESPONSE:
        return None
    echoed = flags & _RECURSION_DESIRED
    if (flags >> 11) & 0xF:
        return _reply(number, echoed, _NOT_IMPLEMENTED)
    try:
        name, end = _name(query, _HEADER.size)
        kind, group = struct.unpack_from(">HH", query, end)
    except (IndexError, struct.error, UnicodeDecodeError):
        return _reply(number, echoed, _FORMAT_ERROR)
    if questions != 1:
        return _reply(number, echoed, _FORMAT_ERROR)
    question = query[_HEADER.size : end + 4]
    found = lookup(name)
    if found is None:
        return _reply(number, echoed, _NO_SUCH_NAME, question)
    wanted = group in (_IN, _ANY) and kind in (_A, _ANY)
    room = (_room(query, end + 4) if additional else _PLAIN_MAX) - _HEADER.size - len(question)
    addresses = found[: room // 16] if wanted else ()
    return _reply(number, echoed, 0, question, addresses)


def _reply(number: int, flags: int, code: int, question: bytes = b"", addresses: tuple[str, ...] = ()) -> bytes:
    flags |= _RESPONSE | _AUTHORITATIVE | _RECURSION_AVAILABLE | code
    head = _HEADER.pack(number, flags, 1 if question else 0, len(addresses), 0, 0)
    # 0xC00C points back at the name in the question.
    records = [
        struct.pack(">HHHIH", 0xC00C, _A, _IN, TTL_S, 4) + ipaddress.IPv4Address(address).packed
        for address in addresses
    ]
    return head + question + b"".join(records)


def _name(message: bytes, at: int) -> tuple[str, int]:
    """The name at this offset and the offset behind it. Names in questions are never compressed."""
    labels: list[str] = []
    while True:
        length = message[at]
        at += 1
        if length == 0:
            return ".".join(labels), at
        if length > 63 or at + length > len(message):
            raise IndexError("label")
        labels.append(message[at : at + length].decode("ascii"))
        at += length


def _room(query: bytes, at: int) -> int:
    """How long an answer the asker takes, by its EDNS record (RFC 6891), which begins with an empty name."""
    try:
        root, kind, size = struct.unpack_from(">BHH", query, at)
    except struct.error:
        return _PLAIN_MAX
    return min(max(size, _PLAIN_MAX), _EDNS_MAX) if root == 0 and kind == _OPT else _PLAIN_MAX
