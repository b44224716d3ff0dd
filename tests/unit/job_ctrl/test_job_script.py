"""The submit script, run by a real bash with a stub `ray` that notes its words."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybus_job_ctrl.build.script import compact_json, entrypoint_words, submit_script, unexpanded

STUB = """#!{python}
import json, os, sys
with open(os.environ["SEEN"], "a") as seen:
    seen.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[1:3]
sys.exit(int(os.environ.get("_".join(words), "0")))
"""
# A python that says at once that the dashboard is up: the probe itself has a test of its own.
PYTHON = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("ray", STUB.format(python=sys.executable)), ("python", PYTHON)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def run(script: str, path: Path, **codes: str) -> tuple[int, list[list[str]], str]:
    """Exit code, the words of each `ray` call, and what the shell itself printed."""
    seen = path.parent / "seen"
    seen.write_text("")
    environment = {
        "PATH": f"{path}:/usr/bin:/bin",
        "SEEN": str(seen),
        "HOME": "/nowhere",
        "SECRET": "expanded",
        **codes,
    }
    command = ["/bin/bash", "-ce", "--", script]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=20, cwd=path.parent, check=False
    )
    return done.returncode, [json.loads(line) for line in seen.read_text().splitlines()], done.stdout + done.stderr


def script_of(**spec: object) -> str:
    return submit_script({"entrypoint": "echo hi", **spec}, address="h:8265", submission_id="j1")


def test_a_new_job_is_submitted_and_followed(path: Path) -> None:
    code, calls, printed = run(script_of(), path, job_status="1")
    assert code == 0
    assert calls == [
        ["job", "status", "--address", "http://h:8265", "j1"],
        ["job", "submit", "--address", "http://h:8265", "--no-wait", "--submission-id", "j1", "--", "echo", "hi"],
        ["job", "logs", "--address", "http://h:8265", "--follow", "j1"],
    ]
    assert printed == ""


def test_a_job_that_exists_is_only_followed(path: Path) -> None:
    code, calls, _ = run(script_of(), path)
    assert code == 0
    assert [call[1] for call in calls] == ["status", "logs"]


def test_a_failing_submission_ends_the_script_with_its_code(path: Path) -> None:
    code, calls, _ = run(script_of(), path, job_status="1", job_submit="3")
    assert code == 3
    assert [call[1] for call in calls] == ["status", "submit"]


def test_it_waits_until_the_dashboard_answers(path: Path) -> None:
    waits = path.parent / "waits"
    (path / "python").write_text(f'#!/bin/sh\necho probe >> {waits}\ntest "$(wc -l < {waits})" -gt 1\n')
    code, calls, printed = run(script_of(), path)
    assert code == 0
    assert waits.read_text().count("probe") == 2
    assert "http://h:8265" in printed
    assert calls


OPTIONS = [
    ({}, ["--submission-id", "j1"]),
    (
        {"entrypointNumCpus": 1, "entrypointNumGpus": 0.5},
        ["--submission-id", "j1", "--entrypoint-num-cpus", "1.000000", "--entrypoint-num-gpus", "0.500000"],
    ),
    (
        {"runtimeEnvYAML": 'env_vars: {A: "1"}'},
        ["--runtime-env-json", '{"env_vars":{"A":"1"}}', "--submission-id", "j1"],
    ),
    ({"metadata": {"b": "2", "a": "1"}}, ["--metadata-json", '{"a":"1","b":"2"}', "--submission-id", "j1"]),
    ({"entrypointResources": '{"R": 2}'}, ["--submission-id", "j1", "--entrypoint-resources", '{"R": 2}']),
    ({"entrypointNumCpus": 0, "metadata": {}, "runtimeEnvYAML": ""}, ["--submission-id", "j1"]),
    (
        {"runtimeEnvYAML": 'env_vars: {A: "$SECRET `id` \'x\' \\"y\\" \\\\"}'},
        ["--runtime-env-json", '{"env_vars":{"A":"$SECRET `id` \'x\' \\"y\\" \\\\"}}', "--submission-id", "j1"],
    ),
    ({"metadata": {"k": "<a & b>"}}, ["--metadata-json", '{"k":"\\u003ca \\u0026 b\\u003e"}', "--submission-id", "j1"]),
]


@pytest.mark.parametrize(("spec", "words"), OPTIONS)
def test_options_arrive_as_data_and_in_order(spec: dict, words: list[str], path: Path) -> None:
    _, calls, _ = run(script_of(**spec), path, job_status="1")
    assert calls[1][4:] == ["--no-wait", *words, "--", "echo", "hi"]


ENTRYPOINTS = [
    "python train.py",
    "python train.py --lr 0.1 --name=a.b,c:d@e/f%g+h",
    "python -c 'import ray; print(1)'",
    'python -c "print(\'both\' + \\"kinds\\")"',
    "echo one && echo two; hostname > /tmp/x | cat",
    "echo $SECRET `id` $(id) ${HOME} $$ $((1+1))",
    "echo *.py ~ {a,b} !! # no comment",
    "python - <<'EOF'\nprint('$SECRET')\n  indented\nEOF\n",
    "\n\n  python train.py  \n",
    "echo 'Grüße 世界 🎉' \u00a0 \u2028",
    "A=1 python train.py",
    "-x --no-wait -- y",
    "echo 'open quote",
    'echo "tab\there" \\\n  continued',
    "echo '' \"\" ' '",
    "\\$HOME '\"'\"' \\\\ ",
    "fi ; ray job logs",
]


@pytest.mark.parametrize("entrypoint", ENTRYPOINTS)
def test_the_entrypoint_reaches_ray_byte_for_byte(entrypoint: str, path: Path) -> None:
    """Ray joins the words after `--` again, each quoted; what comes out is the entrypoint, or a bash that is given it."""
    code, calls, printed = run(script_of(entrypoint=entrypoint), path, job_status="1")
    assert (code, printed) == (0, "")
    assert [call[1] for call in calls] == ["status", "submit", "logs"]
    words = calls[1][calls[1].index("--") + 1 :]
    ray_runs = shlex.join(words)
    assert ray_runs == entrypoint.strip() or words == ["bash", "-c", entrypoint]
    assert {entry.name for entry in path.parent.iterdir()} == {"bin", "seen"}, "nothing of it ran here"


def test_plain_commands_stay_as_users_know_them() -> None:
    for plain in ("python count.py", "python -m a.b --x=1", "echo 'two words'"):
        assert entrypoint_words({"entrypoint": plain}) == plain
    assert entrypoint_words({"entrypoint": "a && b"}) == "bash -c 'a && b'"
    assert entrypoint_words({"entrypoint": "\n python a.py \n"}) == "python a.py"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_text_is_what_ray_gets(text: str) -> None:
    words = shlex.split(entrypoint_words({"entrypoint": text}))
    assert shlex.join(words) == text.strip() or words == ["bash", "-c", text]


def expanded(text: str, variables: dict[str, str]) -> str:
    """What the kubelet makes of a container's argument (k8s.io/kubernetes/third_party/forked/golang/expansion)."""
    out, index = "", 0
    while index < len(text):
        char, rest = text[index], text[index + 1 :]
        if char != "$" or not rest:
            out, index = out + char, index + 1
        elif rest[0] == "$":
            out, index = out + "$", index + 2
        elif rest[0] == "(" and ")" in rest:
            name = rest[1 : rest.index(")")]
            out += variables.get(name, f"$({name})")
            index += len(name) + 3
        else:
            out, index = out + "$", index + 1
    return out


