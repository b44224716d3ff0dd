from __future__ import annotations

import pytest

from raybus_job_ctrl.build import head_service
from raybus_job_ctrl.build.cluster import ray_cluster
from raybus_job_ctrl.build.request import ResourcesError, parse_resources, redacted, submit_request
from raybus_job_ctrl.build.submitter import submitter_job
from support.rayjobs import ADDRESS, CLUSTER_SPEC, UID, cluster, known, ray_job

OWNER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "name": "train",
    "uid": UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
ORIGIN = {"ray.io/originated-from-cr-name": "train", "ray.io/originated-from-crd": "RayJob"}


def job_of(cluster_spec: dict | None = None, **spec) -> dict:
    target = cluster(spec=cluster_spec or CLUSTER_SPEC)
    return submitter_job(ray_job(**spec), target, address=ADDRESS, submission_id="train-j")


def test_the_cluster_has_the_jobs_labels_annotations_and_spec() -> None:
    job = ray_job(meta={"labels": {"team": "sums", "ray.io/originated-from-crd": "x"}, "annotations": {"a": "b"}})
    made = ray_cluster(job, "train-c")
    assert made["metadata"] == {
        "name": "train-c",
        "namespace": "ml",
        "labels": {"team": "sums", **ORIGIN, "ray.io/job-submission-mode": "K8sJobMode"},
        "annotations": {"a": "b"},
        "ownerReferences": [OWNER],
    }
    assert made["spec"] == CLUSTER_SPEC


def test_what_raybus_remembers_does_not_get_onto_the_cluster() -> None:
    assert "annotations" not in ray_cluster(ray_job(meta=known()), "train-c")["metadata"]


def test_the_default_submitter() -> None:
    job = job_of()
    assert job["metadata"] == {
        "name": "train",
        "namespace": "ml",
        "labels": {**ORIGIN, "app.kubernetes.io/created-by": "kuberay-operator"},
        "ownerReferences": [OWNER],
    }
    assert job["spec"]["backoffLimit"] == 2
    template = job["spec"]["template"]
    assert template["metadata"]["labels"] == job["metadata"]["labels"]
    assert template["spec"]["restartPolicy"] == "Never"
    container = template["spec"]["containers"][0]
    assert (container["name"], container["image"]) == ("ray-job-submitter", "example/ray:2.52.0")
    assert container["command"] == ["/bin/bash", "-ce", "--"]
    assert len(container["args"]) == 1
    assert "--submission-id train-j -- python train.py ; fi" in container["args"][0]
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "200Mi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    assert container["env"] == [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "RAY_DASHBOARD_ADDRESS", "value": ADDRESS},
        {"name": "RAY_JOB_SUBMISSION_ID", "value": "train-j"},
    ]


def test_a_command_of_the_users_stays_with_its_arguments() -> None:
    own = {
        "name": "mine",
        "image": "i",
        "command": ["/submit"],
        "args": ["--once"],
        "env": [{"name": "X", "value": "1"}],
    }
    side = {"name": "side", "image": "s"}
    given = {"metadata": {"labels": {"l": "v"}}, "spec": {"restartPolicy": "OnFailure", "containers": [own, side]}}
    template = job_of(submitterPodTemplate=given, submitterConfig={"backoffLimit": 0})["spec"]["template"]
    first, second = template["spec"]["containers"]
    assert (first["command"], first["args"]) == (["/submit"], ["--once"])
    assert [variable["name"] for variable in first["env"]][:2] == ["X", "PYTHONUNBUFFERED"]
    assert second == side
    assert template["spec"]["restartPolicy"] == "OnFailure"
    assert template["metadata"]["labels"]["l"] == "v"
    assert own["env"] == [{"name": "X", "value": "1"}], "the given template was modified"


def test_the_submitters_number_of_attempts() -> None:
    assert job_of(submitterConfig={"backoffLimit": 88})["spec"]["backoffLimit"] == 88
    assert job_of(submitterConfig={"backoffLimit": 0})["spec"]["backoffLimit"] == 0
    assert job_of(submitterConfig={})["spec"]["backoffLimit"] == 2


@pytest.mark.parametrize("given", [{}, {"restartPolicy": None}, {"restartPolicy": ""}])
def test_a_template_without_restart_policy_works(given: dict) -> None:
    template = {"spec": {**given, "containers": [{"name": "c", "image": "i", "args": ["lost"]}]}}
    pod = job_of(submitterPodTemplate=template)["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["command"] == ["/bin/bash", "-ce", "--"]
    assert pod["containers"][0]["args"] != ["lost"]


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ({}, False),
        ({"automountServiceAccountToken": True}, True),
        ({"serviceAccountName": "mine"}, None),
    ],
)
def test_a_submitter_gets_no_token_of_the_api_server_unless_its_template_says_so(
    given: dict, token: bool | None
) -> None:
    template = {"spec": {"containers": [{"name": "mine", "image": "example/ray:2.52.0"}], **given}}
    pod = job_of(submitterPodTemplate=template)["spec"]["template"]["spec"]
    assert pod.get("automountServiceAccountToken") is token
    assert job_of()["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_a_login_shell_on_request() -> None:
    job = submitter_job(ray_job(), cluster(), address=ADDRESS, submission_id="j", login_shell=True)
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][1] == "-cel"


def test_kubernetes_leaves_the_script_alone() -> None:
    args = job_of(entrypoint="echo $(RAY_JOB_SUBMISSION_ID)")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "echo $$(RAY_JOB_SUBMISSION_ID)" in args[0]


