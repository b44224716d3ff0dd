"""The generated rights: up to date, and within what no service may ever have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from raybus.decide import actions, rights
from raybus.decide.actions import Action
from raybus.decide.rights import Right, Scope
from raybus.domain import kinds
from raybus_cluster_ctrl.build.access import AUTOSCALER_RULES
from support.scripts import module

ROOT = Path(__file__).resolve().parents[3]


generate = module(ROOT / "deploy" / "generate.py")
RIGHTS = sorted((generate.FOLDER / "rights").glob("*.yaml"))
READS = {"get", "list", "watch"}


@dataclass(frozen=True)
class Given:
    group: str
    resource: str
    verb: str
    names: tuple[str, ...]
    scope: str


def given(component: str) -> list[Given]:
    return list(_given(yaml.safe_load((generate.FOLDER / "rights" / f"{component}.yaml").read_text())))


def _given(written: dict[str, Any]) -> Iterator[Given]:
    scopes = {scope: written[scope] for scope in ("cluster", "namespaced", "release")}
    scopes |= written["settings"] | written["clusterSettings"]
    for scope, rules in scopes.items():
        for rule in rules:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Given(group, resource, verb, tuple(rule.get("resourceNames", ())), scope)


@pytest.mark.parametrize("name", sorted(generate.files()))
def test_a_file_is_what_the_code_says(name: str) -> None:
    assert (generate.FOLDER / name).read_text() == generate.files()[name], "run `make deploy-files` and commit"


def test_there_is_a_file_for_each_component_and_no_other() -> None:
    assert {path.stem for path in RIGHTS} == set(generate.COMPONENTS)


@pytest.mark.parametrize("component", [path.stem for path in RIGHTS])
def test_nobody_has_what_leads_to_everything(component: str) -> None:
    for right in given(component):
        assert "*" not in {right.group, right.resource, right.verb}
        assert right.verb not in {"escalate", "bind", "impersonate", "deletecollection"}
        assert right.resource not in {"serviceaccounts/token", "nodes/proxy", "pods/exec", "clusterroles"}
        if right.resource == "secrets":
            assert right.verb in {"get", "create", "patch"}, "to list or to watch Secrets is to read them all"
        if right.scope == "cluster":
            assert right.names, "what is bound in the whole cluster is one object"
            assert right.verb in READS


def test_the_gateway_only_looks_and_sees_neither_secrets_nor_config_maps() -> None:
    assert {right.verb for right in given("gateway")} <= READS
    assert not {right.resource for right in given("gateway")} & {"secrets", "configmaps"}


def test_controllers_do_not_read_secrets_of_others_services() -> None:
    assert not [right for right in given("cluster-ctrl") if right.resource == "secrets" and right.verb != "create"]
    assert {right.verb for right in given("job-ctrl") if right.resource == "secrets"} == {"get"}
    assert not [right for right in given("job-ctrl") if right.resource == "pods" and right.verb not in READS]


def test_the_provisioner_reads_and_changes_its_own_secrets_alone() -> None:
    secrets = [right for right in given("provisioner") if right.resource == "secrets" and right.verb != "create"]

    assert all(name.startswith(rights.PREFIX) for right in secrets for name in right.names)
    assert all(right.names and right.scope == "release" for right in secrets)


def test_cluster_ctrl_has_the_rights_that_it_gives_to_autoscalers() -> None:
    has = {(right.group, right.resource, right.verb) for right in given("cluster-ctrl") if right.scope == "namespaced"}
    gives = {
        (group, resource, verb)
        for rule in AUTOSCALER_RULES
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert gives <= has


def _concrete() -> list[type[Action]]:
    """Those of which there is nothing more special."""
    found = [one for one in vars(actions).values() if isinstance(one, type) and issubclass(one, Action)]
    return [one for one in found if not any(other is not one and issubclass(other, one) for other in found)]


@pytest.mark.parametrize("action", _concrete())
def test_every_action_has_a_line_in_the_table(action: type[Action]) -> None:
    needed = rights.of_action(action)

    assert needed or action in {actions.RecordEvent, actions.Reconsider}
    assert all(right.verbs and right.why for right in needed)


def test_an_action_without_a_line_is_told() -> None:
    class Unheard(Action):
        pass

    with pytest.raises(TypeError, match="Unheard has no line"):
        rights.of_action(Unheard)


def test_rules_are_as_few_as_can_be() -> None:
    needed = (
        rights.on(kinds.POD, "get", why="a"),
        rights.on(kinds.SERVICE, "list", "get", why="b"),
        rights.on(kinds.POD, "list", why="c"),
        rights.on(kinds.POD, "get", "delete", names=("one",), why="named: get is given anyway"),
        rights.on(kinds.POD, "watch", setting="other", why="only with a setting"),
    )

    assert rights.rules(needed, Scope.NAMESPACED) == [
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["one"], "verbs": ["delete"]},
    ]
    assert rights.rules(needed, Scope.NAMESPACED, "other") == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"]}
    ]
    assert rights.rules(needed, Scope.CLUSTER) == []


def test_a_status_is_written_without_a_right_on_the_object_itself() -> None:
    needed = rights.of_action(actions.PatchRayClusterStatus)

    assert {(right.resource, verb) for right in needed for verb in right.verbs} == {
        ("rayclusters/status", "patch"),
        ("rayclusters", "get"),
    }


def test_a_right_is_a_value() -> None:
    """Equal ones are one: the tables show no line twice."""
    assert len({rights.EVENTS, Right(**{f: getattr(rights.EVENTS, f) for f in Right.__slots__})}) == 1


def test_doctor_compares_with_the_same_table() -> None:
    assert generate.DOCTOR.read_text() == generate.doctor_table()
