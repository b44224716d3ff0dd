from __future__ import annotations

import pytest

from raybus_cluster_ctrl.settings import ClusterCtrlSettings


@pytest.mark.parametrize(
    ("variable", "word", "field", "value"),
    [
        ("CLUSTER_DOMAIN", "corp", "cluster_domain", "corp"),
        ("RAYBUS_CLUSTER_DOMAIN", "corp", "cluster_domain", "corp"),
        ("ENABLE_INIT_CONTAINER_INJECTION", "False", "inject_init_container", False),
        ("ENABLE_PROBES_INJECTION", "false", "inject_probes", False),
        ("ENABLE_RANDOM_POD_DELETE", "true", "random_pod_delete", True),
        ("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", "TRUE", "cluster_ip_head_service", True),
        ("ENABLE_DETERMINISTIC_HEAD_POD_NAME", "true", "fixed_head_name", True),
        ("ENABLE_LOGIN_SHELL", "true", "login_shell", True),
    ],
)
def test_variables_of_the_reference_operator_are_read(monkeypatch, variable, word, field, value):
    before = getattr(ClusterCtrlSettings().policy(), field)
    assert before != value
    monkeypatch.setenv(variable, word)
    assert getattr(ClusterCtrlSettings().policy(), field) == value


def test_gates_and_version_reach_decisions():
    policy = ClusterCtrlSettings(feature_gates="RayMultiHostIndexing=false,RayClusterMTLS=true").policy()
    assert not policy.replica_index
    assert policy.conditions
    assert "RayClusterMTLS" in policy.gates
    assert policy.version.startswith("raybus-")
