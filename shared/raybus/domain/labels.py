"""Label and annotation keys and their fixed values. Pure data; upstream's keys are interface facts."""

from __future__ import annotations

# Upstream's labels.
CLUSTER = "ray.io/cluster"
NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
IDENTIFIER = "ray.io/identifier"
IS_RAY_NODE = "ray.io/is-ray-node"
ORIGINATED_FROM_NAME = "ray.io/originated-from-cr-name"
ORIGINATED_FROM_CRD = "ray.io/originated-from-crd"
JOB_SUBMISSION_MODE = "ray.io/job-submission-mode"
APP_NAME = "app.kubernetes.io/name"
CREATED_BY = "app.kubernetes.io/created-by"
REPLICA_INDEX = "ray.io/worker-group-replica-index"
SERVE = "ray.io/serve"

HEAD = "head"
WORKER = "worker"
HEAD_GROUP = "headgroup"
APP_NAME_VALUE = "kuberay"
CREATED_BY_VALUE = "kuberay-operator"
JOB_NAME = "batch.kubernetes.io/job-name"

# Upstream's annotations.
FT_ENABLED = "ray.io/ft-enabled"
EXTERNAL_STORAGE_NAMESPACE = "ray.io/external-storage-namespace"
SERVE_SERVICE = "ray.io/enable-serve-service"
RECREATE_HASH = "ray.io/upgrade-strategy-recreate-hash"
KUBERAY_VERSION = "ray.io/kuberay-version"
OVERWRITE_CONTAINER_CMD = "ray.io/overwrite-container-cmd"
DISABLE_HEAD_RESTART = "ray.io/disable-provisioned-head-restart"

# Upstream's finalizers.
RAYJOB_FINALIZER = "ray.io/rayjob-finalizer"

# Ours: what a later decision reads back (docs/contracts.md).
SLOT = "raybus.io/slot"
HEAD_SESSION = "raybus.io/head-session"
HEAD_POD = "raybus.io/head-pod"
