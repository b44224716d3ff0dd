"""Reading kubeconfig files: what comes out, and what the error says when it cannot be used."""

from __future__ import annotations

import base64
import datetime as dt
import os
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from raybus.kube.config import ConfigError, load


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(folder: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> str:
    path = folder / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_token_authority_and_namespace(tmp_path: Path, authority: trustme.CA) -> None:
    ca = authority.cert_pem.bytes()
    config = load(write(tmp_path, cluster={"certificate-authority-data": b64(ca)}, user={"token": "abc"}))
    assert config.server == "https://127.0.0.1:1"
    assert config.authorization == "Bearer abc"
    assert config.namespace == "team"
    assert config.tls is not None
    assert config.tls.verify_mode == ssl.CERT_REQUIRED
    assert len(config.tls.get_ca_certs()) == 1
    assert "abc" not in repr(config)


def test_inline_keys_do_not_stay_on_the_disk(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    leaf = authority.issue_cert("someone")
    user = {
        "client-certificate-data": b64(leaf.cert_chain_pems[0].bytes()),
        "client-key-data": b64(leaf.private_key_pem.bytes()),
    }
    path = write(tmp_path, cluster={"certificate-authority-data": b64(authority.cert_pem.bytes())}, user=user)
    assert load(path).tls is not None
    assert list(scratch.iterdir()) == []
    assert load(path).tls is load(path).tls, "the same certificates give the same pool of connections"


def test_exec_plugin_with_expiry(tmp_path: Path) -> None:
    credential = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"from-plugin","expirationTimestamp":"2030-01-01T00:00:00Z"}}'
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print('{credential}')"],
        "interactiveMode": "Never",
    }
    config = load(write(tmp_path, user={"exec": plugin}))
    assert config.authorization == "Bearer from-plugin"
    assert config.refresh_at == dt.datetime(2029, 12, 31, 23, 59, tzinfo=dt.UTC)


def test_exec_plugin_that_fails_is_named_with_its_words(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit('please log in')"],
        "interactiveMode": "Never",
    }
    with pytest.raises(ConfigError, match=r"exec plugin gave no credentials.*please log in"):
        load(write(tmp_path, user={"exec": plugin}))


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    config = load(write(tmp_path, user={"tokenFile": str(token)}))
    assert config.authorization == "Bearer one"
    assert config.refresh_at is not None
    token.write_text("two")
    assert config.refresh is not None
    assert config.refresh().authorization == "Bearer two"


def test_tls_server_name_proxy_and_insecure(tmp_path: Path) -> None:
    cluster = {"tls-server-name": "api", "proxy-url": "http://proxy:3128", "insecure-skip-tls-verify": True}
    config = load(write(tmp_path, cluster=cluster))
    assert (config.server_hostname, config.proxy) == ("api", "http://proxy:3128")
    assert config.tls is not None
    assert config.tls.verify_mode == ssl.CERT_NONE


def test_proxies_of_the_environment_are_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert load(write(tmp_path)).proxy is None


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"server": "127.0.0.1:1"}, "server must be an http:// or https:// URL"),
        ({"proxy-url": "socks5://x"}, "proxy-url must be http:// or https://"),
        ({"certificate-authority": "/no/such/file"}, "/no/such/file"),
        ({"certificate-authority-data": b64(b"no certificate")}, "certificate-authority"),
    ],
)
def test_errors_name_the_field(tmp_path: Path, cluster: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(write(tmp_path, cluster=cluster))


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(str(tmp_path / "absent"))
    broken = tmp_path / "broken"
    broken.write_text("{a: [")
    with pytest.raises(ConfigError, match=r"broken.*not YAML"):
        load(str(broken))
    broken.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(ConfigError, match="current-context"):
        load(str(broken))


def test_order_of_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="--kubeconfig"):
        load(None)
    default = Path(os.environ["HOME"]) / ".kube"
    default.mkdir(parents=True)
    write(default, cluster={"server": "https://home:1"})
    assert load(None).server == "https://home:1"
    monkeypatch.setenv("KUBECONFIG", write(tmp_path, cluster={"server": "https://env:1"}))
    assert load(None).server == "https://env:1"
