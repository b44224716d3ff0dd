"""Every set of values, applied with server-side dry run to a real API server: it checks fields, names and references that a renderer
does not know."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.chart import NAMESPACE, VALUES, sets, template
from support.kube import RealKube

pytestmark = [pytest.mark.realkube]
KUBECTL = Path(sys.executable).parent / "kubectl"
NAMESPACES = (NAMESPACE, "team-a", "team-b", "monitoring")
PROMETHEUS_OPERATOR = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}


def kubectl(kubeconfig: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [KUBECTL, "--kubeconfig", kubeconfig, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def definition(kind: str, plural: str) -> dict[str, object]:
    """As much of the Prometheus Operator's definition as an API server needs to take the kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.fixture(scope="module")
def cluster(realkube: RealKube) -> Iterator[str]:
    """An API server with the namespaces and kinds that the values name."""
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
    definitions = [definition(kind, plural) for kind, plural in PROMETHEUS_OPERATOR.items()]
    manifests = yaml.safe_dump_all([*namespaces, *definitions])
    kubectl(realkube.kubeconfig, "apply", "--server-side", "-f", "-", given=manifests)
    names = [f"crd/{plural}.monitoring.coreos.com" for plural in PROMETHEUS_OPERATOR.values()]
    kubectl(realkube.kubeconfig, "wait", "--for=condition=Established", "--timeout=30s", *names)
    try:
        yield realkube.kubeconfig
    finally:
        kubectl(realkube.kubeconfig, "delete", "--wait=false", "-f", "-", given=manifests)


@pytest.mark.parametrize("name", sets())
def test_a_real_api_server_takes_it(cluster: str, name: str) -> None:
    """`--validate=strict` refuses fields that the server does not know, too."""
    text = template([VALUES / f"{name}.yaml"])
    answer = kubectl(cluster, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=text)
    kinds = [each["kind"] for each in yaml.safe_load_all(text) if each]
    assert len(answer.splitlines()) == len(kinds)


def test_it_would_be_refused_if_it_were_wrong(cluster: str) -> None:
    """So that the tests above can fail: a selector that does not match its own template."""
    text = template().replace("app.kubernetes.io/component: gateway", "app.kubernetes.io/component: other", 1)
    text = text.replace("replicas: 2", "replicaz: 2", 1)
    with pytest.raises(AssertionError, match="replicaz"):
        kubectl(cluster, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=text)
