"""Settings: where they come from, and what a mistake looks like to the person who made it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pydantic import AliasChoices, Field, SecretStr

from raybus.runtime import configfile, gates
from raybus.runtime.flags import load
from raybus.runtime.lifecycle import Stop
from raybus.runtime.service import run_until_stopped
from raybus.runtime.settings import ServiceSettings

AS_RENDERED = """\
apiVersion: config.ray.io/v1alpha1
kind: Configuration
metricsAddr: ":8080"
probeAddr: ":8082"
enableMetrics: true
enableLeaderElection: true
leaderElectionNamespace: ""
reconcileConcurrency: 1
watchNamespace: "a,b"
logFile: /var/log/operator.log
logFileEncoder: json
logStdoutEncoder: json
batchScheduler: ""
enableBatchScheduler: false
headSidecarContainers: []
workerSidecarContainers: []
defaultContainerEnvs: []
useKubernetesProxy: true
deleteRayJobAfterJobFinishes: false
qps: 100.0
burst: 200
"""


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


class Settings(ServiceSettings):
    cluster_domain: str = Field(
        "cluster.local",
        validation_alias=AliasChoices("RAYBUS_CLUSTER_DOMAIN", "CLUSTER_DOMAIN"),
        description="DNS suffix of Services",
    )
    use_kubernetes_proxy: bool = Field(False, description="reach dashboards through the API server")
    api_token: SecretStr = Field(SecretStr(""), min_length=0, max_length=4, description="a secret")


def settings(*flags: str) -> Settings:
    return load(Settings, "raybus-test", flags)


def mistake(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The one line that these flags lead to."""
    with pytest.raises(SystemExit) as ended:
        settings(*flags)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


class TestSources:
    def test_defaults_serve_a_local_run(self) -> None:
        assert settings().nats_url == "nats://127.0.0.1:4222"
        assert settings().namespaces == ()

    def test_a_flag_wins_over_its_variable_and_that_over_the_file(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        file = tmp_path / "config.yaml"
        file.write_text("apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nlogStdoutEncoder: console\n")
        assert settings("--config", str(file)).log_format == "console"

        monkeypatch.setenv("RAYBUS_LOG_FORMAT", "json")
        assert settings("--config", str(file)).log_format == "json"
        assert settings("--config", str(file), "--log-format", "console").log_format == "console"

    def test_lists_are_separated_by_commas_everywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert settings("--namespaces", "a, b,").namespaces == ("a", "b")
        monkeypatch.setenv("RAYBUS_NAMESPACES", "c,d")
        assert settings().namespaces == ("c", "d")

    def test_a_field_of_a_service_is_a_flag_and_may_keep_the_name_of_its_variable(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CLUSTER_DOMAIN", "corp.example")
        assert settings().cluster_domain == "corp.example"
        assert settings("--cluster-domain", "other.example").cluster_domain == "other.example"

    def test_a_switch_needs_no_value(self) -> None:
        assert settings("--use-kubernetes-proxy").use_kubernetes_proxy
        assert not settings("--use-kubernetes-proxy=false").use_kubernetes_proxy

    def test_feature_gates_keep_the_defaults_of_those_not_named(self) -> None:
        found = settings("--feature-gates", "RayCronJob=true,RayMultiHostIndexing=false").feature_gates

        assert found["RayCronJob"]
        assert not found["RayMultiHostIndexing"]
        assert found["RayJobDeletionPolicy"]
        assert found.keys() == gates.DEFAULTS.keys()

    def test_a_replica_has_a_new_name_at_each_start(self) -> None:
        assert settings().replica_id != settings().replica_id

    def test_fields_of_the_file_that_another_service_has_are_passed_over(self, tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_text("apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nuseKubernetesProxy: true\n")

        assert settings("--config", str(file)).use_kubernetes_proxy
        assert load(ServiceSettings, "raybus-test", ["--config", str(file)])

    @pytest.mark.usefixtures("_logging_as_before")
    def test_a_file_as_the_charts_of_kuberay_render_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(AS_RENDERED)

        found = settings("--config", str(file))
        assert (found.namespaces, found.log_format) == (("a", "b"), "json")
        assert found.workers == ServiceSettings().workers, "one worker is the default there and would be a brake here"
        assert found.use_kubernetes_proxy

        async def main(_stop: Stop) -> None:
            pass

        assert run_until_stopped(main, found, "raybus-test", service="test") == 0
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert {line["field"] for line in lines} == set(configfile.WITHOUT_EFFECT)
        assert all(line["instead"] for line in lines)


class TestMistakes:
    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (["--health-port", "abc"], ["--health-port", "integer", "'abc'"]),
            (["--health-port", "70000"], ["--health-port", "65535"]),
            (["--nats-ur", "x"], ["--nats-ur", "did you mean --nats-url?"]),
            (["--nats-url"], ["--nats-url", "expected one argument"]),
            (["--log-level", "loud"], ["--log-level", "debug, info, warning, error"]),
            (["--feature-gates", "RayCronJobs=true"], ["--feature-gates", "RayCronJobs", "RayCronJob,"]),
            (["--feature-gates", "RayCronJob"], ["--feature-gates", "Name=true"]),
            (["--batch-scheduler", "volcano"], ["--batch-scheduler", "not supported yet"]),
            (["--replica-id", "a.b"], ["--replica-id", "letters, digits"]),
            (["--config", "/does/not/exist"], ["/does/not/exist", "No such file"]),
            (["extra"], ["unknown argument extra"]),
        ],
        ids=lambda value: value[0] if isinstance(value, list) else "",
    )
    def test_one_line_names_the_flag_and_the_remedy(
        self, capsys: pytest.CaptureFixture[str], flags: list[str], words: list[str]
    ) -> None:
        line = mistake(capsys, *flags)

        assert line.startswith("raybus-test: ")
        assert all(word in line for word in words), line

    def test_a_wrong_variable_is_named_itself(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RAYBUS_HEALTH_PORT", "abc")

        assert "RAYBUS_HEALTH_PORT" in mistake(capsys)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("kind: [", ["line 1", "not valid YAML"]),
            ("- a", ["expected a mapping"]),
            ("apiVersion: v1\nkind: Configuration", ["config.ray.io/v1alpha1"]),
            (
                "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nqps: 5\nbrust: 6\nallow: {}",
                ["unknown: allow, brust (", "burst"],
            ),
            (
                "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\ndefaultPodLabels: {team: a}",
                ["not supported yet: defaultPodLabels"],
            ),
            (
                "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nenableBatchScheduler: true",
                ["not supported yet: enableBatchScheduler"],
            ),
            (
                "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nbatchScheduler: volcano",
                ["--batch-scheduler (from the --config file)", "not supported yet"],
            ),
        ],
    )
    def test_a_wrong_file_says_where(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: list[str]
    ) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(text)

        line = mistake(capsys, "--config", str(file))

        assert all(word in line for word in words), line


class TestSecrets:
    def test_secret_values_are_never_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = mistake(capsys, "--api-token", "geheimnis")

        assert "--api-token" in line
        assert "geheimnis" not in line
        assert "geheim" not in str(settings("--api-token", "geh"))

    def test_a_password_in_an_address_is_refused_and_not_repeated(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = mistake(capsys, "--nats-url", "nats://me:geheim@host:4222")

        assert "--nats-credentials-file" in line
        assert "geheim" not in line


def test_help_lists_each_setting_with_its_variable_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        settings("--help")

    text = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert "--cluster-domain" in text
    assert "RAYBUS_CLUSTER_DOMAIN, CLUSTER_DOMAIN" in text
    assert "default 8082; RAYBUS_HEALTH_PORT" in text
