"""What `raybus doctor` makes of this machine, and how it is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raybus.cli.doctor import machine, report
from raybus.cli.doctor.facts import Finding
from raybus.cli.doctor.machine import GIB, Machine


def facts(**changed: Any) -> Machine:
    given: dict[str, Any] = {
        "folder": "/f", "free": 50 * GIB, "memory": 8 * GIB, "ray": "2.60.0", "nats_server": "nats-server: v2.15.1",
    }  # fmt: skip
    return Machine(**(given | changed))


def service(**changed: Any) -> dict[str, Any]:
    return {"name": "gateway", "ready": True, "why": "", "restarts": 0, "log": "/f/logs/gateway.log", **changed}


def test_all_is_well():
    for each in (facts(), facts(running=True, services=[service()])):
        assert {finding.level for finding in machine.findings(each)} == {"ok"}


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"folder_error": "cannot use the folder /f: Permission denied"}, "folder", "failed", "Permission denied"),
        ({"free": 4 * GIB}, "disk", "warning", "4.0 GiB free"),
        ({"free": GIB // 4}, "disk", "failed", "0.2 GiB free"),
        ({"nats_server_error": "the program nats-server is missing"}, "nats-server", "failed", "is missing"),
        ({"ray_error": "No module named 'ray'"}, "Ray", "failed", "No module named 'ray'"),
        ({"sandbox": ("user namespaces are off", "sysctl ...")}, "user namespaces", "failed", "are off"),
        ({"memory": GIB}, "memory", "warning", "1.0 GiB available"),
        ({"running": True, "services": [service(ready=False, why="nats: no connection")]}, "services", "failed", "no connection"),
        ({"running": True, "services": [service(restarts=2)]}, "services", "warning", "started again 2 times"),
        ({"taken": {"kube": 6443}}, "ports", "warning", "6443 (kube)"),
    ],
)  # fmt: skip
def test_what_is_not_well(change, check, level, words):
    found = [each for each in machine.findings(facts(**change)) if each.level != "ok"]
    assert [(each.check, each.level) for each in found] == [(check, level)]
    assert words in found[0].what
    assert found[0].remedy


def test_who_serves_a_cluster_elsewhere_needs_no_ray_here():
    found = machine.findings(facts(local=False, ray_error="No module named 'ray'", sandbox=("off", "on")))
    assert {each.level for each in found} == {"ok"}


FINDINGS = [
    Finding("a", "ok", "fine"),
    Finding("b", "warning", "so [so]", "look"),
    Finding("c", "failed", "bad", "mend"),
]


def test_the_exit_code_is_about_failures_alone():
    assert [report.exit_code(FINDINGS[:count]) for count in (0, 1, 2, 3)] == [0, 0, 0, 1]


def test_the_table_has_a_line_of_what_and_one_of_remedy(capsys):
    report.show(FINDINGS, "table")
    assert capsys.readouterr().out.splitlines() == [
        "ok      a: fine", "warning b: so [so]", "        -> look", "failed  c: bad", "        -> mend", "",
        "1 ok, 1 warnings, 1 failed",
    ]  # fmt: skip


def test_json_has_all_of_it(capsys):
    report.show(FINDINGS, "json")
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["checks"][2] == {"check": "c", "level": "failed", "what": "bad", "remedy": "mend"}
