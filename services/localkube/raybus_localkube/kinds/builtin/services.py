"""Services: cluster addresses, node ports, defaults and rules."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from raybus_localkube.kinds.ages import age
from raybus_localkube.kinds.metadata import label_causes
from raybus_localkube.kinds.resource import Call, Column, label_problems
from raybus_localkube.kinds.typed import TypedStrategy
from raybus_localkube.server.errors import Cause, duplicate, forbidden_field, invalid, not_supported, required

Json = dict[str, Any]
NETWORK = ipaddress.ip_network("10.96.0.0/16")
FIRST_NODE_PORT, LAST_NODE_PORT = 30000, 32767
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
COLUMNS = (
    Column("Name", "string", "name"), Column("Type"), Column("Cluster-IP"), Column("External-IP"), Column("Port(s)"), Column("Age"),
    Column("Selector", priority=1),
)  # fmt: skip


class ServiceStrategy(TypedStrategy):
    has_status = True
    fields = frozenset({"spec.clusterIP", "spec.type"})

    def name_problems(self, name: str, *, prefix: bool) -> list[str]:
        if "." in name:
            return ["must not contain dots"]
        if len(name) > 63:
            return ["must be no more than 63 characters"]
        return label_problems(name, prefix=prefix)

    def default(self, obj: Json, call: Call) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port", 0)
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] in ("NodePort", "LoadBalancer"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        if spec["sessionAffinity"] == "ClientIP":
            spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {}).setdefault("timeoutSeconds", 10800)

    def prepare_create(self, obj: Json, call: Call) -> None:
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if not spec.get("clusterIP") and spec.get("clusterIPs"):
            spec["clusterIP"] = spec["clusterIPs"][0]
        if spec.get("clusterIP"):
            spec["clusterIPs"] = spec.get("clusterIPs") or [spec["clusterIP"]]
        if not self.validate(obj, None, "", call):
            allocate(obj, call)

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        super().prepare_update(new, old, subresource, call)
        if subresource:
            return
        spec, before = new["spec"], old["spec"]
        if before.get("type") == spec["type"] or spec["type"] != "ExternalName":
            for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"):
                if key in before and not spec.get(key):
                    spec[key] = before[key]
            if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
                spec["clusterIPs"] = [spec["clusterIP"]]
        keep_node_ports(spec, before)
        if not self.validate(new, old, subresource, call):
            allocate(new, call)

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        if subresource == "status":
            ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress")
            if ingress and new["spec"]["type"] != "LoadBalancer":
                return [
                    forbidden_field(
                        "status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'"
                    )
                ]
            return []
        spec = new["spec"]
        causes = change_causes(spec, old["spec"]) if old is not None else []
        return causes + spec_causes(spec, call, new["metadata"])

    def field(self, obj: Json, path: str) -> str | None:
        return str(obj["spec"].get(path.removeprefix("spec."), ""))

    def columns(self, version: str) -> tuple[Column, ...]:
        return COLUMNS

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        spec, meta = obj["spec"], obj["metadata"]
        selector = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
        return [
            meta["name"], spec["type"], spec.get("clusterIP") or "<none>", external(obj), shown_ports(spec),
            age(meta.get("creationTimestamp"), call.env.now()), selector or "<none>",
        ]  # fmt: skip


def external(obj: Json) -> str:
    spec = obj["spec"]
    ips = ",".join(spec.get("externalIPs") or ())
    if spec["type"] == "ExternalName":
        return str(spec.get("externalName") or "<none>")
    if spec["type"] == "LoadBalancer":
        ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        found = ",".join(filter(None, [*(i.get("ip") or i.get("hostname", "") for i in ingress), ips]))
        return found or "<pending>"
    return ips or "<none>"


def shown_ports(spec: Json) -> str:
    texts = []
    for port in spec.get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port['port']}{node}/{port['protocol']}")
    return ",".join(texts) or "<none>"


def spec_causes(spec: Json, call: Call, meta: Json) -> list[Cause]:
    causes: list[Cause] = []
    if spec.get("ipFamilyPolicy") not in (None, "PreferDualStack", "RequireDualStack", "SingleStack"):
        return [
            not_supported(
                "spec.ipFamilyPolicy", spec["ipFamilyPolicy"], ["PreferDualStack", "RequireDualStack", "SingleStack"]
            )
        ]
    kind = spec["type"]
    external_name = kind == "ExternalName"
    headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not external_name and not headless:
        causes.append(required("spec.ports"))
    if external_name and not spec.get("externalName"):
        causes.append(required("spec.externalName"))
    if external_name and spec.get("clusterIP"):
        causes.append(forbidden_field("spec.clusterIPs", "may not be set for ExternalName services"))
    causes += ports_causes(spec)
    if kind not in TYPES:
        causes.append(not_supported("spec.type", kind, TYPES))
    if spec["sessionAffinity"] not in ("ClientIP", "None"):
        causes.append(not_supported("spec.sessionAffinity", spec["sessionAffinity"], ["ClientIP", "None"]))
    causes += label_causes(spec.get("selector") or {}, "spec.selector")
    return causes + address_causes(spec, call, meta)


def ports_causes(spec: Json) -> list[Cause]:
    causes: list[Cause] = []
    ports = spec.get("ports") or ()
    names: set[str] = set()
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        name = port.get("name", "")
        if not name and len(ports) > 1:
            causes.append(required(f"{path}.name"))
        elif name:
            causes += [invalid(f"{path}.name", name, problem) for problem in label_problems(name)]
            if name in names:
                causes.append(duplicate(f"{path}.name", name))
            names.add(name)
        causes += number_causes(port, path)
        if spec["type"] in ("ClusterIP", "ExternalName") and port.get("nodePort"):
            causes.append(forbidden_field(f"{path}.nodePort", f"may not be used when `type` is '{spec['type']}'"))
    for index, port in enumerate(ports):
        key = (port.get("port", 0), port["protocol"])
        if key in seen:
            shown = f'{{"Name":"","Protocol":"{port["protocol"]}","AppProtocol":null,"Port":{port["port"]},"TargetPort":0,"NodePort":0}}'
            causes.append(Cause(f"spec.ports[{index}]", "FieldValueDuplicate", f"Duplicate value: {shown}"))
        seen.add(key)
    return causes


def number_causes(port: Json, path: str) -> list[Cause]:
    message = "must be between 1 and 65535, inclusive"
    causes = []
    if not 1 <= port.get("port", 0) <= 65535:
        causes.append(invalid(f"{path}.port", port.get("port", 0), message))
    if port["protocol"] not in ("SCTP", "TCP", "UDP"):
        causes.append(not_supported(f"{path}.protocol", port["protocol"], ["SCTP", "TCP", "UDP"]))
    target = port["targetPort"]
    if isinstance(target, int):
        if not 1 <= target <= 65535:
            causes.append(invalid(f"{path}.targetPort", target, message))
    elif not re.fullmatch(r"[-a-z0-9]+", target):
        causes.append(
            invalid(
                f"{path}.targetPort", target, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            )
        )
    elif len(target) > 15:
        causes.append(invalid(f"{path}.targetPort", target, "must be no more than 15 characters"))
    return causes


def address_causes(spec: Json, call: Call, meta: Json) -> list[Cause]:
    address = spec.get("clusterIP")
    if not address or address == "None" or spec["type"] == "ExternalName":
        return []
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return [invalid("spec.clusterIPs[0]", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    if parsed not in NETWORK:
        message = f"failed to allocate IP {address}: the provided network does not match the current range"
        return [invalid("spec.clusterIPs", [address], message)]
    if address in addresses(call, meta):
        return [
            invalid("spec.clusterIPs", [address], f"failed to allocate IP {address}: provided IP is already allocated")
        ]
    return []


def change_causes(new: Json, old: Json) -> list[Cause]:
    if "ExternalName" in (new["type"], old["type"]) or not old.get("clusterIPs"):
        return []
    if new.get("clusterIPs") != old["clusterIPs"] or new.get("clusterIP") != old.get("clusterIP"):
        shown = [new.get("clusterIP")] if new.get("clusterIP") else new.get("clusterIPs") or []
        return [invalid("spec.clusterIPs[0]", shown, "may not change once set")]
    return []


def others(call: Call, meta: Json) -> list[Json]:
    """The specs of all other services."""
    mine = (meta.get("namespace"), meta.get("name"))
    return [r.load()["spec"] for r in call.store.records("services") if (r.namespace, r.name) != mine]


def addresses(call: Call, meta: Json) -> set[str]:
    return {spec["clusterIP"] for spec in others(call, meta) if spec.get("clusterIP")}


def keep_node_ports(new: Json, old: Json) -> None:
    if new["type"] not in ("NodePort", "LoadBalancer"):
        return
    known = {(p["port"], p["protocol"]): p["nodePort"] for p in old.get("ports") or () if p.get("nodePort")}
    for port in new.get("ports") or ():
        if not port.get("nodePort") and (port["port"], port["protocol"]) in known:
            port["nodePort"] = known[port["port"], port["protocol"]]


def allocate(obj: Json, call: Call) -> None:
    """Give a valid service what it lacks: cluster address, families, node ports."""
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.pop(key, None)
        return
    if not spec.get("clusterIP"):
        taken = addresses(call, obj["metadata"])
        size = NETWORK.num_addresses
        start = call.env.pick(size - 512)
        for offset in range(size):
            address = str(NETWORK[256 + (start + offset) % (size - 512)])
            if address not in taken:
                spec["clusterIP"] = address
                break
        spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        allocate_node_ports(obj, call)
    else:
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)


def allocate_node_ports(obj: Json, call: Call) -> None:
    spec = obj["spec"]
    taken = {port.get("nodePort") for other in others(call, obj["metadata"]) for port in other.get("ports") or ()}
    count = LAST_NODE_PORT - FIRST_NODE_PORT + 1
    for index, port in enumerate(spec.get("ports") or ()):
        given = port.get("nodePort")
        path = f"spec.ports[{index}].nodePort"
        if given:
            problem = ""
            if not FIRST_NODE_PORT <= given <= LAST_NODE_PORT:
                problem = f"provided port is not in the valid range. The range of valid ports is {FIRST_NODE_PORT}-{LAST_NODE_PORT}"
            elif given in taken:
                problem = "provided port is already allocated"
            if problem:
                from raybus_localkube.server.errors import invalid_object  # noqa: PLC0415 -- only in this refusal

                raise invalid_object("", "Service", obj["metadata"]["name"], [invalid(path, given, problem)])
            continue
        start = call.env.pick(count)
        port["nodePort"] = next(p for i in range(count) if (p := FIRST_NODE_PORT + (start + i) % count) not in taken)
        taken.add(port["nodePort"])
