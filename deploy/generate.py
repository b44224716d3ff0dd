"""Writes what the chart takes from the code: `make deploy-files`. tests/unit/deploy checks that it is up to date.

Rights in Kubernetes (deploy/helm/raybus/files/rights) and in NATS (deploy/helm/raybus/files/nats). A new service is one more entry
of COMPONENTS.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from raybus.bus import permissions
from raybus.decide import rights
from raybus.decide.rights import Right, Scope
from raybus.domain import kinds
from raybus_cluster_ctrl import act as cluster_act
from raybus_cluster_ctrl.build.access import AUTOSCALER_RULES
from raybus_cluster_ctrl.triggers import ROUTES as CLUSTER_ROUTES
from raybus_job_ctrl import act as job_act
from raybus_job_ctrl.triggers import ROUTES as JOB_ROUTES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "helm" / "raybus" / "files"
NOTE = "# Made by deploy/generate.py from the code: change the code, then run `make deploy-files`.\n"

COMPONENTS: Mapping[str, tuple[Right, ...]] = {
    "gateway": rights.gateway((*CLUSTER_ROUTES, *JOB_ROUTES)),
    "cluster-ctrl": rights.controller(kinds.RAYCLUSTER, cluster_act.ACTIONS, CLUSTER_ROUTES, grants=AUTOSCALER_RULES),
    "job-ctrl": rights.controller(kinds.RAYJOB, job_act.ACTIONS, JOB_ROUTES, probes=True),
    "provisioner": rights.provisioner(("ca", "server", *(user.name for user in permissions.users()))),
}


def rules_of(component: str) -> dict[str, Any]:
    """`{cluster, namespaced, release: [PolicyRule], settings: {<value of the chart>: [PolicyRule]}}`."""
    needed = COMPONENTS[component]
    return {scope.value: rights.rules(needed, scope) for scope in Scope} | {
        "settings": {name: rights.rules(needed, Scope.NAMESPACED, name) for name in rights.settings(needed)}
    }


def files() -> dict[str, str]:
    """Path below FOLDER -> text."""
    made = {f"rights/{name}.yaml": _yaml(rules_of(name)) for name in COMPONENTS}
    return made | {"nats/accounts.conf": NOTE + permissions.accounts_conf()}


def _yaml(data: Any) -> str:
    return NOTE + yaml.safe_dump(data, sort_keys=False, width=160, default_flow_style=None)


# Pages of docs/reference, which docs/generate.py writes


def rights_page() -> list[str]:
    """What each service may do in Kubernetes, and because of what."""
    lines = []
    for component, needed in COMPONENTS.items():
        lines += [f"## {component}", "", "| verbs | on | where | because of |", "|---|---|---|---|"]
        lines += sorted(set(_rows(needed)))
        lines.append("")
    return lines


def _rows(needed: Iterable[Right]) -> Iterable[str]:
    where = {
        Scope.CLUSTER: "the cluster",
        Scope.NAMESPACED: "namespaces looked after",
        Scope.RELEASE: "its own namespace",
    }
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for right in needed:
        what = f"{right.resource}.{right.group}" if right.group else right.resource
        names = f" called {', '.join(f'`{name}`' for name in right.names)}" if right.names else ""
        setting = f", with `{right.setting}`" if right.setting else ""
        why = f"{right.why} (no request of its own)" if right.implied else right.why
        reasons.setdefault((f"`{what}`{names}", where[right.scope] + setting, ", ".join(right.verbs)), []).append(why)
    for (what, place, verbs), why in reasons.items():
        yield f"| {verbs} | {what} | {place} | {'; '.join(dict.fromkeys(why))} |"


def nats_page() -> list[str]:
    """What each user of NATS may publish; each may subscribe to its own inbox alone."""
    lines = []
    for user in permissions.users():
        lines += [f"## {user.name}", "", f"Subscribes to `{'`, `'.join(user.subscribe)}`.", ""]
        lines += ["| publishes to | for |", "|---|---|"]
        reasons: dict[str, list[str]] = {}
        for grant in user.publish:
            reasons.setdefault(grant.subject, []).append(grant.why)
        lines += [f"| `{subject}` | {'; '.join(dict.fromkeys(why))} |" for subject, why in reasons.items()]
        lines.append("")
    return lines


def main(folder: Path) -> None:
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
