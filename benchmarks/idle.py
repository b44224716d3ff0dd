"""What a local Raybus costs when nothing happens: CPU and memory of each process, without any Ray.

    python benchmarks/idle.py [--seconds 60] [--json]

Starts `raybus up` in a folder of its own, lets it settle, then measures. Memory is PSS: pages that processes share count once.
Wanted: all together below 4 % of one core and below 450 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent
SETTLE_S = 15


def raybus(env: dict[str, str], *words: str) -> str:
    done = subprocess.run([BIN / "raybus", *words], env=env, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode:
        raise SystemExit(f"raybus {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def families(status: dict) -> dict[str, list[psutil.Process]]:
    """The processes of each service, with those that they started; and the one that keeps them all."""
    found = {"raybus up": [psutil.Process(status["pid"])]}
    for service in status["services"]:
        process = psutil.Process(service["pid"])
        found[service["name"]] = [process, *process.children(recursive=True)]
    return found


def cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure(seconds: float) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="rb", dir="/tmp") as folder:
        env = {**os.environ, "RAYBUS_DIR": f"{folder}/raybus"}
        raybus(env, "up")
        try:
            time.sleep(SETTLE_S)
            services = families(json.loads(raybus(env, "status", "-o", "json")))
            before = {name: cpu_s(processes) for name, processes in services.items()}
            time.sleep(seconds)
            return {
                name: {
                    "cpu_percent": 100 * (cpu_s(processes) - before[name]) / seconds,
                    "pss_mb": sum(process.memory_full_info().pss for process in processes) / 2**20,
                }
                for name, processes in services.items()
            }
        finally:
            raybus(env, "down")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.seconds)
    found["all"] = {what: sum(each[what] for each in found.values()) for what in ("cpu_percent", "pss_mb")}
    if arguments.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(f"{name:14} {figures['cpu_percent']:6.2f} % of a core {figures['pss_mb']:7.1f} MB")


if __name__ == "__main__":
    main()
