"""From the command line to settings: flags made from the fields, one clear line for each kind of mistake.

A mistake ends the process with exit code 2 and without a stack trace. Values of secret fields are never printed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NoReturn, TypeVar

from pydantic import AliasChoices, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError

from raybus.runtime.configfile import ConfigFileError
from raybus.runtime.settings import ServiceSettings

S = TypeVar("S", bound=ServiceSettings)
EXIT_USAGE = 2


def load(settings: type[S], prog: str, arguments: Sequence[str] | None = None, description: str = "") -> S:
    """The settings of this process. Ends it with exit code 2 and one line if a flag, variable or file is wrong."""
    parser = _parser(settings, prog, description)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        return settings(**given)
    except ValidationError as error:
        parser.error("; ".join(_explained(settings, item, given) for item in error.errors()))
    except (ConfigFileError, SettingsError) as error:
        parser.error(str(error))


def flag_of(field: str) -> str:
    return "--" + field.replace("_", "-")


def variables_of(settings: type[ServiceSettings], field: str) -> list[str]:
    """The environment variables that a field is read from, the first that is set counts."""
    alias = settings.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    if isinstance(alias, str):
        return [alias]
    return [f"{settings.model_config.get('env_prefix', '')}{field}".upper()]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message = self._about_unknown(unknown)
        self.exit(EXIT_USAGE, f"{self.prog}: {message} ({self.prog} --help lists the settings)\n")

    def _about_unknown(self, text: str) -> str:
        flag = text.partition(" ")[0].partition("=")[0]
        near = difflib.get_close_matches(flag, [o for a in self._actions for o in a.option_strings], n=1)
        return f"unknown argument {flag}" + (f"; did you mean {near[0]}?" if near else "")


def _parser(settings: type[ServiceSettings], prog: str, description: str) -> _Parser:
    parser = _Parser(
        prog=prog,
        description=description or None,
        epilog="A flag wins over its environment variable, that over the --config file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=metadata.version("raybus"))
    for name, field in settings.model_fields.items():
        option = parser.add_argument(
            flag_of(name), dest=name, metavar=name.split("_")[-1].upper(), help=_help(settings, name, field)
        )
        if field.annotation is bool:
            option.nargs, option.const, option.metavar = "?", "true", "true|false"
    return parser


def _help(settings: type[ServiceSettings], name: str, field: FieldInfo) -> str:
    default = field.default
    known = not field.is_required() and field.default_factory is None and not isinstance(default, SecretStr)
    shown = f"default {default}; " if known and default not in ("", ()) else ""
    return f"{field.description or ''} [{shown}{', '.join(variables_of(settings, name))}]".replace("%", "%%")


def _explained(settings: type[ServiceSettings], item: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    place = str(item["loc"][0]) if item["loc"] else ""
    fields = settings.model_fields
    name = next((f for f in fields if place == f or place in variables_of(settings, f)), "")
    if not name:
        return str(item["msg"])
    message = str(item["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    secret = fields[name].annotation is SecretStr or "password" in message
    value = "" if secret or item["type"] == "missing" else f" (got {str(item['input'])[:80]!r})"
    return f"{_source(settings, name, given)}: {message}{value}"


def _source(settings: type[ServiceSettings], name: str, given: Mapping[str, Any]) -> str:
    if name in given:
        return flag_of(name)
    environment = {variable.upper() for variable in os.environ}
    variable = next((v for v in variables_of(settings, name) if v.upper() in environment), None)
    return variable or f"{flag_of(name)} (from the --config file)"


def fail(prog: str, message: str) -> NoReturn:
    """End a service that cannot start: one line, exit code 1."""
    sys.stderr.write(f"{prog}: {message}\n")
    sys.exit(1)
