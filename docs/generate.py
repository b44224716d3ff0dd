"""Writes docs/reference from the code: `make docs`. tests/unit/docs checks that what is committed is what would be written.

Each page is one function from what the code declares to Markdown; nothing is started, connected or read from the environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

import typer
from pydantic import WithJsonSchema
from pydantic.fields import FieldInfo
from typer.main import get_command

import raybus.cli.main
import raybus_cluster_ctrl.decide.reasons
import raybus_cluster_ctrl.decide.unsupported
import raybus_cluster_ctrl.metrics
import raybus_job_ctrl.decide.reasons
import raybus_job_ctrl.decide.unsupported
import raybus_job_ctrl.metrics
import raybus_localkube.cli
from raybus.api.meta import Wire
from raybus.api.raycluster import RayClusterSpec
from raybus.api.raycronjob import RayCronJobSpec
from raybus.api.rayjob import RayJobSpec
from raybus.api.rayservice import RayServiceSpec
from raybus.cli.errors import EXIT_CODES
from raybus.decide.reasons import NOT_SUPPORTED, PARKED, Complaint, Deed
from raybus.observe import health
from raybus.observe.metrics import PROCESS, ControllerMetrics, Described, ServiceMetrics
from raybus.observe.requests import KubeRequests, RayRequests
from raybus.runtime import configfile, flags, gates, readiness, telemetry
from raybus.runtime.settings import ControllerSettings, ServiceSettings
from raybus_cluster_ctrl.settings import ClusterCtrlSettings
from raybus_gateway.metrics import GatewayMetrics
from raybus_gateway.settings import GatewaySettings
from raybus_job_ctrl.settings import JobCtrlSettings

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Made by docs/generate.py from the code: change the code, then run `make docs`. -->"

SERVICES: Mapping[str, type[ServiceSettings]] = {
    "raybus-gateway": GatewaySettings,
    "raybus-cluster-ctrl": ClusterCtrlSettings,
    "raybus-job-ctrl": JobCtrlSettings,
}
# What Ray's own autoscaler, in the head pod, reads from the RayCluster; Raybus checks it and hands it over.
READ_BY_AUTOSCALER = {
    "spec.workerGroupSpecs[].idleTimeoutSeconds",
    "spec.workerGroupSpecs[].priority",
    "spec.autoscalerOptions.idleTimeoutSeconds",
    "spec.autoscalerOptions.upscalingMode",
}


def pages() -> dict[str, str]:
    """File name -> text."""
    made = {
        "commands.md": commands(),
        "settings.md": settings(),
        "metrics.md": metrics(),
        "events.md": events(),
        "api.md": api(),
        "values.md": values(),
        "rights.md": rights(),
        "nats-permissions.md": nats_permissions(),
    }
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made.items()}


def page(title: str, *about: str) -> list[str]:
    return [f"# {title}", "", NOTE, "", *about, ""]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines] + [""]


def _cell(text: str) -> str:
    """Placeholders such as <name> are no HTML, unless they stand in backticks, where Markdown keeps them."""
    pieces = text.replace("|", "\\|").replace("\n", " ").split("`")
    return "`".join(piece if number % 2 else piece.replace("<", "&lt;") for number, piece in enumerate(pieces))


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# Commands


def commands() -> list[str]:
    lines = page("Commands", "`COMMAND --help` says the same.")
    for name, app in (("raybus", raybus.cli.main.app), ("localkube", raybus_localkube.cli.app)):
        lines += [f"## {name}", "", str(app.info.help), ""]
        for each, command in _subcommands(app).items():
            lines += _command(f"{name} {each}", command)
    lines += ["## Exit codes", ""]
    lines += table(("code", "meaning"), ((str(number), meaning) for number, meaning in EXIT_CODES.items()))
    lines += ["## Services", "", "`raybus up` starts these; a cluster's deployment starts them by itself.", ""]
    lines += table(("command", "what it does", "flags"), (_service(name) for name in SERVICES))
    return lines


def _subcommands(app: typer.Typer) -> dict[str, Any]:
    found: dict[str, Any] = cast(Any, get_command(app)).commands
    return found


def _command(name: str, command: Any) -> list[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = [param.name.upper() if param.required else f"[{param.name.upper()}]" for param in arguments]
    lines = [f"### {' '.join([name, *usage])}", "", command.help, ""]
    rows = [(code(param.name.upper()), "", param.help or "") for param in arguments]
    rows += [(_options(param), _default(param), param.help or "") for param in command.params if param not in arguments]
    return lines + (table(("argument or flag", "default", "meaning"), rows) if rows else [])


def _options(param: Any) -> str:
    value = "" if param.is_flag else " " + param.opts[0].lstrip("-").upper()
    return ", ".join(code(option + value) for option in param.opts)


def _default(param: Any) -> str:
    if param.is_flag or param.default is None:
        return "required" if param.required else ""
    return code(str(param.default))


def _service(name: str) -> tuple[str, str, str]:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module = importlib.import_module(scripts[name].partition(":")[0])
    about = (module.__doc__ or "").splitlines()[0].partition(": ")[2].removesuffix(" Wiring only.")
    return code(name), about, f"[settings](settings.md#{name})"


# Settings


def settings() -> list[str]:
    lines = page(
        "Settings",
        "A flag wins over its environment variable, that over the `--config` file, that over the default. Where there are several",
        "variables, the first that is set counts; those without `RAYBUS_` are the names that KubeRay's operator reads.",
    )
    lines += ["## Every service", ""]
    lines += _settings(ServiceSettings, ServiceSettings.model_fields)
    lines += ["## Every controller", "", "Beside [those of every service](#every-service):", ""]
    lines += _settings(ControllerSettings, _own(ControllerSettings, ServiceSettings))
    for name, model in SERVICES.items():
        base = ControllerSettings if issubclass(model, ControllerSettings) else ServiceSettings
        word = "controller" if base is ControllerSettings else "service"
        lines += [f"## {name}", "", f"Beside [those of every {word}](#every-{word}):", ""]
        lines += _settings(model, _own(model, base))
    lines += ["## Feature gates", "", "`--feature-gates Name=true,Name=false`; names and defaults are KubeRay's.", ""]
    lines += table(("gate", "default"), ((code(gate), _word(on)) for gate, on in gates.DEFAULTS.items()))
    lines += ["## The `--config` file", "", f"`apiVersion: {configfile.API_VERSION}`, `kind: Configuration`.", ""]
    lines += table(
        ("field", "setting"), ((code(field), code(flags.flag_of(to))) for field, to in configfile.FIELDS.items())
    )
    lines += ["These are taken, as KubeRay's chart writes them, and have no effect; a line of the log says so:", ""]
    lines += table(("field", "instead"), ((code(field), to) for field, to in configfile.WITHOUT_EFFECT.items()))
    names = ", ".join(code(field) for field in configfile.NOT_YET)
    lines += [f"Not supported yet, and refused unless empty: {names}. Any other field is refused by name.", ""]
    return lines


def _own(model: type[ServiceSettings], base: type[ServiceSettings]) -> dict[str, FieldInfo]:
    """Fields that the base has not, or otherwise."""
    return {
        field: info
        for field, info in model.model_fields.items()
        if _setting(model, field, info) != _setting(base, field, base.model_fields.get(field))
    }


def _settings(model: type[ServiceSettings], fields: Mapping[str, FieldInfo]) -> list[str]:
    rows = (_setting(model, field, info) for field, info in fields.items())
    return table(("flag", "environment", "default", "meaning"), rows)


def _setting(model: type[ServiceSettings], field: str, info: FieldInfo | None) -> tuple[str, str, str, str]:
    if info is None:
        return ("", "", "", "")
    variables = ", ".join(code(variable) for variable in flags.variables_of(model, field))
    default = "" if info.default_factory is not None or info.default in ("", ()) else code(_word(info.default))
    return code(flags.flag_of(field)), variables, default, info.description or ""


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Values of the chart


def values() -> list[str]:
    """As values.yaml describes them: chart_values.py beside this file reads it."""
    chart = _module(Path(__file__).with_name("chart_values.py"))
    return page("Values of the Helm chart", *chart.ABOUT) + cast(list[str], chart.tables())


def _module(path: Path) -> Any:
    """One that is in no package."""
    found = importlib.util.spec_from_file_location(f"docs_{path.parent.name}_{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


# Rights


def rights() -> list[str]:
    about = page(
        "Rights in Kubernetes",
        "What each service may do, and because of which of its actions and routes. The chart's roles have exactly these; a test runs",
        "every service under its own account and compares them with the requests that an API server saw, both ways.",
        "`${prefix}` and `${owner}` are names that the chart fills in. [Security](../../SECURITY.md) says what follows from them.",
    )
    return about + cast(list[str], _module(ROOT / "deploy" / "generate.py").rights_page())


def nats_permissions() -> list[str]:
    about = page(
        "Permissions in NATS",
        "One user per service, each with an inbox of its own; whatever is not listed is refused. The chart's server is configured with",
        "exactly these (`deploy/helm/raybus/files/nats/accounts.conf`). For a NATS of your own, make users with these rights and give each",
        "service `--nats-inbox-prefix _INBOX_<user>`.",
    )
    return about + cast(list[str], _module(ROOT / "deploy" / "generate.py").nats_page())


# Metrics


class _Nothing:
    """In place of what metrics are read from when somebody scrapes; nobody does."""

    def __getattr__(self, _name: str) -> _Nothing:
        return self


def described() -> dict[str, tuple[Described, ...]]:
    """Section of the reference -> the metrics in it; each stands in the first section that has it."""
    nothing = cast(Any, _Nothing())
    service = ServiceMetrics("any")
    KubeRequests(service, "any")
    health.watch_ready(service, {})
    readiness.watch_kubernetes(service, nothing)
    telemetry.watch_bus(service, nothing)
    telemetry.watch_leases(service, nothing, "any")
    telemetry.watch_history(service, nothing)
    controller = ControllerMetrics("any")
    telemetry.watch_replica(controller, nothing, mirror=nothing, controller=nothing, leases=nothing, history=nothing)
    telemetry.watch_events(controller, nothing)
    clusters, jobs = ServiceMetrics("any"), ServiceMetrics("any")
    raybus_cluster_ctrl.metrics.watch(clusters, nothing)
    raybus_cluster_ctrl.metrics.count(clusters)
    raybus_job_ctrl.metrics.watch(jobs, nothing, nothing)
    raybus_job_ctrl.metrics.count(jobs)
    RayRequests(jobs)
    gateway = GatewayMetrics()
    gateway.watch_gateway(nothing, nothing)
    of_service = {
        "Every service": service,
        "Controllers: raybus-cluster-ctrl, raybus-job-ctrl": controller,
        "raybus-cluster-ctrl": clusters,
        "raybus-job-ctrl": jobs,
        "raybus-gateway": gateway,
    }
    service.described += PROCESS
    every = set(service.described)
    return {
        title: tuple(each for each in one.described if one is service or each not in every)
        for title, one in of_service.items()
    }


ABOUT_METRICS = {
    "raybus-cluster-ctrl": "RayClusters in the partitions of this replica, computed at the scrape: `kuberay_*` has KubeRay's names and labels.",
    "raybus-job-ctrl": "RayJobs in the partitions of this replica, computed at the scrape: `kuberay_*` has KubeRay's names and labels.",
}


def metrics() -> list[str]:
    lines = page(
        "Metrics",
        "`GET /metrics` of each service, Prometheus' text format 0.0.4. Of a histogram there are `_bucket` (with label `le`), `_sum` and `_count`.",
        "Labels other than those of `kuberay_*` have few values, whatever the number of objects. [How to use them](../how-to/monitor.md).",
    )
    for title, found in described().items():
        lines += [f"## {title}", ""]
        lines += [ABOUT_METRICS[title], ""] if title in ABOUT_METRICS else []
        lines += _metrics(found)
    return lines


def _metrics(found: Iterable[Described]) -> list[str]:
    rows = [
        (code(each.name), each.type, ", ".join(code(label) for label in each.labels), each.text)
        for each in sorted(found, key=lambda each: each.name)
    ]
    return table(("metric", "type", "labels", "meaning"), rows)


# Events


class Reasons(NamedTuple):
    deeds: tuple[Deed, ...]
    complaints: tuple[Complaint, ...]


def events() -> list[str]:
    lines = page(
        "Events",
        "Kubernetes events that Raybus writes on its own kinds (`events.k8s.io/v1`; `kubectl describe` shows them). The note says more.",
    )
    clusters, jobs = raybus_cluster_ctrl.decide.reasons, raybus_job_ctrl.decide.reasons
    for title, found in (
        ("On RayClusters, by raycluster-controller", Reasons(clusters.DEEDS, clusters.COMPLAINTS)),
        ("On RayJobs, RayServices and RayCronJobs, by rayjob-controller", Reasons(jobs.DEEDS, jobs.COMPLAINTS)),
    ):
        lines += [f"## {title}", ""]
        lines += table(("reason", "type", "action", "when"), _reasons(found))
    return lines


def _reasons(found: Reasons) -> Iterator[tuple[str, str, str, str]]:
    for deed in found.deeds:
        yield code(deed.done), "Normal", deed.verb, deed.meaning
        yield code(deed.failed), "Warning", deed.verb, "that failed; the note has the API server's words"
    for complaint in (*found.complaints, PARKED):
        yield code(complaint.reason), "Warning", complaint.verb, complaint.meaning


# API


def api() -> list[str]:
    lines = page(
        "Fields of ray.io/v1",
        "All fields of KubeRay's definitions are accepted. What asks for something that this release does not do gets a Warning event",
        f"`{NOT_SUPPORTED.reason}` that names the field, and nothing is done with the object. [Differences](../differences.md) says what is done otherwise.",
    )
    clusters = {field: when for field, when, _ in raybus_cluster_ctrl.decide.unsupported.FIELDS}
    jobs = {f"spec.{field}": when for field, when, _ in raybus_job_ctrl.decide.unsupported.FIELDS}
    lines += ["## RayCluster", "", *_fields(RayClusterSpec, clusters)]
    lines += [
        "## RayJob",
        "",
        "`spec.rayClusterSpec` is a RayCluster's `spec`, as above.",
        "",
        *_fields(RayJobSpec, jobs),
    ]
    for kind, model in (("RayService", RayServiceSpec), ("RayCronJob", RayCronJobSpec)):
        names = ", ".join(code(path) for path, _, _ in leaves(model, "spec", deep=False))
        word = raybus_job_ctrl.decide.unsupported.KINDS[kind].removeprefix("kind ")
        lines += [f"## {kind}", "", f"{word}. Accepted: {names}.", ""]
    return lines


def _fields(model: type[Wire], refused: Mapping[str, str]) -> list[str]:
    rows = []
    known = set()
    for path, kind, default in leaves(model, "spec", stop=refused):
        known.add(path)
        does = f"not yet: {refused[path]}" if path in refused else "acted on"
        if path in READ_BY_AUTOSCALER:
            does = "checked, and read by Ray's autoscaler"
        rows.append((code(path), kind, default, does))
    rows += [(code(path), "", "", f"not yet: {when}") for path, when in refused.items() if path not in known]
    return table(("field", "type", "default", "in this release"), rows)


def leaves(
    model: type[Wire], path: str, *, stop: Iterable[str] = (), deep: bool = True
) -> Iterator[tuple[str, str, str]]:
    """Path, type and default of each field, in the order of the types; a field in `stop` and a whole other kind are one row."""
    for name, info in model.model_fields.items():
        here = f"{path}.{info.alias or name}"
        inner, many = nested(info.annotation)
        if inner is None or here in stop or not deep or inner is RayClusterSpec:
            yield here, _type(info), _default_of(info)
        else:
            yield from leaves(inner, here + ("[]" if many else ""), stop=stop)


def nested(annotation: Any) -> tuple[type[Wire] | None, bool]:
    """The wire type inside an annotation, and whether there is a list of it."""
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        return annotation, False
    for argument in get_args(annotation):
        inner, many = nested(argument)
        if inner is not None:
            return inner, many or get_origin(annotation) is list
    return None, False


def _type(info: FieldInfo) -> str:
    core = next((each.json_schema for each in info.metadata if isinstance(each, WithJsonSchema)), None)
    return _core(core) or _type_of(info.annotation)


def _core(schema: Any) -> str:
    return str((schema or {}).get("x-core", ""))


def _type_of(annotation: Any) -> str:
    words = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
    if annotation in words:
        return words[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        return "object"
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    match get_origin(annotation):
        case origin if origin is Literal:
            return " or ".join(code(str(value)) for value in arguments)
        case origin if origin is list:
            return f"list of {_type_of(arguments[0])}"
        case origin if origin is dict:
            return f"map of {_type_of(arguments[1])}"
    metadata = getattr(annotation, "__metadata__", ())
    core = next((_core(each.json_schema) for each in metadata if isinstance(each, WithJsonSchema)), "")
    return core or _type_of(arguments[0])


def _default_of(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    return "" if info.default is None else code(_word(info.default))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
