"""What the chart makes of its values, and which it refuses."""

from __future__ import annotations

import itertools

import pytest

from raybus.runtime.settings import ServiceSettings
from raybus_cluster_ctrl.settings import ClusterCtrlSettings
from raybus_gateway.settings import GatewaySettings
from raybus_job_ctrl.settings import JobCtrlSettings
from support.chart import (
    CHART,
    NAMESPACE,
    Json,
    container,
    environment,
    helm,
    manifests,
    one,
    rendered,
    run,
    sets,
    template,
)
from support.podsecurity import complaints, pod_of
from support.scripts import module

plain = module(CHART.parents[1] / "manifests.py")
SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "cluster-ctrl": ClusterCtrlSettings,
    "job-ctrl": JobCtrlSettings,
}
NOT_RESTRICTED = "unruly-storage"  # shows what such storage costs
BAD = {
    "unknown=1": "unknown",
    "image.pullPolicy=Sometimes": "image/pullPolicy",
    "image.digest=sha256:abc": "image/digest",
    "image.tag=a/b": "image/tag",
    "watchNamespace=team-a": "watchNamespace",
    "watchNamespace[0]=Team_A": "watchNamespace/0",
    "featureGates[0].name=NoSuchGate,featureGates[0].enabled=true": "featureGates/0/name",
    "logging.level=loud": "logging/level",
    "settings.workers=0": "settings/workers",
    "settings.nosuch=1": "nosuch",
    "settings.leaseTtlS=1.5": "settings/leaseTtlS",
    "serviceDefaults.replicas=two": "serviceDefaults/replicas",
    "serviceDefaults.resources.limits.memory=lots": "serviceDefaults/resources/limits/memory",
    "services.gateway.replicas=-1": "services/gateway/replicas",
    "services.nosuch.replicas=1": "services.nosuch",
    "services.gateway.settings.fixedHeadName=true": "services.gateway.settings.fixedHeadName",
    "serviceDefaults.terminationGracePeriodSeconds=10": "terminationGracePeriodSeconds",
    "settings.drainS=60": "terminationGracePeriodSeconds",
    "crds.mode=delete": "crds/mode",
    "nats.replicas=2": "nats/replicas",
    "nats.persistence.size=big": "nats/persistence/size",
    "nats.persistence.whenDeleted=Keep": "nats/persistence/whenDeleted",
    "nats.jetstream.syncInterval=often": "nats/jetstream/syncInterval",
    "nats.persistence.size=1Gi": "nats.jetstream.maxFileStore",
    "nats.persistence.size=7516192767": "nats.jetstream.maxFileStore",  # a byte less than 7GB
    "nats.jetstream.maxFileStore=1023MB": "settings.historyBytes",
    "externalNats.url=tls://nats.example:4222": "externalNats.url",
    "nats.enabled=false": "externalNats.url",
    "nats.enabled=false,externalNats.url=http://nats.example": "externalNats/url",
    "nats.enabled=false,externalNats.url=tls://u:p@nats.example:4222": "externalNats/url",
    "nats.enabled=false,externalNats.url=tls://nats.example:4222": "externalNats.credentials.secret",
    "networkPolicy.rayPorts[0]=99999": "networkPolicy/rayPorts/0",
    "service.type=ExternalName": "service/type",
    "metrics.serviceMonitor.interval=often": "metrics/serviceMonitor/interval",
    "podDisruptionBudget.maxUnavailable=most": "podDisruptionBudget/maxUnavailable",
    "env[0].value=x": "env/0",
}


def workloads(found: list[Json]) -> list[Json]:
    return [each for each in found if pod_of(each) is not None]


def test_lint() -> None:
    done = run(["lint", "--strict", CHART])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_value_is_refused_by_name(bad: str) -> None:
    done = run(["template", "raybus", CHART, "--set", bad])
    assert done.returncode != 0
    assert BAD[bad] in done.stderr, done.stderr


@pytest.mark.parametrize("name", sets())
def test_each_pod_is_restricted(name: str) -> None:
    found = {
        each["metadata"]["name"]: said for each in workloads(rendered(name)) if (said := complaints(pod_of(each) or {}))
    }
    if name == NOT_RESTRICTED:
        assert set(found) == {"raybus-nats"}
    else:
        assert found == {}


