"""The checker of Pod Security refuses what the level refuses: else the tests that use it could not fail."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from support.podsecurity import complaints, pod_of


def good() -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "containers": [
            {
                "name": "one",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": {"requests": {"memory": "1Mi"}, "limits": {"memory": "1Mi"}},
            }
        ],
    }


def test_a_good_pod_passes() -> None:
    assert complaints(good()) == []


def _own(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["containers"][0]["securityContext"]
    return found


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda pod: pod.update(hostNetwork=True), "hostNetwork"),
        (lambda pod: pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}}), "hostPath"),
        (lambda pod: pod.pop("automountServiceAccountToken"), "automountServiceAccountToken"),
        (lambda pod: pod["securityContext"].update(runAsNonRoot=False), "runAsNonRoot"),
        (lambda pod: pod["securityContext"].update(sysctls=[{}]), "sysctls"),
        (lambda pod: pod["securityContext"].update(seLinuxOptions={"role": "x"}), "seLinuxOptions"),
        (lambda pod: pod["securityContext"].pop("seccompProfile"), "seccomp"),
        (lambda pod: _own(pod).update(runAsUser=0), "runAsUser"),
        (lambda pod: _own(pod).update(privileged=True), "privileged"),
        (lambda pod: _own(pod).pop("allowPrivilegeEscalation"), "allowPrivilegeEscalation"),
        (lambda pod: _own(pod).update(capabilities={}), "not dropped"),
        (lambda pod: _own(pod)["capabilities"].update(add=["SYS_ADMIN"]), "added"),
        (lambda pod: _own(pod).pop("readOnlyRootFilesystem"), "root file system"),
        (lambda pod: pod["containers"][0].update(ports=[{"hostPort": 80}]), "hostPort"),
        (lambda pod: pod["containers"][0]["resources"].pop("limits"), "limits"),
    ],
)
def test_each_offence_is_told(spoil: Callable[[dict[str, Any]], None], said: str) -> None:
    pod = good()
    spoil(pod)
    assert [text for text in complaints(pod) if said in text]


def test_init_containers_count_too() -> None:
    pod = good()
    pod["initContainers"] = [copy.deepcopy(pod["containers"][0]) | {"name": "first"}]
    pod["initContainers"][0]["securityContext"]["runAsUser"] = 0
    assert complaints(pod) == ["first: runAsUser is 0"]


@pytest.mark.parametrize(
    ("manifest", "found"),
    [
        ({"kind": "Pod", "spec": good()}, True),
        ({"kind": "Deployment", "spec": {"template": {"spec": good()}}}, True),
        ({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": good()}}}}}, True),
        ({"kind": "Service", "spec": {}}, False),
    ],
)
def test_where_a_pod_is(manifest: dict[str, Any], found: bool) -> None:
    assert (pod_of(manifest) == good()) is found
