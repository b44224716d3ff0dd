"""The house rules that a machine can check: sizes, nesting, import contracts, and what pure packages and modules may not touch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("shared", "services")
    for path in (ROOT / folder).rglob("*.py")
    if "data" not in path.relative_to(ROOT).parts
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PURE = ("raybus/api", "raybus/domain", "raybus/decide")
PURE_PARTS = ("decide", "build")

FUNCTION_LINES = 60
MODULE_LINES = 400
TEST_MODULE_LINES = 800
NESTING = 4

# Names that mean clock, chance or identity from nowhere, wherever they hang.
FORBIDDEN_ATTRIBUTES = {"now", "utcnow", "today", "uuid1", "uuid4", "monotonic", "perf_counter", "token_hex", "urandom"}
FORBIDDEN_MODULES = {"random", "secrets", "time", "uuid", "asyncio", "socket", "subprocess", "threading", "logging"}
WALL_CLOCK_DOORS = {
    "shared/raybus/bus/clock.py",  # the clock itself
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def is_pure(path: Path) -> bool:
    inside = relative(path)
    return any(f"/{part}/" in inside for part in PURE) or (
        inside.startswith("services/") and any(part in PURE_PARTS for part in path.parts)
    )


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_have_at_most_60_lines() -> None:
    long = [
        f"{relative(path)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1}"
        for path in SOURCES
        for node in functions(parsed(path))
        if node.end_lineno and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]

    assert not long, "take a part with a name of its own out of: " + ", ".join(long)


@pytest.mark.parametrize(
    ("paths", "limit"), [(SOURCES, MODULE_LINES), (TESTS, TEST_MODULE_LINES)], ids=["source", "tests"]
)
def test_modules_stay_short(paths: list[Path], limit: int) -> None:
    counts = {relative(path): len(path.read_text().splitlines()) for path in paths}
    long = [f"{path} has {count}" for path, count in counts.items() if count > limit]

    assert not long, f"more than {limit} lines, split by subject: " + ", ".join(long)


# A `with` does not branch: it is not counted.
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)


def depth(node: ast.AST) -> int:
    """How many blocks lie within each other below this node; an `elif` lies beside its `if`."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        is_elif = (
            isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse and len(node.orelse) == 1
        )
        deepest = max(deepest, depth(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def test_blocks_are_nested_at_most_four_deep() -> None:
    deep = [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in functions(parsed(path))
        if depth(node) > NESTING
    ]

    assert not deep, f"more than {NESTING} blocks within each other: " + ", ".join(deep)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".", maxsplit=1)[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.split(".", maxsplit=1)[0]


def says_pure(path: Path) -> bool:
    """Whether the module's docstring promises it, wherever it lies; "Pure, but for ..." is no such promise."""
    return re.search(r"\bPure\b(?!,? (but|apart))", ast.get_docstring(parsed(path)) or "") is not None


def test_pure_packages_know_no_clock_no_chance_and_no_world() -> None:
    breaches = []
    for path in (path for path in SOURCES if is_pure(path) or says_pure(path)):
        tree = parsed(path)
        breaches += [
            f"{relative(path)}:{line} imports {name}" for line, name in imported(tree) if name in FORBIDDEN_MODULES
        ]
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        breaches += [
            f"{relative(path)}:{call.lineno} calls {ast.unparse(call.func)}"
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr in FORBIDDEN_ATTRIBUTES
        ]
        breaches += [
            f"{relative(path)}:{f.lineno} awaits" for f in functions(tree) if isinstance(f, ast.AsyncFunctionDef)
        ]

    assert not breaches, "time is an argument, the rest is the shell's: " + ", ".join(breaches)


def test_there_are_pure_modules_to_check() -> None:
    assert sum(map(is_pure, SOURCES)) >= 10
    assert sum(map(says_pure, SOURCES)) >= 100


CLOCKED = ("shared/raybus/runtime/", "shared/raybus/bus/")


def test_runtime_and_bus_take_the_time_from_their_clock() -> None:
    """A simulation replaces the clock; whoever reads another one cannot be simulated."""
    breaches = [
        f"{relative(path)}:{node.lineno}"
        for path in SOURCES
        if relative(path).startswith(CLOCKED) and relative(path) not in WALL_CLOCK_DOORS
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in WALL_CLOCKS
    ]

    assert not breaches, "ask the Clock that was given: " + ", ".join(breaches)


WALL_CLOCKS = {
    "time.time",
    "time.monotonic",
    "datetime.now",
    "datetime.datetime.now",
    "dt.datetime.now",
    "datetime.utcnow",
}


def test_pure_modules_say_on_the_door_what_may_live_there() -> None:
    silent = [
        relative(path)
        for path in filter(is_pure, SOURCES)
        if path.read_text().strip() and not ast.get_docstring(parsed(path))
    ]

    assert not silent, "without a docstring: " + ", ".join(silent)


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in TESTS if path.name.startswith("test_")]

    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})
