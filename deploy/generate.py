"""Writes what the chart takes from the code: `make deploy-files`. tests/unit/deploy checks that it is up to date.

Rights in Kubernetes (deploy/helm/raybus/files/rights) and in NATS (deploy/helm/raybus/files/nats), copies of the alerts, and the
dashboard, from deploy/dashboards/panels.yaml. A new service is one more entry
of COMPONENTS.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from raybus.bus import permissions
from raybus.decide import rights
from raybus.decide.rights import Right, Scope
from raybus.domain import kinds
from raybus.runtime.provision import plan as provisioning
from raybus_cluster_ctrl import act as cluster_act
from raybus_cluster_ctrl.build.access import AUTOSCALER_RULES
from raybus_cluster_ctrl.triggers import ROUTES as CLUSTER_ROUTES
from raybus_job_ctrl import act as job_act
from raybus_job_ctrl.triggers import ROUTES as JOB_ROUTES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "helm" / "raybus" / "files"
DOCTOR = ROOT / "shared" / "raybus" / "cli" / "doctor" / "data" / "rights.json"
ALERTS = ROOT / "deploy" / "alerts" / "raybus.yaml"
DASHBOARD = ROOT / "deploy" / "dashboards" / "raybus.json"
PANELS = ROOT / "deploy" / "dashboards" / "panels.yaml"
NOTE = "# Made by deploy/generate.py from the code: change the code, then run `make deploy-files`.\n"

COMPONENTS: Mapping[str, tuple[Right, ...]] = {
    "gateway": rights.gateway((*CLUSTER_ROUTES, *JOB_ROUTES)),
    "cluster-ctrl": rights.controller(kinds.RAYCLUSTER, cluster_act.ACTIONS, CLUSTER_ROUTES, grants=AUTOSCALER_RULES),
    "job-ctrl": rights.controller(kinds.RAYJOB, job_act.ACTIONS, JOB_ROUTES, probes=True),
    "provisioner": rights.provisioner(provisioning.kept(), provisioning.derived()),
}


def rules_of(component: str) -> dict[str, Any]:
    """`{cluster, namespaced, release: [PolicyRule], settings, clusterSettings: {<value of the chart>: [PolicyRule]}}`."""
    needed = COMPONENTS[component]
    conditional = {"settings": Scope.NAMESPACED, "clusterSettings": Scope.CLUSTER}
    return {scope.value: rights.rules(needed, scope) for scope in Scope} | {
        key: {name: rights.rules(needed, scope, name) for name in rights.settings(needed, scope)}
        for key, scope in conditional.items()
    }


def files() -> dict[str, str]:
    """Path below FOLDER -> text."""
    made = {f"rights/{name}.yaml": _yaml(rules_of(name)) for name in COMPONENTS}
    made |= {"nats/accounts.conf": NOTE + permissions.accounts_conf()}
    return made | {"alerts/raybus.yaml": ALERTS.read_text(), "dashboards/raybus.json": dashboard()}


def _yaml(data: Any) -> str:
    return NOTE + yaml.safe_dump(data, sort_keys=False, width=160, default_flow_style=None)


# The dashboard


COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> str:
    """Grafana's JSON of panels.yaml. Ids are numbers in order, so that a change of one panel changes little else."""
    given = yaml.safe_load(PANELS.read_text())
    board = {
        "uid": "raybus",
        "title": given["title"],
        "tags": ["raybus", "ray"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_panels(given["rows"])),
    }
    return json.dumps(board, indent=2) + "\n"


def _variables() -> list[dict[str, Any]]:
    every = {"selected": True, "text": "All", "value": "$__all"}
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "namespace",
            "label": "Namespace of Ray",
            "type": "query",
            "datasource": SOURCE,
            "query": 'label_values({__name__=~"kuberay_(cluster|job)_info"}, namespace)',
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": every,
        },
    ]


def _panels(rows: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Rows from above to below, panels from left to right, all of one row of the grid with the same height."""
    number = x = y = 0
    for row in rows:
        number += 1
        yield {
            "id": number, "type": "row", "title": row["title"], "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        }  # fmt: skip
        y += 1
        x = height = 0
        for given in row["panels"]:
            number += 1
            width = given.get("width", 8)
            if x + width > COLUMNS:
                x, y = 0, y + height
            height = 4 if given.get("type") == "stat" else 8
            yield _panel(number, given, {"h": height, "w": width, "x": x, "y": y})
            x += width
        y += height


def _panel(number: int, given: Mapping[str, Any], place: Mapping[str, int]) -> dict[str, Any]:
    kind = given.get("type", "timeseries")
    instant = {"instant": True, "format": "table"} if kind == "table" else {}
    targets = [
        {
            "refId": chr(ord("A") + n),
            "datasource": SOURCE,
            "expr": query["expr"],
            "legendFormat": query["legend"],
            **instant,
        }
        for n, query in enumerate(given["queries"])
    ]
    panel: dict[str, Any] = {
        "id": number,
        "type": kind,
        "title": given["title"],
        "description": given.get("about", ""),
        "datasource": SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": given.get("unit", "short"), "min": 0}, "overrides": []},
        "targets": targets,
    }
    if kind == "table":
        hidden = dict.fromkeys(
            ("Time", "__name__", "job", "instance", "uid", "container", "endpoint", "pod", "service"), True
        )
        panel["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return panel


# Pages of docs/reference, which docs/generate.py writes


def rights_page() -> list[str]:
    """What each service may do in Kubernetes, and because of what."""
    lines = []
    for component, needed in COMPONENTS.items():
        lines += [f"## {component}", "", "| on | verb | where | because of |", "|---|---|---|---|"]
        lines += _rows(needed)
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
        what = f"`{right.resource}.{right.group}`" if right.group else f"`{right.resource}`"
        if right.names:
            what += f" called {', '.join(f'`{name}`' for name in right.names)}"
        place = where[right.scope] + (f", with `{right.setting}`" if right.setting else "")
        why = f"{right.why} (no request of its own)" if right.implied else right.why
        for verb in right.verbs:
            reasons.setdefault((what, verb, place), []).append(why)
    for (what, verb, place), why in sorted(reasons.items()):
        yield f"| {what} | {verb} | {place} | {'; '.join(dict.fromkeys(why))} |"


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


def doctor_table() -> str:
    """The same rights for `raybus doctor`, which compares them with what an installation has."""
    return json.dumps({name: rules_of(name) for name in COMPONENTS}, indent=1) + "\n"


def main(folder: Path) -> None:
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    DOCTOR.write_text(doctor_table())
    DASHBOARD.write_text(dashboard())
