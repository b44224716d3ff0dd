"""The process kubelet: an ordinary client of the Kubernetes API that runs pods on the node runtime (raybus_localkube.node).

Decisions are pure (podspec, environment, volumes, sizing, probing, lifecycle, status, adoption, scheduling, endpoints); the rest
carries them out.
"""