def test_kubernetes_leaves_the_id_alone() -> None:
    job = submitter_job(ray_job(), cluster(), address=ADDRESS, submission_id="$(PYTHONUNBUFFERED)")
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RAY_JOB_SUBMISSION_ID", "value": "$$(PYTHONUNBUFFERED)"} in env


def test_token_authentication_reaches_the_submitter_unless_it_has_it() -> None:
    secured = {**CLUSTER_SPEC, "authOptions": {"mode": "token"}}
    env = job_of(secured)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env[3:] == [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "train-c", "key": "auth_token"}}},
    ]
    own = {"spec": {"containers": [{"name": "c", "env": [{"name": "RAY_AUTH_TOKEN", "value": "own"}]}]}}
    env = job_of(secured, submitterPodTemplate=own)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in env].count("RAY_AUTH_TOKEN") == 1
    named = {**CLUSTER_SPEC, "authOptions": {"mode": "token", "secretName": "mine"}}
    env = job_of(named)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env[4]["valueFrom"]["secretKeyRef"]["name"] == "mine"


def test_the_jobs_own_head_service_leads_to_the_cluster() -> None:
    made = head_service.job_head_service(ray_job(), cluster())
    assert made["metadata"]["name"] == "train-head-svc"
    assert made["metadata"]["labels"] == {
        **ORIGIN,
        "ray.io/node-type": "head",
        "ray.io/identifier": "train-head",
    }
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["spec"]["selector"]["ray.io/cluster"] == "train-c"
    assert made["spec"]["clusterIP"] == "None"
    assert "clusterIP" not in head_service.job_head_service(ray_job(), cluster(), cluster_ip=True)["spec"]


HEAD = {"template": {"spec": {"containers": [{"name": "h", "image": "i"}]}}}


def with_head(**head) -> dict:
    return {"headGroupSpec": {**HEAD, **head}}


def with_ports(*ports: tuple[str, int]) -> dict:
    listed = [{"name": name, "containerPort": number} for name, number in ports]
    return {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "h", "ports": listed}]}}}}


ADDRESSES = [
    (CLUSTER_SPEC, "train-c-head-svc.ml.svc.cluster.local:8265"),
    (with_ports(("dashboard", 9000)), "train-c-head-svc.ml.svc.cluster.local:9000"),
    (with_ports(("client", 10001)), ""),
    (with_head(headService={"metadata": {"name": "own-name"}}), "own-name.ml.svc.cluster.local:8265"),
    (
        with_head(headService={"spec": {"ports": [{"name": "dashboard", "port": 80}]}}),
        "train-c-head-svc.ml.svc.cluster.local:80",
    ),
]


@pytest.mark.parametrize(("spec", "address"), ADDRESSES)
def test_where_the_dashboard_is(spec: dict, address: str) -> None:
    assert head_service.dashboard_address(cluster(spec=spec), "cluster.local") == address


def test_the_dashboard_in_another_domain() -> None:
    assert head_service.dashboard_address(cluster(), "k8s.example").startswith("train-c-head-svc.ml.svc.k8s.example:")


def test_the_endpoint_names_the_token_only_where_one_is_needed() -> None:
    assert head_service.endpoint(cluster(), ADDRESS).auth_secret == ""
    secured = cluster(spec={**CLUSTER_SPEC, "authOptions": {"mode": "token"}})
    found = head_service.endpoint(secured, ADDRESS)
    assert (found.auth_secret, found.namespace, found.service) == ("train-c", "ml", "train-c-head-svc")


def test_a_submission_by_http_has_rays_field_names_and_the_entrypoint_as_written() -> None:
    spec = {
        "entrypoint": "  a && b\n",
        "runtimeEnvYAML": "pip: [x]",
        "metadata": {"k": "v"},
        "entrypointResources": '{"R": 2}',
        "entrypointNumCpus": 0.5,
        "entrypointNumGpus": 0,
    }
    assert submit_request(spec, "j") == {
        "runtime_env": {"pip": ["x"]},
        "metadata": {"k": "v"},
        "entrypoint_resources": {"R": 2},
        "entrypoint": "  a && b\n",
        "submission_id": "j",
        "entrypoint_num_cpus": 0.5,
    }
    assert submit_request({"entrypoint": "x"}, "j") == {"entrypoint": "x", "submission_id": "j"}


def test_rays_words_about_a_request_do_not_repeat_its_variables() -> None:
    request = submit_request(
        {"entrypoint": "x", "runtimeEnvYAML": "env_vars: {A: hunter2, B: 42, C: a.b+c, D: ''}"}, "j"
    )
    words = "the value 42 is of type <class 'int'>; hunter2, hunter21 and a.b+c in line 142"
    assert redacted(words, request) == "the value *** is of type <class 'int'>; ***, hunter21 and *** in line 142"
    for other in (
        {},
        {"runtime_env": {}},
        {"runtime_env": {"env_vars": ["42"]}},
        {"runtime_env": {"env_vars": {"A": ""}}},
    ):
        assert redacted(words, other) == words


@pytest.mark.parametrize("text", ["[1]", "{", '{"R": "2"}', '{"R": true}', '{"R": null}', "NaN", '{"R": NaN}', "1"])
def test_resources_that_are_no_amounts_are_refused(text: str) -> None:
    with pytest.raises(ResourcesError):
        parse_resources(text)
