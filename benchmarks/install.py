"""What an installation by the chart costs when nothing happens: CPU and memory of each pod's processes, two replicas of each service.

    tests/with-node-kube /tmp/raybus-node python benchmarks/install.py [--seconds 60]

Installs the chart in the cluster of KUBECONFIG, whose node must be this machine, waits until all is ready, lets it settle, measures,
uninstalls, and writes benchmarks/results/<day>-install.json. Memory is PSS: pages that processes share count once. Wanted: all
together below 6 % of one core and below 700 MB.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "helm" / "raybus"
NAMESPACE = "raybus-bench"
SETTLE_S = 30
WANTED = {"cpu_percent": 6, "pss_mb": 700}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def kubectl(*words: str) -> str:
    return run(Path(sys.executable).parent / "kubectl", "-n", NAMESPACE, *words)


def pods() -> dict[str, str]:
    """uid -> component, such as "gateway" for each of its two pods."""
    found = json.loads(kubectl("get", "pods", "-l", "app.kubernetes.io/part-of=raybus", "-o", "json"))["items"]
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"]["app.kubernetes.io/component"]
        for pod in found
        if pod["status"]["phase"] == "Running"
    }


def processes(of: dict[str, str]) -> list[tuple[str, psutil.Process]]:
    """(component, process): a container's processes name its pod in their control group."""
    found = []
    for process in psutil.process_iter(["name"]):
        try:
            group = Path(f"/proc/{process.pid}/cgroup").read_text().replace("_", "-")
        except (FileNotFoundError, ProcessLookupError):
            continue
        component = next((component for uid, component in of.items() if f"pod{uid}" in group), None)
        if component and process.info["name"] != "pause":
            found.append((component, process))
    if {component for component, _ in found} != set(of.values()):
        raise SystemExit("the pods' processes are not on this machine: run it on the node, as root")
    return found


def measure(seconds: float) -> list[dict[str, object]]:
    each = processes(pods())
    before = [sum(process.cpu_times()[:2]) for _, process in each]
    time.sleep(seconds)
    rows = []
    for (component, process), then in zip(each, before, strict=True):
        used = 100 * (sum(process.cpu_times()[:2]) - then) / seconds
        pss = process.memory_full_info().pss / 2**20
        rows.append(
            {"component": component, "pid": process.pid, "cpu_percent": round(used, 2), "pss_mb": round(pss, 1)}
        )
    return sorted(rows, key=lambda row: (str(row["component"]), row["pid"]))


def installed(seconds: float) -> tuple[float, list[dict[str, object]]]:
    """Seconds from `helm install` to all ready, and the figures at rest."""
    helm = run(ROOT / "tests" / "tools" / "helm").strip()
    values = os.environ.get("RAYBUS_E2E_VALUES")
    given = [*(("--values", values) if values else ()), "--set", "nats.persistence.enabled=false"]
    try:
        began = time.monotonic()
        run(helm, "install", "raybus", CHART, "-n", NAMESPACE, "--create-namespace", *given)
        kubectl("rollout", "status", "statefulset/raybus-nats", "--timeout=120s")
        for name in ("gateway", "cluster-ctrl", "job-ctrl"):
            kubectl("rollout", "status", f"deployment/raybus-{name}", "--timeout=120s")
        ready = time.monotonic() - began
        time.sleep(SETTLE_S)
        return ready, measure(seconds)
    finally:
        subprocess.run([helm, "uninstall", "raybus", "-n", NAMESPACE, "--wait"], check=False)
        kubectl("delete", "namespace", NAMESPACE, "--timeout=60s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    ready, rows = installed(arguments.seconds)
    total = {what: round(sum(row[what] for row in rows), 1) for what in WANTED}
    day = dt.datetime.now(dt.UTC).date()
    result = {
        "day": str(day), "cores": os.cpu_count(), "load": os.getloadavg()[0], "install_to_ready_s": round(ready, 1),
        "measured_s": arguments.seconds, "processes": rows, "all": total, "wanted_below": WANTED,
    }  # fmt: skip
    path = ROOT / "benchmarks" / "results" / f"{day}-install.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(f"{row['component']:14} {row['cpu_percent']:6.2f} % of a core {row['pss_mb']:7.1f} MB")
    print(f"{'all':14} {total['cpu_percent']:6.2f} % of a core {total['pss_mb']:7.1f} MB; ready after {ready:.1f} s")


if __name__ == "__main__":
    main()
