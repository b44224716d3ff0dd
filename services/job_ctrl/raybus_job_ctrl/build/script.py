"""The shell script of the submitter: wait for the dashboard, submit unless submitted already, follow the log.

Pure. The entrypoint is data for the submitter's shell: nothing of it, nor of the JSON options, is expanded or executed there.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from raybus_job_ctrl.build import runtime_env

Json = Mapping[str, Any]

PROBE_TIMEOUT_S = 10
WAIT_S = 2


def submit_script(spec: Json, *, address: str, submission_id: str) -> str:
    """The script for a RayJob's spec. `address` is host:port of the dashboard. Raises runtime_env.RuntimeEnvError."""
    url = address if address.startswith("http://") else f"http://{address}"
    at = f"--address {shlex.quote(url)}"
    job = shlex.quote(submission_id)
    command = " ".join(["ray job submit", at, *_options(spec, submission_id), "--", entrypoint_words(spec)])
    return " ".join(
        (
            f"until {_probe(url)} >/dev/null 2>&1 ;",
            f"do echo {shlex.quote(f'Waiting for the Ray dashboard at {url} ...')} ; sleep {WAIT_S} ; done ;",
            # A restarted submitter finds the job of its predecessor and only follows it.
            f"if ! ray job status {at} {job} >/dev/null 2>&1 ;",
            f"then {command} ;",
            f"fi ; ray job logs {at} --follow {job}",
        )
    )


def entrypoint_words(spec: Json) -> str:
    """The entrypoint as words of the submit command that give Ray exactly this text to run.

    Ray joins the words again, each quoted. What is the same after that goes as plain words, as users know it; any other text,
    such as a chain of commands, goes whole to a bash that Ray starts on the cluster.
    """
    text = str(spec.get("entrypoint") or "")
    plain = text.strip()
    try:
        words = shlex.split(plain)
    except ValueError:  # an open quote: bash will say so in the job's own log
        words = []
    if words and shlex.join(words) == plain:
        return plain
    return f"bash -c {shlex.quote(text)}"


def _probe(url: str) -> str:
    """A Python one-liner, because images have Python for sure, and nothing else."""
    program = (
        "import sys, urllib.request; "
        f'sys.exit(b"success" not in urllib.request.urlopen("{url}/api/gcs_healthz", timeout={PROBE_TIMEOUT_S}).read())'
    )
    return f"python -c {shlex.quote(program)}"


def _options(spec: Json, submission_id: str) -> list[str]:
    options = ["--no-wait"]
    if text := spec.get("runtimeEnvYAML"):
        options.append(f"--runtime-env-json {shlex.quote(compact_json(runtime_env.parse(text)))}")
    if metadata := spec.get("metadata"):
        options.append(f"--metadata-json {shlex.quote(compact_json(metadata))}")
    options.append(f"--submission-id {shlex.quote(submission_id)}")
    for option, field in (
        ("--entrypoint-num-cpus", "entrypointNumCpus"),
        ("--entrypoint-num-gpus", "entrypointNumGpus"),
    ):
        if (number := float(spec.get(field) or 0)) > 0:
            options.append(f"{option} {number:.6f}")
    if resources := spec.get("entrypointResources"):
        options.append(f"--entrypoint-resources {shlex.quote(resources)}")
    return options


def compact_json(value: Any) -> str:
    """Sorted keys, no spaces, and nothing in it that HTML would read."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def unexpanded(text: str) -> str:
    """`text` as a container's argument, or the value of a variable, that arrives as it is.

    Kubernetes replaces `$(NAME)` in both by variables of the container, and reads `$$` as `$`; only where one of the two
    occurs is anything doubled, so that common scripts can be read in the Job.
    """
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text
