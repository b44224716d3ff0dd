"""Feature gates, as data: their names and defaults are upstream's, so that the same setting means the same.

A gate leaves this table only with the release that makes its feature unconditional.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEFAULTS: Mapping[str, bool] = MappingProxyType(
    {
        "RayClusterStatusConditions": True,
        "RayJobDeletionPolicy": True,
        "RayMultiHostIndexing": True,
        "RayServiceIncrementalUpgrade": True,
        "RayCronJob": False,
        "SidecarSubmitterRestart": False,
        "RayClusterNetworkPolicy": False,
        "GCSFaultToleranceEmbeddedStorage": False,
        "RayClusterMTLS": False,
        "RayClusterHistoryServer": False,
        "KubernetesWAS": False,
    }
)
_WORDS = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}


def parse(text: str) -> dict[str, bool]:
    """All gates with what `text` ("A=true,B=false") says of them. ValueError names the part that is wrong."""
    gates = dict(DEFAULTS)
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, sign, word = part.partition("=")
        if not sign or word.strip().lower() not in _WORDS:
            raise ValueError(f"{part!r} is not of the form Name=true or Name=false")
        if name not in DEFAULTS:
            raise ValueError(f"unknown feature gate {name!r}; known: {', '.join(sorted(DEFAULTS))}")
        gates[name] = _WORDS[word.strip().lower()]
    return gates
