from __future__ import annotations

import pytest

from raybus.domain import start_params


def _command(node_type, limits, params=None):
    filled = start_params.with_container_resources(params or {}, {"limits": limits})
    return start_params.command(node_type, filled)


@pytest.mark.parametrize(
    ("node_type", "limits", "params", "expected"),
    [
        ("worker", {"nvidia.com/gpu": "1"}, {}, "ray start  --num-gpus=1 "),
        ("worker", {"nvidia.com/mig-2g.32gb": "1"}, {}, "ray start  --num-gpus=1 "),
        ("worker", {"google.com/tpu": "4"}, {}, """ray start  --resources='{"TPU":4}' """),
        (
            "head",
            {"google.com/tpu": "8", "aws.amazon.com/neuroncore": "4", "nvidia.com/gpu": "1"},
            {},
            """ray start --head  --num-gpus=1  --resources='{"neuron_cores":4}' """,
        ),
        (
            "head",
            {"aws.amazon.com/neuroncore": "4"},
            {"resources": '"{"custom_resource":2}"'},
            """ray start --head  --resources='{"custom_resource":2,"neuron_cores":4}' """,
        ),
        ("head", {"aws.amazon.com/neuroncore": "4"}, {"resources": "{"}, "ray start --head  --resources={ "),
        ("head", {"google.com/tpu": "4"}, {"resources": '{"TPU":1}'}, """ray start --head  --resources={"TPU":1} """),
    ],
)
def test_accelerators(node_type, limits, params, expected):
    assert _command(node_type, limits, params) == expected


def test_cpu_from_the_limit_then_the_request_memory_from_the_limit_alone():
    fill = start_params.with_container_resources
    assert fill({}, {"limits": {"cpu": "500m"}, "requests": {"cpu": "3"}}) == {"num-cpus": "1"}
    assert fill({}, {"requests": {"cpu": "2500m", "memory": "1Gi"}}) == {"num-cpus": "3"}
    assert fill({}, {"limits": {"memory": "1Gi"}}) == {"memory": "1073741824"}
    assert fill({"num-cpus": "0", "memory": "7"}, {"limits": {"cpu": "4", "memory": "1Gi"}}) == {
        "num-cpus": "0", "memory": "7",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"CPU": "2", "GPU": "4"}, {"num-cpus": "2", "num-gpus": "4"}),
        ({"memory": "4Gi"}, {"memory": "4294967296"}),
        ({"nvidia.com/gpu": "1", "TPU": "4"}, {"num-gpus": "1", "resources": """'{"TPU":4}'"""}),
        ({"b": "1.5", "a": "2"}, {"resources": """'{"a":2,"b":1.5}'"""}),
        ({"cpu": "some"}, {}),
    ],
)
def test_group_resources(resources, expected):
    assert start_params.from_group({}, resources, {}) == expected


def test_group_values_win_and_labels_are_sorted():
    params = start_params.from_group({"num-cpus": "9", "x": "y"}, {"CPU": "1"}, {"zone": "b", "a": "1"})
    assert params == {"num-cpus": "1", "x": "y", "labels": "a=1,zone=b"}


def test_defaults():
    head = start_params.with_defaults({"block": "false", "metrics-export-port": "1"}, "head", "ignored:1")
    assert head == {
        "block": "true", "metrics-export-port": "1", "dashboard-agent-listen-port": "52365", "dashboard-host": "0.0.0.0",
    }  # fmt: skip
    worker = start_params.with_defaults({}, "worker", "svc:6379")
    assert worker["address"] == "svc:6379"
    assert "dashboard-host" not in worker


def test_switches():
    params = {"block": "True", "no-monitor": "false", "include-log-monitor": "false", "a": "$VAR"}
    assert start_params.command("worker", params) == "ray start  --a=$VAR  --block  --include-log-monitor=false "
