"""Which requests the services of an installation must be able to make. Pure, but for reading the table beside it.

`data/rights.json` is written by deploy/generate.py from the same table as the chart's roles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import product
from typing import Any

from raybus.cli.doctor import look
from raybus.cli.doctor.facts import Json, Request

Rules = Sequence[Mapping[str, Sequence[str]]]


def table() -> dict[str, Any]:
    """Component -> {cluster, namespaced, release: rules, settings: {value of the chart: rules}}."""
    text = resources.files("raybus.cli.doctor").joinpath("data/rights.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def requests(deployment: Json, rights: Mapping[str, Any]) -> list[Request]:
    """What a service's account must be allowed to ask for; [] for a component without a line in the table."""
    component = look.component_of(deployment)
    granted = rights.get(component)
    if granted is None:
        return []
    used = [rules for setting, rules in granted["settings"].items() if _is_set(deployment, setting)]
    namespaced = [rule for rules in (granted["namespaced"], *used) for rule in rules]
    found = list(_each(deployment, granted["cluster"], ""))
    for namespace in look.namespaces_of(deployment):
        found += _each(deployment, namespaced, namespace)
    found += _each(deployment, granted["release"], deployment["metadata"]["namespace"])
    return found


def forbidden(deployment: Json) -> list[Request]:
    """What an account must never be allowed to do: the gateway reads no Secrets."""
    if look.component_of(deployment) != "gateway":
        return []
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]
    return [each for namespace in look.namespaces_of(deployment) for each in _each(deployment, rules, namespace)]


def _is_set(deployment: Json, setting: str) -> bool:
    """Whether a value of the chart, such as useKubernetesProxy, is true in the service's environment."""
    name = "RAYBUS_" + "".join(f"_{letter}" if letter.isupper() else letter for letter in setting).upper()
    return look.settings_of(deployment).get(name, "").lower() in ("1", "true")


def _each(deployment: Json, rules: Rules, namespace: str) -> Iterator[Request]:
    """Every combination that the rules allow."""
    for rule in rules:
        named = rule.get("resourceNames") or ("",)
        for group, resource, verb, name in product(rule["apiGroups"], rule["resources"], rule["verbs"], named):
            plural, _, subresource = resource.partition("/")
            yield Request(
                component=look.component_of(deployment),
                account=look.account_of(deployment),
                account_namespace=deployment["metadata"]["namespace"],
                verb=verb,
                group=group,
                resource=plural,
                subresource=subresource,
                name=name,
                namespace=namespace,
            )
