"""Alerts, runbooks and dashboard: they belong together, and speak of metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raybus.observe.metrics import Described
from support import promql
from support.scripts import module

ROOT = Path(__file__).resolve().parents[3]
ALERTS = ROOT / "deploy" / "alerts"
RUNBOOKS = ROOT / "docs" / "runbooks"
DASHBOARD = ROOT / "deploy" / "dashboards" / "raybus.json"
CHART = ROOT / "deploy" / "helm" / "raybus" / "files"

OF_TARGETS = {"job", "instance", "namespace"}
"""Labels that Prometheus gives everything it scrapes."""
OF_OBJECTS = {"name", "namespace", "uid"}
"""Labels that grow with the number of objects."""


docs = module(ROOT / "docs" / "generate.py")
deploy = module(ROOT / "deploy" / "generate.py")

DESCRIBED: tuple[Described, ...] = tuple(each for found in docs.described().values() for each in found)
LABELS: dict[str, set[str]] = {"up": set()}
for each in DESCRIBED:
    series = [f"{each.name}_{part}" for part in ("bucket", "sum", "count")] if each.type == "histogram" else [each.name]
    for one in series:
        LABELS.setdefault(one, set()).update(each.labels, {"le"} if one.endswith("_bucket") else ())

RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((ALERTS / "raybus.yaml").read_text())["groups"]
    for rule in group["rules"]
}
CASES = [
    case
    for path in sorted((ALERTS / "tests").glob("*.yaml"))
    for test in yaml.safe_load(path.read_text())["tests"]
    for case in test["alert_rule_test"]
]


def queries() -> Iterator[tuple[str, str]]:
    """Title and expression of each query of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


EXPRESSIONS = [*((name, rule["expr"]) for name, rule in RULES.items()), *queries()]


