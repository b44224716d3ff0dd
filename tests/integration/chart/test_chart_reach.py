"""Who may do what and reach whom in a rendered release: roles, bindings, network policies; and that a new service gets all of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from support.chart import CHART, NAMESPACE, Json, manifests, one, rendered, run, sets

SERVICES = ("gateway", "cluster-ctrl", "job-ctrl")
EVERYWHERE = {"namespaces", "leases", "customresourcedefinitions"}
"""What a release for some namespaces may look at outside of them, by name: see docs/how-to/install.md."""


def of_kind(found: list[Json], kind: str) -> list[Json]:
    return [each for each in found if each["kind"] == kind]


def resources(role: Json) -> set[str]:
    return {resource for rule in role["rules"] for resource in rule["resources"]}


def component(manifest: Json) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


@pytest.mark.parametrize("name", ["namespaces", "own-namespace"])
def test_with_namespaces_rights_end_at_them(name: str) -> None:
    found = rendered(name)
    watched = yaml.safe_load((CHART.parents[2] / f"tests/integration/chart/values/{name}.yaml").read_text())
    for role in of_kind(found, "ClusterRole"):
        if component(role) != "user-roles":
            assert resources(role) <= EVERYWHERE
            assert all(rule["verbs"] == ["create"] or rule.get("resourceNames") for rule in role["rules"])
    for service in SERVICES:
        mine = [role["metadata"]["namespace"] for role in of_kind(found, "Role") if component(role) == service]
        assert sorted(mine) == sorted(watched["watchNamespace"])


def test_with_all_namespaces_there_are_no_roles_but_the_provisioners_own() -> None:
    roles = of_kind(rendered("default"), "Role")
    assert [(component(role), role["metadata"]["namespace"]) for role in roles] == [("provisioner", NAMESPACE)]


@pytest.mark.parametrize("name", sets())
def test_each_binding_is_of_a_role_and_an_account_that_are_there(name: str) -> None:
    found = rendered(name)
    roles = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found}
    for binding in [*of_kind(found, "RoleBinding"), *of_kind(found, "ClusterRoleBinding")]:
        reference = binding["roleRef"]
        assert (reference["kind"], binding["metadata"].get("namespace"), reference["name"]) in roles
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in roles


@pytest.mark.parametrize("name", sets())
def test_each_pod_runs_as_an_account_of_its_own(name: str) -> None:
    found = rendered(name)
    pods = [*of_kind(found, "Deployment"), *of_kind(found, "Job")]
    accounts = [each["spec"]["template"]["spec"]["serviceAccountName"] for each in pods]
    assert len(set(accounts)) == len(accounts) == len(SERVICES) + 1


def test_the_right_to_ask_through_the_api_server_comes_with_its_setting_alone() -> None:
    for name, expected in (("default", False), ("own-namespace", True)):
        roles = [*of_kind(rendered(name), "ClusterRole"), *of_kind(rendered(name), "Role")]
        held = {component(role) for role in roles if "services/proxy" in resources(role)}
        assert held == ({"job-ctrl"} if expected else set())


def test_definitions_may_be_written_unless_they_are_to_be_skipped() -> None:
    def writers(name: str) -> set[str]:
        roles = of_kind(rendered(name), "ClusterRole")
        return {component(role) for role in roles if "customresourcedefinitions" in resources(role)}

    assert writers("default") == {"provisioner"}
    assert run(["template", "raybus", CHART, "--set", "crds.mode=skip"]).stdout.count("customresourcedefinitions") == 0


# Network


def selects(policy: Json, labels: Json) -> bool:
    wanted = policy["spec"]["podSelector"].get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items())


def pods(found: list[Json]) -> dict[str, Json]:
    """Component -> template of its pods."""
    made = [*of_kind(found, "Deployment"), *of_kind(found, "StatefulSet"), *of_kind(found, "Job")]
    return {component(each): each["spec"]["template"] for each in made}


@pytest.mark.parametrize("name", [name for name in sets() if name != "least"])
def test_every_pod_is_denied_all_but_what_its_own_policy_allows(name: str) -> None:
    policies = of_kind(rendered(name), "NetworkPolicy")
    [deny] = [each for each in policies if not {"ingress", "egress"} & set(each["spec"])]
    assert deny["spec"]["policyTypes"] == ["Ingress", "Egress"]
    for who, template in pods(rendered(name)).items():
        labels = template["metadata"]["labels"]
        assert selects(deny, labels)
        [own] = [each for each in policies if each is not deny and selects(each, labels)]
        assert component(own) == who


@pytest.mark.parametrize("name", [name for name in sets() if name != "least"])
def test_ports_that_policies_name_are_ports_of_the_pods(name: str) -> None:
    named = {
        port["name"]
        for template in pods(rendered(name)).values()
        for container in template["spec"]["containers"]
        for port in container.get("ports", ())
    }
    for policy in of_kind(rendered(name), "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            for port in rule["ports"]:
                assert port["port"] in named


def egress(name: str, who: str) -> list[Json]:
    [policy] = [each for each in of_kind(rendered(name), "NetworkPolicy") if component(each) == who]
    return list(policy["spec"].get("egress", ()))


def ports(rules: list[Json]) -> set[int | str]:
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_who_goes_out_where() -> None:
    dns_and_api = {53, 443, 6443, 8443}
    assert ports(egress("default", "gateway")) == {*dns_and_api, 4222}
    assert ports(egress("default", "cluster-ctrl")) == {*dns_and_api, 4222}
    assert ports(egress("default", "job-ctrl")) == {*dns_and_api, 4222, 8265}
    assert ports(egress("default", "nats")) == set()
    assert ports(egress("three-servers", "nats")) == {53, "cluster"}
    assert ports(egress("existing-nats-nkeys", "gateway")) == {*dns_and_api, 14222}
    assert ports(egress("narrow-network", "job-ctrl")) == {53, 5353, 6443, 4222, 8265, 18265}


def test_dashboards_are_reached_on_heads_of_the_namespaces_looked_after() -> None:
    def reached(name: str) -> Json:
        [rule] = [rule for rule in egress(name, "job-ctrl") if {"port": 8265} in rule["ports"]]
        [peer] = rule["to"]
        assert peer["podSelector"] == {"matchLabels": {"ray.io/node-type": "head"}}
        return dict(peer["namespaceSelector"])

    assert reached("default") == {}
    [term] = reached("namespaces")["matchExpressions"]
    assert term == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}


def test_a_service_is_one_entry(tmp_path: Path) -> None:
    """What a later release has to do for another controller: an entry and its rights."""
    chart = tmp_path / "raybus"
    shutil.copytree(CHART, chart)
    components = chart / "files" / "components.yaml"
    entry = {"command": "raybus-new-ctrl", "natsUser": "rayservice", "controller": True, "settings": [], "ray": True}
    known = yaml.safe_load(components.read_text())
    known["components"]["new-ctrl"] = entry
    components.write_text(yaml.safe_dump(known))
    shutil.copy(chart / "files" / "rights" / "job-ctrl.yaml", chart / "files" / "rights" / "new-ctrl.yaml")
    done = run(["template", "raybus", chart, "--namespace", NAMESPACE, "--set", "services.new-ctrl.replicas=3"])
    assert done.returncode == 0, done.stderr
    found = manifests(done.stdout)
    kinds = sorted(each["kind"] for each in found if component(each) == "new-ctrl")
    assert kinds == sorted(each["kind"] for each in found if component(each) == "job-ctrl")
    deployment = one(found, "Deployment", "raybus-new-ctrl")
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["volumes"][1]["secret"]["secretName"] == "raybus-nats-rayservice"
