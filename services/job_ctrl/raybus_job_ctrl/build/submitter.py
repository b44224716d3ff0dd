"""The Kubernetes Job that submits a RayJob and follows its log. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raybus.domain import api_token, cluster_spec, labels, owners
from raybus_job_ctrl.build import head_service, script
from raybus_job_ctrl.build.labels import origin

Json = Mapping[str, Any]

CONTAINER = "ray-job-submitter"
BACKOFF_LIMIT = 2
# Kueue counts a RayJob's quota with exactly these.
RESOURCES: Json = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def submitter_job(
    job: Json, cluster: Json, *, address: str, submission_id: str, login_shell: bool = False
) -> dict[str, Any]:
    """The Job named like the RayJob. Raises runtime_env.RuntimeEnvError."""
    meta, spec = job["metadata"], job["spec"]
    marks = origin(meta["name"]) | {labels.CREATED_BY: labels.CREATED_BY_VALUE}
    given = (spec.get("submitterConfig") or {}).get("backoffLimit")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": marks,
            "ownerReferences": [owners.controller_reference(job)],
        },
        "spec": {
            "backoffLimit": BACKOFF_LIMIT if given is None else given,
            "template": _template(spec, cluster, marks, address, submission_id, login_shell=login_shell),
        },
    }


def generates_script(spec: Json) -> bool:
    """False if the user's own submitter has a command: then that is what runs, with its arguments."""
    containers = _containers(spec.get("submitterPodTemplate") or {})
    return not (containers and containers[0].get("command"))


def _containers(template: Json) -> Sequence[Json]:
    return (template.get("spec") or {}).get("containers") or ()


def _template(
    spec: Json, cluster: Json, marks: Json, address: str, submission_id: str, *, login_shell: bool
) -> dict[str, Any]:
    template = spec.get("submitterPodTemplate") or _default_template(cluster)
    first, *others = _containers(template)
    container = dict(first)
    if not container.get("command"):
        text = script.submit_script(spec, address=address, submission_id=submission_id)
        container["command"] = ["/bin/bash", "-cel" if login_shell else "-ce", "--"]
        container["args"] = [script.unexpanded(text)]
    container["env"] = [*(container.get("env") or ()), *_env(container, cluster, address, submission_id)]
    metadata = template.get("metadata") or {}
    return {
        **template,
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **marks}},
        # A Job refuses the API server's own default, which is Always.
        "spec": {
            "restartPolicy": "Never",
            **_without_null(template["spec"]),
            **api_token.without_token(template["spec"]),
            "containers": [container, *others],
        },
    }


def _without_null(pod: Json) -> Json:
    return pod if pod.get("restartPolicy") else {key: value for key, value in pod.items() if key != "restartPolicy"}


def _default_template(cluster: Json) -> dict[str, Any]:
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container = {"name": CONTAINER, "image": head.get("image", ""), "resources": RESOURCES}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _env(container: Json, cluster: Json, address: str, submission_id: str) -> list[dict[str, Any]]:
    """Appended to the user's own variables: the last of a name counts."""
    env: list[dict[str, Any]] = [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "RAY_DASHBOARD_ADDRESS", "value": address},
        {"name": "RAY_JOB_SUBMISSION_ID", "value": script.unexpanded(submission_id)},
    ]
    if cluster_spec.token_auth(cluster["spec"]):
        key = {"name": head_service.auth_secret(cluster), "key": "auth_token"}
        auth: list[dict[str, Any]] = [
            {"name": "RAY_AUTH_MODE", "value": "token"},
            {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": key}},
        ]
        taken = {variable.get("name") for variable in container.get("env") or ()}
        env += [variable for variable in auth if variable["name"] not in taken]
    return env
