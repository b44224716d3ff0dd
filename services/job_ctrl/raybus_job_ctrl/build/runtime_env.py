"""`spec.runtimeEnvYAML` as the value that Ray gets. Pure.

The text is YAML 1.1 as Kubernetes' own tools read it: yes/no/on/off and y/n are booleans, also as keys, dates stay text, and
there are no base-60 numbers. PyYAML differs in all three, hence a loader with its own rules.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

# A few aliases can stand for billions of values.
VALUES_MAX = 100_000
DEPTH_MAX = 100


class RuntimeEnvError(ValueError):
    """The text is no mapping that can be sent to Ray; the words say what is wrong with it."""


_CALLED = {
    "str": "a text that is not Unicode",
    "int": "a number of more than 64 bits",
    "NoneType": "null",
    "bytes": "binary data",
}


class _Loader(yaml.SafeLoader):
    """SafeLoader with other rules for plain scalars."""


_RULES = (
    ("bool", r"y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("int", r"[-+]?(0b[0-1_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|(0|[1-9][0-9_]*))", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
     "-+0123456789."),
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
)  # fmt: skip
_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _RULES:
    _firsts = [*_first, ""] if _name == "null" else list(_first)
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _firsts)


def _bool(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in ("y", "yes", "true", "on")


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        digits = "0o" + digits[1:]
    return sign * int(digits, 0)


_Loader.add_constructor("tag:yaml.org,2002:bool", _bool)
_Loader.add_constructor("tag:yaml.org,2002:int", _int)


@functools.lru_cache(maxsize=512)
def parse(text: str) -> Mapping[str, Any]:
    """The mapping, with text as keys all the way down; empty for an empty text. Raises RuntimeEnvError.

    Callers share the value: never modify it.
    """
    try:
        value = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise RuntimeEnvError(_words(error)) from None
    except RecursionError:
        raise RuntimeEnvError("not valid YAML: nested too deeply") from None
    except (ValueError, AttributeError, TypeError):  # their words repeat the value
        raise RuntimeEnvError("not valid YAML: a value does not fit its tag") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RuntimeEnvError("must be a mapping such as `pip: [...]`")
    budget = [VALUES_MAX]
    return {_key(key): _plain(item, budget, 1) for key, item in value.items()}


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    """JSON-like: keys as text, whole floats as integers."""
    budget[0] -= 1
    if budget[0] < 0 or depth > DEPTH_MAX:
        raise RuntimeEnvError(f"more than {VALUES_MAX} values, or nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {_key(key): _plain(item, budget, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, budget, depth + 1) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RuntimeEnvError(f"{value} has no form in JSON")
        return int(value) if value.is_integer() and abs(value) < 1e21 else value
    if value is None or (isinstance(value, str) and _encodable(value)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    raise RuntimeEnvError(f"{_called(value)} has no form in JSON")


def _encodable(text: str) -> bool:
    """False for half a surrogate pair, which YAML's escapes can make."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float) or (isinstance(key, str) and _encodable(key)):
        return str(key)
    raise RuntimeEnvError(f"{_called(key)} cannot be a key")


def _called(value: Any) -> str:
    return _CALLED.get(type(value).__name__, f"a {type(value).__name__}")


def _words(error: yaml.YAMLError) -> str:
    """One line without the text itself, which may hold secrets."""
    mark = getattr(error, "problem_mark", None)
    place = f" in line {mark.line + 1}" if mark is not None else ""
    return f"not valid YAML{place}: {getattr(error, 'problem', None) or type(error).__name__}"
