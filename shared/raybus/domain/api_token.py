"""Whether a pod gets a token of the API server. Pure.

Code of users runs in pods that Raybus makes; what it has no use for, nobody can steal from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SAYS = ("automountServiceAccountToken", "serviceAccountName", "serviceAccount")


def without_token(pod: Mapping[str, Any]) -> dict[str, bool]:
    """What to add to a pod's spec so that it gets none; nothing where the template says something about accounts or tokens.

    Who names an account means its rights, and who sets `automountServiceAccountToken` has decided.
    """
    if any(pod.get(field) not in (None, "") for field in _SAYS):
        return {}
    return {"automountServiceAccountToken": False}
