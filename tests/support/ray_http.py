"""What Ray itself says, asked through the node's proxy."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from support.local import Local


def submissions(local: Local, rayjob: str, namespace: str = "default") -> list[str]:
    """The submission ids in Ray's own list of jobs; empty while there is no head to ask."""
    proxy = urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{local.ports['proxy']}"})
    url = f"http://{rayjob}-head-svc.{namespace}.svc.cluster.local:8265/api/jobs/"
    try:
        with urllib.request.build_opener(proxy).open(url, timeout=2) as answer:
            return [each["submission_id"] for each in json.load(answer) if each.get("submission_id")]
    except (OSError, urllib.error.URLError, json.JSONDecodeError):
        return []
