"""Writes deploy/manifests from the chart, for `kubectl apply --server-side -f`: `make manifests`. Needs Helm (argument, else on the PATH).

tests/integration/chart checks that they are up to date.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "manifests"
NAMESPACE = "raybus-system"
MANAGED_BY = "app.kubernetes.io/managed-by"
FILES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "raybus.yaml": ("Raybus for all namespaces.", ()),
    "raybus-namespaced.yaml": (
        "Raybus for the namespace `default` alone: replace `namespace: default` and RAYBUS_NAMESPACES for another.",
        ("watchNamespace={default}", "rbac.userRoles=false"),
    ),
}
NOTE = "# Made from the chart by `make manifests`: change the chart.\n"


def text(helm: str, name: str) -> str:
    """One file, as it should be."""
    about, sets = FILES[name]
    flags = [part for each in sets for part in ("--set", each)]
    chart = ROOT / "deploy" / "helm" / "raybus"
    rendered = subprocess.run(  # noqa: S603 - Helm as the caller named it, and arguments from here
        [helm, "template", "raybus", str(chart), "--namespace", NAMESPACE, *flags],
        capture_output=True,
        text=True,
        check=True,
    )
    documents = [_without_helm(each) for each in yaml.safe_load_all(rendered.stdout) if each]
    return f"# {about}\n{NOTE}" + yaml.safe_dump_all([_namespace(), *documents], sort_keys=False, width=160)


def _namespace() -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "raybus", "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _without_helm(manifest: dict[str, Any]) -> dict[str, Any]:
    """Nobody is to think that Helm looks after it."""
    for holder in (manifest, manifest.get("spec", {}).get("template", {})):
        holder.get("metadata", {}).get("labels", {}).pop(MANAGED_BY, None)
    return manifest


def main() -> None:
    helm = sys.argv[1] if len(sys.argv) > 1 else shutil.which("helm")
    if helm is None:
        sys.exit("no Helm on the PATH: name it, or see tests/tools/helm")
    FOLDER.mkdir(exist_ok=True)
    for name in FILES:
        (FOLDER / name).write_text(text(helm, name))


if __name__ == "__main__":
    main()
