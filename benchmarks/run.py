"""`make bench`: the benchmarks that need nothing but this machine, one after the other, each as ratios or figures of one run.

    python benchmarks/run.py

With KUBECONFIG set (a test cluster without nodes of its own), 1,000 RayClusters are created on it as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    wanted = [("idle.py",), ("gateway_to_reconcile.py",), ("run_overhead.py", "--rounds", "3")]
    if os.environ.get("KUBECONFIG"):
        wanted.append(("create_clusters.py", "--clusters", "1000"))
    codes = []
    for script, *arguments in wanted:
        print(f"\n== {script}", flush=True)
        codes.append(subprocess.run([sys.executable, str(HERE / script), *arguments], check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
