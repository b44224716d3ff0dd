"""The image's HEALTHCHECK: `python -m raybus.observe.healthcheck` asks the service of this container for its /healthz.

Only the standard library is used, because it is started every few seconds. A container that runs a command instead of a service
has nothing to ask and counts as healthy.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

MAIN_PROCESS = Path("/proc/1/cmdline")
SERVICES = "raybus-"  # the programs of services begin so
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared, not bound
TIMEOUT_S = 3.0


def target(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port of the health endpoint of the process with this command line; None if it is no service.

    Flags count before the environment, as for the service itself. Raises ValueError if the port is not a number.
    """
    if not any(Path(word).name.startswith(SERVICES) for word in argv):
        return None
    host = _setting(argv, environment, "health-host", "127.0.0.1")
    return EVERY_ADDRESS.get(host, host), int(_setting(argv, environment, "health-port", "8082"))


def _setting(argv: Sequence[str], environment: Mapping[str, str], name: str, default: str) -> str:
    value = environment.get("RAYBUS_" + name.replace("-", "_").upper(), default)
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == f"--{name}":
            value = following
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    return value


def ask(host: str, port: int) -> str:
    """What is wrong, in words; empty if the service answers that it is healthy."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"/healthz at {host}:{port} does not answer: {error}"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"/healthz at {host}:{port} answers {status}"


def main() -> int:
    argv = MAIN_PROCESS.read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    where = target(argv, os.environ)
    wrong = ask(*where) if where else ""
    sys.stdout.write(f"{wrong or 'ok'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
