"""A private folder of a command: made or refused with words, its ports drawn once, its files replaced in one step."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raybus.cli.errors import EXIT_ENVIRONMENT, UserError


def make_private(root: Path, subfolders: Iterable[Path], max_length: int) -> None:
    """Make the folders, for their owner alone. UserError if they cannot be used, or if `root` is longer than `max_length` bytes:
    a unix socket's path may have 107, and some lie below it.
    """
    if len(os.fsencode(root)) > max_length:
        raise UserError(
            f"the path of the folder is too long for unix sockets: {root}",
            f"choose one of at most {max_length} bytes with --dir",
            EXIT_ENVIRONMENT,
        )
    try:
        for path in (root, *subfolders):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = root / ".writable"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot use the folder {root}: {error.strerror}", "choose another with --dir", EXIT_ENVIRONMENT
        ) from None


def drawn_ports(path: Path, names: Iterable[str], named: Mapping[str, int]) -> dict[str, int]:
    """The ports of a folder: kept over a restart in `path`, drawn again where somebody else has one now.

    `named` were asked for by the user: UserError if one of them is taken.
    """
    known: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        known = json.loads(path.read_text())
    for name, port in named.items():
        require_free(port, "--port")
        known[name] = port
    for name in names:
        try:
            require_free(known[name], name)
        except (KeyError, UserError):
            known[name] = free_port(set(known.values()))
    write_atomically(path, json.dumps(known))
    return known


def free_port(taken: set[int]) -> int:
    """A port of 127.0.0.1 that was free a moment ago, and is none of `taken`."""
    with contextlib.ExitStack() as stack:
        while True:
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            port = int(sock.getsockname()[1])
            if port not in taken:
                return port


def require_free(port: int, what: str) -> None:
    """UserError if something listens on 127.0.0.1:port already."""
    if not is_free(port):
        raise UserError(f"port {port} ({what}) is in use", "choose another one, or stop what uses it", EXIT_ENVIRONMENT)


def is_free(port: int) -> bool:
    """Whether nothing listens on 127.0.0.1:port."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace the file in one step, so that a kill leaves the old or the new text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The file's object; {} if there is none, or none that can be read."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found
