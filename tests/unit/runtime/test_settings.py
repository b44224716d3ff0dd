"""Settings: where they come from, and what a mistake looks like to the person who made it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import AliasChoices, Field, SecretStr

from raybus.runtime import gates
from raybus.runtime.flags import load
from raybus.runtime.settings import ServiceSettings


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
        file.write_text("apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nreconcileConcurrency: 3\n")
        assert settings("--config", str(file)).workers == 3

        monkeypatch.setenv("RAYBUS_WORKERS", "4")
        assert settings("--config", str(file)).workers == 4
        assert settings("--config", str(file), "--workers", "5").workers == 5

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
                "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nqps: 5\nburst: 6",
                ["not supported: burst, qps"],
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
