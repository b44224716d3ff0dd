"""Fingerprint of a RayCluster's spec: changes that need new pods change it, scaling and Kueue's edits do not. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def recreate_hash(spec: Json) -> str:
    """32 characters (0-9A-V) of everything in the spec but replica counts, tolerations, gates and the strategy itself."""
    kept: dict[str, Any] = {key: value for key, value in spec.items() if key != "upgradeStrategy"}
    kept["headGroupSpec"] = _without_scheduling(spec.get("headGroupSpec") or {})
    scaling = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
    kept["workerGroupSpecs"] = [
        {key: value for key, value in _without_scheduling(group).items() if key not in scaling}
        for group in spec.get("workerGroupSpecs") or ()
    ]
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return base64.b32hexencode(digest).decode()


def _without_scheduling(group: Json) -> Json:
    template = group.get("template") or {}
    pod = {k: v for k, v in (template.get("spec") or {}).items() if k not in ("tolerations", "schedulingGates")}
    params = group.get("rayStartParams") or {}
    return {**group, "rayStartParams": params, "template": {**template, "spec": pod}}
