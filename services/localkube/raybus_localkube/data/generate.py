"""Write builtin.json.gz from a real API server's discovery and OpenAPI documents.

Usage: python -m raybus_localkube.data.generate FOLDER, where FOLDER holds `agg_api.json` and `agg_apis.json` (aggregated
discovery of /api and /apis) and, per group version, `/openapi/v3/<gv>` as `<gv with _ for />.json`. Only what localkube
serves is kept, without descriptions.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

SERVED: dict[str, tuple[str, ...]] = {
    "api/v1": (
        "bindings", "configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes", "persistentvolumeclaims",
        "persistentvolumes", "pods", "resourcequotas", "secrets", "serviceaccounts", "services",
    ),
    "apis/events.k8s.io/v1": ("events",),
    "apis/authentication.k8s.io/v1": ("selfsubjectreviews", "tokenreviews"),
    "apis/authorization.k8s.io/v1": (
        "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
    ),
    "apis/batch/v1": ("jobs",),
    "apis/networking.k8s.io/v1": ("ingresses", "networkpolicies"),
    "apis/policy/v1": ("poddisruptionbudgets",),
    "apis/rbac.authorization.k8s.io/v1": ("clusterrolebindings", "clusterroles", "rolebindings", "roles"),
    "apis/apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "apis/coordination.k8s.io/v1": ("leases",),
    "apis/discovery.k8s.io/v1": ("endpointslices",),
    "apis/scheduling.k8s.io/v1": ("priorityclasses",),
}  # fmt: skip
NAMED = {
    "Quantity": "q", "IntOrString": "x", "Time": "t", "MicroTime": "T", "RawExtension": "o", "JSON": "o",
    "JSONSchemaPropsOrBool": "o", "JSONSchemaPropsOrArray": "o", "JSONSchemaPropsOrStringArray": "o", "FieldsV1": "o",
}  # fmt: skip
LETTERS = {"string": "s", "integer": "i", "number": "n", "boolean": "b"}
PREFIX = "#/components/schemas/"


def short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


class Generator:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schemas: dict[str, Json] = {}
        self.source: dict[str, Json] = {}

    def load(self, name: str) -> Json:
        loaded: Json = orjson.loads((self.folder / name).read_bytes())
        return loaded

    def type_of(self, prop: Json) -> Any:
        if "allOf" in prop:
            prop = prop | prop["allOf"][0]
        if "$ref" in prop:
            return self.reference(prop)
        if prop.get("type") == "array":
            kept = {"a": self.type_of(prop["items"])}
            for key, letter in (("patch-merge-key", "mk"), ("patch-strategy", "ps")):
                if f"x-kubernetes-{key}" in prop:
                    kept[letter] = prop[f"x-kubernetes-{key}"]
            return kept
        if prop.get("type") == "object":
            return {"m": self.type_of(prop["additionalProperties"])} if "additionalProperties" in prop else "o"
        if prop.get("format") == "byte":
            return "B"
        if prop.get("format") == "int64":
            return "I"
        return LETTERS.get(prop.get("type", ""), "o")

    def reference(self, prop: Json) -> Any:
        full = prop["$ref"].removeprefix(PREFIX)
        name = short(full)
        if name in NAMED:
            return NAMED[name]
        self.add(full)
        kept: Json = {"r": name}
        if prop.get("default") == {}:
            kept["z"] = True
        if "x-kubernetes-patch-strategy" in prop:
            kept["ps"] = prop["x-kubernetes-patch-strategy"]
        return kept

    def add(self, full: str) -> None:
        name = short(full)
        if name in self.schemas:
            return
        schema = self.source[full]
        entry: Json = {"p": {}}
        self.schemas[name] = entry
        for field, prop in schema.get("properties", {}).items():
            entry["p"][field] = self.type_of(prop)
        if required := [f for f in schema.get("required", []) if f in entry["p"]]:
            entry["req"] = required

    def kinds_of(self, resource: Json) -> list[str]:
        found = [resource["responseKind"]["kind"]]
        return found + [sub["responseKind"]["kind"] for sub in resource.get("subresources", ())]

    def run(self) -> Json:
        groups = [("", self.load("agg_api.json")["items"][0])]
        groups += [(g["metadata"]["name"], g) for g in self.load("agg_apis.json")["items"]]
        kept: dict[str, Json] = {}
        for name, group in groups:
            for version in group["versions"]:
                gv = f"apis/{name}/{version['version']}" if name else f"api/{version['version']}"
                if gv in SERVED:
                    found = [r for r in version["resources"] if r["resource"] in SERVED[gv]]
                    kept[gv] = {"group": name, "version": version["version"], "resources": found}
        for gv, entry in kept.items():
            document = self.load(gv.replace("/", "_") + ".json")["components"]["schemas"]
            self.source = document
            wanted = {kind for resource in entry["resources"] for kind in self.kinds_of(resource)}
            for full, schema in document.items():
                if short(full) in wanted and "x-kubernetes-group-version-kind" in schema:
                    self.rename_events(gv, full)
        return {"groups": kept, "schemas": self.schemas}

    def rename_events(self, gv: str, full: str) -> None:
        """The two Event types have one short name; the newer one is kept under `NewEvent`."""
        if gv == "apis/events.k8s.io/v1" and short(full) == "Event":
            old = self.schemas.pop("Event")
            self.add(full)
            self.schemas["NewEvent"], self.schemas["Event"] = self.schemas["Event"], old
        else:
            self.add(full)


def main() -> None:
    data = Generator(Path(sys.argv[1])).run()
    target = Path(__file__).with_name("builtin.json.gz")
    target.write_bytes(gzip.compress(orjson.dumps(data, option=orjson.OPT_SORT_KEYS), mtime=0))


if __name__ == "__main__":
    main()