@pytest.mark.parametrize("name", sets())
def test_each_service_understands_its_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the chart sets, the code reads: a setting that was misspelled would be passed over in silence."""
    for component, model in SETTINGS.items():
        given = environment(deployment(rendered(name), component))
        with monkeypatch.context() as patched:
            for variable, value in given.items():
                patched.setenv(variable, value)
            settings = model().model_dump()
        known = {f"RAYBUS_{field.upper()}" for field in model.model_fields}
        assert {variable for variable in given if variable.startswith("RAYBUS_")} <= known
        for variable in given.keys() & known:
            assert settings[variable.removeprefix("RAYBUS_").lower()] not in ("", None), variable


def deployment(found: list[Json], component: str) -> Json:
    matching = [each for each in found if each["kind"] == "Deployment" and component_of(each) == component]
    assert len(matching) == 1
    return matching[0]


def component_of(manifest: Json) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def test_every_setting_arrives_as_given() -> None:
    found = rendered("settings")
    gateway = environment(deployment(found, "gateway"))
    assert gateway["RAYBUS_HISTORY_BYTES"] == "2147483648"
    assert gateway["RAYBUS_PARTITIONS"] == "16"
    assert gateway["RAYBUS_DRAIN_S"] == "4.5"
    jobs = environment(deployment(found, "job-ctrl"))
    assert jobs["RAYBUS_FEATURE_GATES"] == "RayCronJob=true,RayMultiHostIndexing=false"
    assert jobs["RAYBUS_USE_KUBERNETES_PROXY"] == "true"
    assert jobs["ENABLE_LOGIN_SHELL"] == "true"
    assert jobs["RAYBUS_LOG_FORMAT"] == "console"
    assert "RAYBUS_PARTITIONS" not in jobs


def test_a_variable_given_twice_counts_once_and_the_narrower_one_wins() -> None:
    """Server-side apply, which Helm 4 uses, refuses two entries of one name."""
    given = ["env[0].name=RAYBUS_WORKERS", "env[0].value=x", "env[1].name=RAYBUS_LOG_LEVEL", "env[1].value=warning"]
    own = ["services.job-ctrl.env[0].name=RAYBUS_LOG_LEVEL", "services.job-ctrl.env[0].value=error"]
    found = manifests(template(sets=[*given, *own]))
    for who, level in (("job-ctrl", "error"), ("gateway", "warning")):
        variables = container(deployment(found, who))["env"]
        assert len({each["name"] for each in variables}) == len(variables)
        assert environment(deployment(found, who))["RAYBUS_LOG_LEVEL"] == level
        assert environment(deployment(found, who))["RAYBUS_WORKERS"] == "x"


def test_streams_are_made_with_the_settings_that_the_gateway_has() -> None:
    for name in ("settings", "three-servers", "existing-nats-creds"):
        found = rendered(name)
        gateway = environment(deployment(found, "gateway"))
        [job] = [each for each in found if each["kind"] == "Job"]
        made = environment(job)
        for variable in ("PARTITIONS", "GENERATION", "STREAM_REPLICAS", "HISTORY_BYTES", "NATS_URL"):
            assert made[f"RAYBUS_{variable}"] == gateway[f"RAYBUS_{variable}"]


def test_one_service_may_differ_and_the_others_stay() -> None:
    found, before = rendered("one-service"), rendered("default")
    jobs = one(found, "Deployment", "raybus-job-ctrl")
    assert jobs["spec"]["replicas"] == 3
    pod = jobs["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "raybus/raybus:0.2.0"
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    assert pod["serviceAccountName"] == "jobs"
    assert environment(jobs)["RAYBUS_WORKERS"] == "128"
    assert environment(jobs)["RAYBUS_STATUS_CHECK_TIMEOUT_S"] == "600"
    assert one(found, "ServiceAccount", "jobs")["metadata"]["annotations"] == {"example.com/role": "jobs"}
    clusters = one(found, "Deployment", "raybus-cluster-ctrl")
    assert clusters["spec"]["template"]["spec"].pop("nodeSelector") == {"zone": "a"}
    assert clusters == one(before, "Deployment", "raybus-cluster-ctrl")


def test_selectors_never_change_with_values() -> None:
    """They are immutable: an upgrade with another value would be refused."""
    allowed = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}
    for name in sets():
        for each in rendered(name):
            if each["kind"] in ("Deployment", "StatefulSet"):
                assert set(each["spec"]["selector"]["matchLabels"]) == allowed


def test_the_provisioner_is_another_job_when_it_has_something_else_to_do() -> None:
    def job(*given: str) -> str:
        return next(each for each in manifests(template(sets=given)) if each["kind"] == "Job")["metadata"]["name"]

    assert job() == job()
    assert job() == job("services.gateway.replicas=3")
    names = [
        job(),
        job("image.tag=next"),
        job("settings.partitions=4"),
        job("nats.replicas=3"),
        job("crds.mode=skip"),
        job("labels.team=a"),
    ]
    assert len(set(names)) == len(names)


def test_names_of_cluster_wide_objects_differ_between_namespaces() -> None:
    """Two releases may look after different namespaces of one cluster."""
    both = [
        {
            (each["kind"], each["metadata"]["name"])
            for each in manifests(run(["template", "raybus", CHART, "--namespace", namespace]).stdout)
            if each["kind"].startswith("ClusterRole")
        }
        for namespace in ("one", "two")
    ]
    assert both[0]
    assert not both[0] & both[1]


def test_objects_stand_in_the_namespace_of_the_release() -> None:
    for each in rendered("default"):
        if not each["kind"].startswith("ClusterRole"):
            assert each["metadata"]["namespace"] == NAMESPACE, each["kind"]


def test_no_secret_is_part_of_the_release() -> None:
    """Helm keeps what it rendered: keys are made by the provisioner, and stay over upgrades."""
    for name in sets():
        assert not [each for each in rendered(name) if each["kind"] == "Secret"]


def test_no_definition_is_part_of_the_release() -> None:
    """So that neither an upgrade nor `helm uninstall` touches what RayClusters depend on."""
    assert not (CHART / "crds").exists()
    for name in sets():
        assert not [each for each in rendered(name) if each["kind"] == "CustomResourceDefinition"]


@pytest.mark.night
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sets())
def test_helm_3_renders_the_same(name: str) -> None:
    values = [CHART.parents[2] / "tests" / "integration" / "chart" / "values" / f"{name}.yaml"]
    three, four = (sorted(manifests(template(values, major=major)), key=repr) for major in (3, 4))
    assert three == four


@pytest.mark.night
@pytest.mark.timeout(900)
def test_helm_3_refuses_what_helm_4_refuses() -> None:
    for bad in itertools.islice(BAD, 0, None, 3):
        assert run(["template", "raybus", CHART, "--set", bad], major=3).returncode != 0, bad


@pytest.mark.parametrize("name", sorted(plain.FILES))
def test_the_plain_manifests_are_up_to_date(name: str) -> None:
    assert (plain.FOLDER / name).read_text() == plain.text(helm(), name), "run `make manifests` and commit"
