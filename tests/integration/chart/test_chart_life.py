"""What a rendered release says about the life of its pods: probes, resources, budgets, placement, metrics; and that names of NATS servers
are names in their certificate."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

import pytest
import yaml

from support.chart import CHART, VALUES, Json, container, environment, manifests, one, rendered, sets, template

SERVICES = ("gateway", "cluster-ctrl", "job-ctrl")


def of_kind(found: list[Json], kind: str) -> list[Json]:
    return [each for each in found if each["kind"] == kind]


def component(manifest: Json) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def workloads(found: list[Json]) -> dict[str, Json]:
    """Component -> Deployment, StatefulSet or Job."""
    return {component(each): each for kind in ("Deployment", "StatefulSet", "Job") for each in of_kind(found, kind)}


def labels_of_pods(workload: Json) -> Json:
    return dict(workload["spec"]["template"]["metadata"]["labels"])


def chosen(selector: Json, labels: Json) -> bool:
    return bool(selector["matchLabels"]) and selector["matchLabels"].items() <= labels.items()


class TestProbes:
    @pytest.mark.parametrize("service", SERVICES)
    def test_a_service_is_restarted_by_its_health_and_served_by_its_readiness(self, service: str) -> None:
        pod = container(workloads(rendered("default"))[service])
        paths = {kind: pod[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {
            "startup": {"path": "/healthz", "port": "http"},
            "liveness": {"path": "/healthz", "port": "http"},
            "readiness": {"path": "/readyz", "port": "http"},
        }
        assert {each["name"]: each["containerPort"] for each in pod["ports"]} == {"http": 8080}
        given = environment(workloads(rendered("default"))[service])
        assert (given["RAYBUS_HEALTH_HOST"], given["RAYBUS_HEALTH_PORT"]) == ("0.0.0.0", "8080")

    def test_times_of_probes_are_values(self) -> None:
        pod = container(workloads(rendered("one-service"))["job-ctrl"])
        assert pod["readinessProbe"] == {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 10}

    def test_nats_is_ready_on_its_own_terms(self) -> None:
        """Alive while JetStream is on; a server that only lost touch with the others is not restarted for it."""
        nats = container(workloads(rendered("three-servers"))["nats"])
        assert {each["name"] for each in nats["ports"]} == {"nats", "cluster", "monitor"}
        for kind, path in {
            "startup": "/healthz?js-enabled-only=true",
            "readiness": "/healthz?js-server-only=true",
            "liveness": "/healthz?js-enabled-only=true",
        }.items():
            assert nats[f"{kind}Probe"]["httpGet"] == {"path": path, "port": "monitor"}
        assert nats["lifecycle"]["preStop"]["exec"]["command"] == ["nats-server", "-sl=ldm=/run/nats/nats.pid"]
        alone = container(workloads(rendered("default"))["nats"])
        assert "lifecycle" not in alone, "nobody can take its clients: the sooner it goes, the sooner it is back"

    @pytest.mark.parametrize("name", sets())
    def test_there_is_time_to_hand_over(self, name: str) -> None:
        for service in SERVICES:
            found = workloads(rendered(name))[service]
            drain_s = float(environment(found)["RAYBUS_DRAIN_S"])
            assert found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drain_s


class TestResources:
    def test_by_default_every_container_asks_for_something_and_has_a_limit(self) -> None:
        found = workloads(rendered("default"))
        assert set(found) == {*SERVICES, "nats", "provisioner"}
        for who, workload in found.items():
            resources = container(workload)["resources"]
            assert set(resources["requests"]) == set(resources["limits"]) == {"cpu", "memory"}, who

    def test_nats_collects_garbage_before_its_limit(self) -> None:
        assert environment(workloads(rendered("default"))["nats"])["GOMEMLIMIT"] == "819MiB"
        without = workloads(manifests(template(sets=["nats.resources.limits=null"])))["nats"]
        assert "limits" not in container(without)["resources"]
        assert "GOMEMLIMIT" not in environment(without)


class TestReplicas:
    def test_there_are_two_of_each_service(self) -> None:
        found = workloads(rendered("default"))
        assert {who: found[who]["spec"]["replicas"] for who in (*SERVICES, "nats")} == {
            **dict.fromkeys(SERVICES, 2),
            "nats": 1,
        }

    def test_a_new_replica_is_there_before_an_old_one_goes(self) -> None:
        for service in SERVICES:
            strategy = workloads(rendered("default"))[service]["spec"]["strategy"]
            assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}

    @pytest.mark.parametrize("name", sets())
    def test_what_has_several_replicas_has_a_budget_that_chooses_its_pods(self, name: str) -> None:
        found = rendered(name)
        budgets = {component(each): each for each in of_kind(found, "PodDisruptionBudget")}
        several = {who for who, each in workloads(found).items() if each["spec"].get("replicas", 1) > 1}
        assert set(budgets) == (set() if name == "least" else several)
        for who, budget in budgets.items():
            selector = budget["spec"]["selector"]
            assert {each for each, its in workloads(found).items() if chosen(selector, labels_of_pods(its))} == {who}
            assert budget["spec"]["maxUnavailable"] == ("50%" if name == "budgets" else 1)


class TestPlacement:
    def test_replicas_are_spread_over_nodes_and_zones(self) -> None:
        found = workloads(rendered("default"))
        for who in (*SERVICES, "nats"):
            spread = found[who]["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
            for each in spread:
                assert [other for other in found if chosen(each["labelSelector"], labels_of_pods(found[other]))] == [
                    who
                ]

    def test_what_is_said_of_placement_arrives(self) -> None:
        given = yaml.safe_load((VALUES / "placement.yaml").read_text())
        found = workloads(rendered("placement"))
        wanted = {**dict.fromkeys((*SERVICES, "provisioner"), given["serviceDefaults"]), "nats": given["nats"]}
        assert set(wanted) == set(found)
        for who, values in wanted.items():
            pod = found[who]["spec"]["template"]["spec"]
            for key in ("nodeSelector", "tolerations", "priorityClassName", "affinity"):
                assert pod[key] == values[key], f"{who}: {key}"
            if who != "provisioner":
                meta = found[who]["spec"]["template"]["metadata"]
                assert values["podLabels"].items() <= meta["labels"].items()
                assert values["podAnnotations"].items() <= meta["annotations"].items()

    def test_images_come_from_where_they_are_said_to_be(self) -> None:
        given = yaml.safe_load((VALUES / "private-images.yaml").read_text())
        for who, workload in workloads(rendered("private-images")).items():
            pod = workload["spec"]["template"]["spec"]
            assert pod["imagePullSecrets"] == given["imagePullSecrets"]
            image = given["nats"]["image"] if who == "nats" else given["image"]
            tag = f":{image['tag']}" if who == "nats" else f"@{image['digest']}"
            assert container(workload)["image"] == image["repository"] + tag


class TestMetrics:
    @pytest.mark.parametrize("name", sets())
    def test_each_service_is_found_by_its_service_and_monitor(self, name: str) -> None:
        found = rendered(name)
        pods = workloads(found)
        exposed = {component(each): each for each in of_kind(found, "Service") if component(each) != "nats"}
        assert set(exposed) == (set() if name == "least" else set(SERVICES))
        for who, service in exposed.items():
            selector = {"matchLabels": service["spec"]["selector"]}
            assert [each for each in pods if chosen(selector, labels_of_pods(pods[each]))] == [who]
            assert service["spec"]["ports"][0]["targetPort"] == "http"
        monitors = {component(each): each for each in of_kind(found, "ServiceMonitor")}
        assert set(monitors) == (set(SERVICES) if name == "monitoring" else set())
        for who, monitor in monitors.items():
            selector = monitor["spec"]["selector"]
            assert [each for each in exposed if chosen(selector, exposed[each]["metadata"]["labels"])] == [who]
            assert monitor["spec"]["namespaceSelector"] == {"matchNames": [exposed[who]["metadata"]["namespace"]]}
            assert monitor["metadata"]["namespace"] == "monitoring"
            assert monitor["metadata"]["labels"]["release"] == "prometheus"
            [endpoint] = monitor["spec"]["endpoints"]
            assert endpoint == {"port": "http", "path": "/metrics", "interval": "15s", "honorLabels": False}

    def test_alerts_and_dashboard_are_the_files(self) -> None:
        found = rendered("monitoring")
        [rule] = of_kind(found, "PrometheusRule")
        assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts" / "raybus.yaml").read_text())
        assert rule["metadata"]["labels"]["release"] == "prometheus"
        board = one(found, "ConfigMap", "raybus-dashboards")
        assert board["data"] == {"raybus.json": (CHART / "files" / "dashboards" / "raybus.json").read_text()}
        assert board["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "team": "platform"}.items()
        assert of_kind(rendered("default"), "PrometheusRule") == []


class TestNats:
    @pytest.mark.parametrize(
        "name", [name for name in sets() if "enabled: false}\nexternal" not in (VALUES / f"{name}.yaml").read_text()]
    )
    def test_every_name_by_which_a_server_is_called_is_in_its_certificate(self, name: str) -> None:
        found = rendered(name)
        [job] = of_kind(found, "Job")
        if "RAYBUS_SERVER_NAMES" not in environment(job):
            return
        names = environment(job)["RAYBUS_SERVER_NAMES"].split(",")
        called = list(_called(found))
        assert len(called) >= len(SERVICES) + 1
        for host in called:
            assert any(_covers(held, host) for held in names), f"{host} is none of {names}"

    def test_each_server_is_called_by_the_name_of_its_pod(self) -> None:
        found = rendered("three-servers")
        stateful = workloads(found)["nats"]
        name, service = stateful["metadata"]["name"], stateful["spec"]["serviceName"]
        headless = one(found, "Service", service)
        assert headless["spec"]["clusterIP"] == "None"
        assert headless["spec"]["publishNotReadyAddresses"] is True, "they need each other to become ready"
        wanted = {f"{name}-{number}.{service}.raybus-system.svc" for number in range(stateful["spec"]["replicas"])}
        assert set(_routes(found)) == wanted
        assert set(_called(found)) == wanted, "clients know all of them"
        assert environment(workloads(found)["gateway"])["RAYBUS_STREAM_REPLICAS"] == "3"

    def test_three_servers_are_not_rolled_out_over_one(self) -> None:
        """Server by server, the new ones would wait for the old one to join them, and it for them to be ready."""
        [alone] = of_kind(rendered("default"), "StatefulSet")
        [group] = of_kind(rendered("three-servers"), "StatefulSet")
        assert alone["metadata"]["name"] != group["metadata"]["name"]
        assert alone["spec"]["selector"] == group["spec"]["selector"], "Services and policies choose either"

    def test_a_forwarded_port_shows_a_certificate_for_it(self) -> None:
        [job] = of_kind(rendered("default"), "Job")
        assert "localhost" in environment(job)["RAYBUS_SERVER_NAMES"].split(",")

    @pytest.mark.parametrize("name", sets())
    def test_what_a_container_said_last_stands_in_its_status(self, name: str) -> None:
        """`kubectl describe` and `raybus doctor` then tell why it ended."""
        for who, workload in workloads(rendered(name)).items():
            assert container(workload)["terminationMessagePolicy"] == "FallbackToLogsOnError", who

    def test_other_network_policies_for_other_ports(self) -> None:
        """All servers of an existing NATS are reached, whatever the port of each."""
        given = ["nats.enabled=false", "externalNats.credentials.secret=c"]
        url = r"externalNats.url=tls://a.example:14222\,tls://b.example:24222\,tls://c.example"
        policies = of_kind(manifests(template(sets=[*given, url])), "NetworkPolicy")
        for who in (*SERVICES, "provisioner"):
            [policy] = [each for each in policies if component(each) == who]
            ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
            assert {14222, 24222, 4222} <= ports


def _called(found: list[Json]) -> Iterator[str]:
    """Hosts that clients connect to, and servers among themselves."""
    for workload in workloads(found).values():
        for url in environment(workload).get("RAYBUS_NATS_URL", "").split(","):
            if url:
                yield url.removeprefix("tls://").partition(":")[0]
    yield from _routes(found)


def _routes(found: list[Json]) -> list[str]:
    [config] = [each["data"]["nats.conf"] for each in of_kind(found, "ConfigMap") if component(each) == "nats"]
    return re.findall(r"nats-route://([^:\s]+):6222", config)


def _covers(held: str, host: str) -> bool:
    """A star stands for one label."""
    return fnmatch.fnmatchcase(host, held) and held.count(".") == host.count(".")