class TestNames:
    @pytest.mark.parametrize(("where", "expr"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
    def test_every_metric_and_label_is_in_the_reference(self, where: str, expr: str) -> None:
        found = list(promql.metrics(expr))
        assert found, f"{where} asks for no metric of ours: {expr}"
        reachable = set(OF_TARGETS)
        for name, labels in found:
            assert name in LABELS, f"{where}: there is no {name}"
            assert labels <= LABELS[name] | OF_TARGETS, f"{where}: {name} has no {labels - LABELS[name]}"
            reachable |= LABELS[name]
        assert promql.grouped(expr) <= reachable, f"{where} groups by {promql.grouped(expr) - reachable}"

    def test_the_check_itself_sees_wrong_names(self) -> None:
        expr = 'sum by (kind) (rate(raybus_nothing_total{a="b",c=~"d|e"}[5m])) / on (job) up'
        assert list(promql.metrics(expr)) == [("raybus_nothing_total", {"a", "c"}), ("up", set())]
        assert promql.grouped(expr) == {"kind", "job"}

    def test_every_metric_of_ours_is_shown_or_watched(self) -> None:
        used = {name for _, expr in EXPRESSIONS for name, _ in promql.metrics(expr)}
        shown = {each.name for each in DESCRIBED if {each.name, f"{each.name}_bucket", f"{each.name}_count"} & used}
        unused = {each.name for each in DESCRIBED if each.name.startswith(("raybus_", "kuberay_"))} - shown
        assert unused == set(), "no panel and no alert looks at them"


class TestLabels:
    """What a label may hold is bounded, or the metric is KubeRay's and has to name its object."""

    def test_only_kuberays_metrics_name_objects(self) -> None:
        naming = {each.name for each in DESCRIBED if set(each.labels) & OF_OBJECTS}
        assert naming == {each.name for each in DESCRIBED if each.name.startswith("kuberay_")}

    def test_all_other_labels_are_known_to_be_bounded(self) -> None:
        bounded = {
            "action", "result", "kind", "controller", "operation", "reason", "how", "why", "state", "check",  # our words
            "component", "version",  # a handful of releases
            "code", "method", "verb", "host",  # of HTTP; there is one API server
            "job_deployment_status",  # states of a RayJob
        }  # fmt: skip
        labels = {label for each in DESCRIBED if not each.name.startswith("kuberay_") for label in each.labels}
        assert labels <= bounded, f"say why {labels - bounded} cannot grow, and add it here"

    @pytest.mark.parametrize(
        ("name", "labels"),
        [
            ("kuberay_cluster_info", {"name", "namespace", "uid", "owner_kind"}),
            ("kuberay_cluster_condition_provisioned", {"name", "namespace", "uid", "condition"}),
            ("kuberay_cluster_provisioned_duration_seconds", {"name", "namespace", "uid"}),
            ("kuberay_job_info", {"name", "namespace", "uid"}),
            ("kuberay_job_deployment_status", {"name", "namespace", "uid", "deployment_status"}),
            (
                "kuberay_job_execution_duration_seconds",
                {"name", "namespace", "uid", "job_deployment_status", "retry_count"},
            ),
        ],
    )
    def test_kuberays_metrics_have_kuberays_labels(self, name: str, labels: set[str]) -> None:
        assert {(each.type, *sorted(each.labels)) for each in DESCRIBED if each.name == name} == {
            ("gauge", *sorted(labels))
        }


class TestAlerts:
    def test_each_has_a_runbook_and_each_runbook_an_alert(self) -> None:
        assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(RULES)

    @pytest.mark.parametrize("name", RULES)
    def test_it_says_what_is_wrong_and_where_to_read_on(self, name: str) -> None:
        rule = RULES[name]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"

    @pytest.mark.parametrize("name", RULES)
    def test_its_runbook_says_what_it_means_what_to_look_at_and_what_to_do(self, name: str) -> None:
        text = (RUNBOOKS / f"{name}.md").read_text()
        found = re.fullmatch(r"# (\w+)\n\n(.+?)\n\n## Look at\n\n(.+?)\n\n## Do\n\n(.+)", text, re.DOTALL)
        assert found, "title, what it means, `## Look at`, `## Do`"
        title, means, look, do = found.groups()
        assert title == name
        assert len(means) > 80
        assert look.count("- ") >= 2
        assert do.startswith("1. ")

    @pytest.mark.parametrize("name", RULES)
    def test_it_is_tested_to_fire_and_to_be_silent(self, name: str) -> None:
        fires = {bool(case.get("exp_alerts")) for case in CASES if case["alertname"] == name}
        assert fires == {True, False}

    def test_nothing_else_is_tested(self) -> None:
        assert {case["alertname"] for case in CASES} == set(RULES)

    def test_metrics_that_runbooks_name_exist(self) -> None:
        named = {
            (path.stem, name)
            for path in RUNBOOKS.glob("*.md")
            for name in re.findall(r"\b(?:raybus|kuberay|rest_client|process)_[a-z]+_[a-z_]+\b", path.read_text())
        }
        known = set(LABELS) | {each.name for each in DESCRIBED}
        assert {(where, name) for where, name in named if name not in known} == set()


class TestFiles:
    def test_the_dashboard_is_what_its_panels_say(self) -> None:
        assert DASHBOARD.read_text() == deploy.dashboard(), "run `make deploy-files` and commit what it writes"

    @pytest.mark.parametrize(
        ("copy", "original"),
        [("alerts/raybus.yaml", ALERTS / "raybus.yaml"), ("dashboards/raybus.json", DASHBOARD)],
    )
    def test_the_chart_has_the_same(self, copy: str, original: Path) -> None:
        assert (CHART / copy).read_text() == original.read_text(), "run `make deploy-files` and commit what it writes"

    def test_panels_have_ids_of_their_own_and_do_not_overlap(self) -> None:
        panels = json.loads(DASHBOARD.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells

    def test_every_panel_takes_the_chosen_data_source(self) -> None:
        text = DASHBOARD.read_text()
        for panel in json.loads(text)["panels"]:
            if panel["type"] != "row":
                assert panel["datasource"]["uid"] == "${datasource}"
                assert panel["targets"]
