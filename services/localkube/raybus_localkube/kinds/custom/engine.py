"""The CEL engine: the extension module of `common-expression-language` without the package around it.

The package's own __init__ imports a command line with rich and prompt_toolkit: 13 MB and a tenth of a second for nothing.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from typing import Any


def _load() -> Any:
    package = importlib.util.find_spec("cel")
    if package is None or not package.submodule_search_locations:
        raise ImportError("CEL rules need the package common-expression-language")
    folder = Path(next(iter(package.submodule_search_locations)))
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    file = next(path for suffix in suffixes if (path := folder / f"cel{suffix}").exists())
    loader = importlib.machinery.ExtensionFileLoader("cel.cel", str(file))
    spec = importlib.util.spec_from_file_location("cel.cel", file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


_engine = _load()


def compile_expression(text: str) -> Any:
    """A program with `execute(variables)`. ValueError if the text is no CEL."""
    return _engine.compile(text)