@settings(max_examples=300)
@given(st.text(alphabet="$()A b'", max_size=12))
def test_kubernetes_does_not_expand_arguments_either(text: str) -> None:
    assert expanded(unexpanded(text), {"A": "expanded", "": "x"}) == text


def test_only_what_kubernetes_would_touch_is_doubled() -> None:
    assert unexpanded("echo $HOME ${X} $1") == "echo $HOME ${X} $1"
    assert unexpanded("echo $(A)") == "echo $$(A)"


@pytest.mark.parametrize(
    ("status", "body", "code"), [(200, b"success", 0), (200, b"unhealthy", 1), (503, b"success", 1)]
)
def test_the_probe_believes_only_a_healthy_dashboard(status: int, body: bytes, code: int) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/api/gcs_healthz"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        script = submit_script({"entrypoint": "x"}, address=f"127.0.0.1:{server.server_address[1]}", submission_id="j")
        words = shlex.split(script)
        program = words[words.index("-c") + 1]
        environment = {"PATH": os.environ["PATH"], "NO_PROXY": "*"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False)
        assert min(done.returncode, 1) == code
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_json_is_compact_sorted_and_plain() -> None:
    assert compact_json({"b": [1, True, None], "a": {"é": "x"}}) == '{"a":{"é":"x"},"b":[1,true,null]}'
