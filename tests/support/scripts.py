"""Programs that are in no package, as modules: deploy/generate.py, docs/generate.py and the like."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def module(path: Path) -> ModuleType:
    """The script at `path`, read anew each time and known to nobody else."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded
