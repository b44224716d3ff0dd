"""Facts about the built-in kinds, generated from a real API server (see generate.py), and how to read them.

What may live here: the data file, its generator and its reader.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib import resources
from typing import Any

import orjson


@cache
def builtin() -> dict[str, Any]:
    """The data file: `resources` by group version as aggregated discovery lists them, `schemas` by short name.

    A schema is `{"p": {field: type}, "req": [fields that are always printed], "gvk": [group, version, kind]}`.
    A type is a letter (s string, i and I integer of 32 and 64 bits, n number, b boolean, t time, T time with microseconds, B bytes, q quantity,
    x integer or string, o anything) or a dict: `r` a schema, `a` a list of type, `m` a map of type; `z` true where
    Go prints the empty struct; `mk` and `ps` the merge key and strategy of strategic merge patch.
    """
    raw = resources.files(__package__).joinpath("builtin.json.gz").read_bytes()
    data: dict[str, Any] = orjson.loads(gzip.decompress(raw))
    return data
