"""Small programs on every pod's PATH, in front of the host's: what Ray's images have and the host may lack, or has only slowly.

They run with the environment's Python, isolated and without its packages, so that they start in some 15 ms.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_SYSTEM = "/usr/local/bin:/usr/bin:/bin"


def install(folder: Path) -> None:
    """Write the shims into `folder`: `ray` where Ray is installed, `wget` and `python` where there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    ray = find_ray()
    if ray is not None:
        _write(folder / "ray", (_HERE / "ray_cli.py").read_text(), {"RAY_VERSION": ray[0], "RAY_PROGRAM": ray[1]})
    if not Path(sys.prefix, "bin", "python").exists() and shutil.which("python", path=_SYSTEM) is None:
        (folder / "python").symlink_to(sys.executable)
    if shutil.which("wget", path=_SYSTEM) is None:
        _write(folder / "wget", (_HERE / "wget.py").read_text(), {})


def find_ray() -> tuple[str, str] | None:
    """(version, path of the command) of the environment's Ray, without importing it; None if it is not there."""
    spec = importlib.util.find_spec("ray")
    program = Path(sys.prefix, "bin", "ray")
    if spec is None or spec.origin is None or not program.exists():
        return None
    for line in Path(spec.origin).with_name("_version.py").read_text().splitlines():
        if line.startswith("version = "):
            return line.split('"')[1], str(program)
    return None


def _write(path: Path, source: str, constants: dict[str, str]) -> None:
    for name, value in constants.items():
        source = source.replace(f'{name} = ""', f"{name} = {value!r}")
    path.write_text(f"#!{sys.executable} -IS\n{source}")
    path.chmod(0o755)
