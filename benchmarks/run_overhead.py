"""What `raybus run` adds to the same job done by hand: seconds from the command to Ray's verdict, both in one run.

By hand: `ray start` for the head, `ray start` for the worker, `ray job submit`. With Raybus: `raybus run` where a local Raybus
runs already. The two alternate; the medians, their ratio and their difference are printed.

    python benchmarks/run_overhead.py [--rounds 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import yaml

BIN = Path(sys.executable).parent
EXAMPLE = Path(__file__).parents[1] / "examples" / "rayjob.yaml"
LIMIT_S = 300
# Loopback addresses and ports of their own, so that head and worker fit beside each other on one machine.
HEAD_IP, WORKER_IP = "127.0.1.1", "127.0.1.2"
NODE = ["--min-worker-port=0", "--max-worker-port=0", "--num-cpus=1", "--object-store-memory=100000000"]
HEAD = [
    "--head", f"--node-ip-address={HEAD_IP}", f"--dashboard-host={HEAD_IP}", "--port=20100",
    "--ray-client-server-port=20101", "--metrics-export-port=20102", "--dashboard-agent-listen-port=20103",
]  # fmt: skip
WORKER = [
    f"--address={HEAD_IP}:20100", f"--node-ip-address={WORKER_IP}", "--metrics-export-port=20112",
    "--dashboard-agent-listen-port=20113",
]  # fmt: skip


def call(env: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def by_hand(code: Path) -> float:
    """Seconds from the first `ray start` to the end of `ray job submit`. The cluster is ended afterwards, uncounted."""
    mark = f"raybus-bench-{os.getpid()}-{time.monotonic_ns()}"
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAYBUS_BENCH": mark, "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory(prefix="rb", dir="/tmp") as folder:
        try:
            began = time.monotonic()
            call(env, "ray", "start", *HEAD, *NODE, f"--temp-dir={folder}")
            call(env, "ray", "start", *WORKER, *NODE)
            submit = ["ray", "job", "submit", "--address", f"http://{HEAD_IP}:8265"]
            call(
                env, *submit, "--runtime-env-json", '{"env_vars": {"GREETING": "hi"}}', "--", sys.executable, str(code)
            )
            return time.monotonic() - began
        finally:
            end_marked(mark)


def end_marked(mark: str) -> None:
    """End the processes that carry this mark in their environment: those that were started here, and no others."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RAYBUS_BENCH") == mark:
                process.kill()
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    psutil.wait_procs(found, timeout=20)


def with_raybus(env: dict[str, str], job: Path) -> float:
    """Seconds of `raybus run` to its verdict. The end of its cluster is awaited afterwards, uncounted."""
    began = time.monotonic()
    call(env, "raybus", "run", str(job), "--replace")
    took = time.monotonic() - began
    deadline = time.monotonic() + LIMIT_S
    while "headgroup" in call(env, "raybus", "get", "pods", "-o", "json"):
        if time.monotonic() > deadline:
            raise SystemExit("the cluster of the last round is still there")
        time.sleep(0.5)
    return took


def measure(rounds: int) -> dict[str, float | list[float]]:
    with tempfile.TemporaryDirectory(prefix="rb", dir="/tmp") as folder:
        env = {**os.environ, "RAYBUS_DIR": f"{folder}/raybus"}
        job, code = yaml.safe_load_all(EXAMPLE.read_text())
        job["spec"]["ttlSecondsAfterFinished"] = 0
        (Path(folder) / "hello.py").write_text(code["data"]["hello.py"])
        (Path(folder) / "job.yaml").write_text(yaml.safe_dump_all([job, code]))
        call(env, "raybus", "up")
        try:
            hand, raybus = [], []
            for _ in range(rounds):
                hand.append(by_hand(Path(folder) / "hello.py"))
                raybus.append(with_raybus(env, Path(folder) / "job.yaml"))
        finally:
            call(env, "raybus", "down")
    one, other = statistics.median(hand), statistics.median(raybus)
    return {
        "by_hand_s": hand, "raybus_s": raybus, "median_by_hand_s": one, "median_raybus_s": other,
        "ratio": other / one, "difference_s": other - one,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.rounds)
    if arguments.json:
        print(json.dumps(found))
        return
    for name in ("by_hand_s", "raybus_s"):
        print(f"{name:12}", "  ".join(f"{seconds:5.1f}" for seconds in found[name]))
    print(f"raybus run takes {found['ratio']:.2f} times as long as by hand: {found['difference_s']:+.1f} s")


if __name__ == "__main__":
    main()
