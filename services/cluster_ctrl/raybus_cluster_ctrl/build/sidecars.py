"""Containers that stand beside or before Ray: the wait for the GCS, the autoscaler. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybus.domain import labels
from raybus_cluster_ctrl.build import env
from raybus_cluster_ctrl.build.target import Group

Json = Mapping[str, Any]

WAIT_GCS = "wait-gcs-ready"
AUTOSCALER = "autoscaler"
_AUTOSCALER_COMMAND = (
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
)
# For two minutes a head that is still starting is nothing to report; afterwards the check's own words help.
_WAIT_SCRIPT = """\
SECONDS=0
while true; do
  if (( SECONDS <= 120 )); then
    ray health-check --address {address} > /dev/null 2>&1 && break
  else
    ray health-check --address {address} && break
  fi
  echo "Waiting for the GCS at {address} since $SECONDS s."
  sleep 5
done
echo "The GCS at {address} is ready."
"""


def _both(cpu: str, memory: str) -> Json:
    amounts = {"cpu": cpu, "memory": memory}
    return {"limits": amounts, "requests": amounts}


def wait_for_gcs(group: Group, ray: Json) -> dict[str, Any]:
    """The init container that lets a worker start when the head answers. `ray` is container 0 as the user gave it."""
    copied = {key: ray[key] for key in ("image", "imagePullPolicy", "securityContext", "volumeMounts") if key in ray}
    return {
        **copied,
        "name": WAIT_GCS,
        "command": group.shell,
        "args": [_WAIT_SCRIPT.format(address=group.gcs_address)],
        "env": env.with_absent(list(ray.get("env") or ()), env.auth(group.cluster)),
        "resources": _both("200m", "256Mi"),
    }


def autoscaler(group: Group, ray: Json) -> dict[str, Any]:
    """Ray's autoscaler, which runs beside the head and asks for workers. `ray` is container 0 as the user gave it."""
    options = group.cluster.spec.get("autoscalerOptions") or {}
    container: dict[str, Any] = {
        "name": AUTOSCALER,
        "image": options.get("image") or ray.get("image"),
        "imagePullPolicy": options.get("imagePullPolicy") or "IfNotPresent",
        "command": options.get("command") or group.shell,
        "args": options.get("args") or [_AUTOSCALER_COMMAND],
        "resources": options.get("resources") or _both("500m", "512Mi"),
        "env": [
            env.from_label("RAY_CLUSTER_NAME", labels.CLUSTER),
            env.from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            env.from_field("RAY_HEAD_POD_NAME", "metadata.name"),
            env.value("KUBERAY_CRD_VER", "v1"),
            env.value("KUBERAY_GEN_AUTOSCALER_START_CMD", _AUTOSCALER_COMMAND),
            *env.auth(group.cluster),
            *(options.get("env") or ()),
        ],
    }
    for key in ("envFrom", "volumeMounts", "securityContext"):
        if options.get(key):
            container[key] = options[key]
    return container
