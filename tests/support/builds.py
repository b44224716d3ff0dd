"""Another build of Raybus beside the one under test: what the next release may change alone, made by patching a copy.

`next_build` gives a folder tree and the environment with which `python -m raybus_...` runs from it. A patch whose text is not
found exactly once fails, so that this file follows the code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from support.kube import ROOT

VERSION = "99.0.0"
HEADER = "ray-build"
WIDER = "pod.limits"
NOTE = "pods with limits"
SERVICES = ("gateway", "cluster_ctrl", "job_ctrl")


class Patch(NamedTuple):
    path: str
    old: str
    new: str


PATCHES = (
    # A header more on every object message.
    Patch(
        "shared/raybus/bus/envelope.py",
        "    headers[TERM] = encode(term)\n    if projection:",
        f'    headers[TERM] = encode(term)\n    headers["{HEADER}"] = "next"\n    if projection:',
    ),
    # Fields more in the session record, its routes, the owner record of a partition, the markers, and history.
    Patch(
        "shared/raybus/bus/session.py",
        '            "version": session.version,\n            "started": session.started,\n            "routes"',
        '            "version": session.version,\n            "started": session.started,\n'
        '            "build": {"name": "next"},\n            "routes"',
    ),
    Patch("shared/raybus/bus/routing.py", '        "via": route.via.value,', '        "via": route.via.value, "since": 99,'),
    Patch(
        "shared/raybus/bus/leases.py",
        'orjson.dumps({"replica": replica})',
        'orjson.dumps({"replica": replica, "build": "next"})',
    ),
    Patch("shared/raybus/bus/envelope.py", '    body = {"complete": complete,', '    body = {"build": "next", "complete": complete,'),
    Patch("services/gateway/raybus_gateway/records.py", '        "what": "object",', '        "what": "object", "build": "next",'),
    Patch("shared/raybus/runtime/story.py", '        "what": "action",', '        "what": "action", "build": "next",'),
    # One more route of a kind that was known before: Services that a RayCluster owns, under whatever labels.
    Patch(
        "services/cluster_ctrl/raybus_cluster_ctrl/triggers.py",
        "\nROUTES = (\n",
        "\nROUTES = (\n"
        "    Route(root_kind=_ROOT, kind=kinds.SERVICE, via=Via.OWNER, selector=labels.CREATED_BY, projection=FULL),\n",
    ),
    # A wider projection of Pods, and a decision that uses it.
    Patch(
        "services/cluster_ctrl/raybus_cluster_ctrl/triggers.py",
        "_ROOT = kinds.RAYCLUSTER.kind\n",
        "_ROOT = kinds.RAYCLUSTER.kind\n"
        f'_WIDER = Projection("{WIDER}", (*POD_STATUS.paths, "spec.containers[].resources"))\n',
    ),
    Patch("services/cluster_ctrl/raybus_cluster_ctrl/triggers.py", "POD_STATUS, Route", "POD_STATUS, Projection, Route"),
    Patch("services/cluster_ctrl/raybus_cluster_ctrl/triggers.py", "projection=POD_STATUS", "projection=_WIDER"),
    Patch(
        "services/cluster_ctrl/raybus_cluster_ctrl/decide/world.py",
        "    ready: Json | None\n    status: Json\n",
        "    ready: Json | None\n    status: Json\n    limited: bool = False\n",
    ),
    Patch(
        "services/cluster_ctrl/raybus_cluster_ctrl/observe.py",
        "        status=status,\n    )",
        '        status=status,\n        limited=any((c.get("resources") or {}).get("limits") for c in spec["containers"]),\n    )',
    ),
    Patch(
        "services/cluster_ctrl/raybus_cluster_ctrl/decide/workers.py",
        "    return tuple(notes)",
        f'    notes.append(f"group {{group.name}}: {{sum(pod.limited for pod in present)}} {NOTE}")\n    return tuple(notes)',
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Build:
    folder: Path

    @property
    def env(self) -> Mapping[str, str]:
        """Found before what is installed."""
        places = (self.folder / "shared", *(self.folder / "services" / name for name in SERVICES))
        return {"PYTHONPATH": os.pathsep.join(map(str, places))}


def next_build(folder: Path) -> Build:
    """A copy of the sources with all PATCHES and another version."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "shared", folder / "shared", ignore=ignored)
    for name in SERVICES:
        shutil.copytree(ROOT / "services" / name, folder / "services" / name, ignore=ignored)
    for patch in PATCHES:
        path = folder / patch.path
        text = path.read_text()
        assert text.count(patch.old) == 1, f"{patch.path} has not exactly one {patch.old!r}: mend the patch"
        path.write_text(text.replace(patch.old, patch.new))
    information = folder / "shared" / f"raybus-{VERSION}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: raybus\nVersion: {VERSION}\n")
    return Build(folder)
