"""Where the API server is and how to prove who we are, as the `kubernetes` package reads it.

The package knows kubeconfig files, client certificates, tokens, exec plugins, OIDC and service accounts. It fills any object
that has its field names; nothing else of it is used, because its typed models are too slow for raw objects.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import importlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FILE_REREAD = dt.timedelta(minutes=1)  # the kubelet replaces tokens long before they expire
EXPIRY_MARGIN = dt.timedelta(minutes=1)


class ConfigError(Exception):
    """The configuration cannot be used; the message names the file or the field and what to do."""


@dataclass(frozen=True, slots=True)
class KubeConfig:
    """How to reach an API server. `server` may end in a base path; `authorization` is a header's value or empty.

    `refresh` reads everything again (blocking; a plugin may run); `refresh_at` says from when on that should be done
    before a request, None for credentials that do not age. `namespace` is the one that commands use by default.
    """

    server: str
    authorization: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_hostname: str | None = None
    proxy: str | None = field(default=None, repr=False)
    namespace: str = "default"
    refresh: Callable[[], KubeConfig] | None = field(default=None, repr=False)
    refresh_at: dt.datetime | None = None


class _Loaded:
    """What the `kubernetes` package fills. Its own class would take proxies from the environment, which we must not."""

    def __init__(self) -> None:
        self.host = ""
        self.api_key: dict[str, str] = {}
        self.refresh_api_key_hook: Callable[[Any], None] | None = None
        self.ssl_ca_cert: str | None = None
        self.cert_file: str | None = None
        self.key_file: str | None = None
        self.verify_ssl = True
        self.tls_server_name: str | None = None
        self.proxy: str | None = None


def load(kubeconfig: str | None = None) -> KubeConfig:
    """The configuration from this file, else from KUBECONFIG, else of the pod we run in, else from ~/.kube/config.

    Raises ConfigError.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG")
    if path:
        return _from_file(path)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return _from_file(str(default))
    raise ConfigError("no API server is configured: give --kubeconfig FILE or set KUBECONFIG, or run inside a pod")


def _from_file(path: str) -> KubeConfig:
    if not any(Path(part).expanduser().is_file() for part in path.split(os.pathsep) if part):
        raise ConfigError(f"kubeconfig {path}: no such file")
    # Certificates given inline pass through files; they are gone when this block ends.
    with tempfile.TemporaryDirectory(prefix="raybus-kube-") as scratch:
        return _from_existing_file(path, scratch)


def _from_existing_file(path: str, scratch: str) -> KubeConfig:
    package = _package("kubernetes.config.kube_config")
    loaded = _Loaded()
    with _words_of_the_loader() as words:
        try:
            merged = package.KubeConfigMerger(path).config
            loader = package.KubeConfigLoader(config_dict=merged, config_base_path=None, temp_file_path=scratch)
            loader.load_and_set(loaded)
            context = loader.current_context.get("context") or {}
            user = _user_of(merged, str(context.get("user") or ""))
        except (package.ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"kubeconfig {path}: {error}") from error
        except package.yaml.YAMLError as error:
            raise ConfigError(f"kubeconfig {path}: not YAML: {error}") from error
    if "exec" in user and not loaded.api_key and not loaded.cert_file:
        raise ConfigError(f"kubeconfig {path}: the exec plugin gave no credentials: {'; '.join(words) or 'no output'}")
    return _build(
        loaded,
        where=f"kubeconfig {path}",
        namespace=str(context.get("namespace") or "default"),
        refresh=lambda: _from_file(path),
        refresh_at=_refresh_at(user, getattr(loader, "expiry", None)),
    )


def _in_cluster() -> KubeConfig:
    package = _package("kubernetes.config.incluster_config")
    loaded = _Loaded()
    try:
        package.load_incluster_config(client_configuration=loaded)
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except (package.ConfigException, OSError) as error:
        raise ConfigError(f"service account of this pod: {error}") from error
    return _build(
        loaded,
        where="service account of this pod",
        namespace=namespace,
        refresh=_in_cluster,
        refresh_at=dt.datetime.now(dt.UTC) + TOKEN_FILE_REREAD,
    )


def _package(name: str) -> Any:
    """Imported late: it takes half a second, which a command that needs no cluster should not pay. It has no types."""
    return importlib.import_module(name)


def _build(
    loaded: _Loaded, *, where: str, namespace: str, refresh: Callable[[], KubeConfig], refresh_at: dt.datetime | None
) -> KubeConfig:
    if not loaded.host.startswith(("http://", "https://")):
        raise ConfigError(f"{where}: clusters[].cluster.server must be an http:// or https:// URL, not {loaded.host!r}")
    if loaded.proxy and not loaded.proxy.startswith(("http://", "https://")):
        raise ConfigError(f"{where}: clusters[].cluster.proxy-url must be http:// or https://: {loaded.proxy!r}")
    try:
        tls = _tls_context(loaded) if loaded.host.startswith("https://") else None
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{where}: certificate-authority, client-certificate or client-key: {error}") from error
    authorization = loaded.api_key.get("BearerToken", "").strip()
    if authorization.startswith("bearer "):
        authorization = "Bearer " + authorization.removeprefix("bearer ")
    return KubeConfig(
        server=loaded.host.rstrip("/"),
        authorization=authorization,
        tls=tls,
        server_hostname=loaded.tls_server_name,
        proxy=loaded.proxy,
        namespace=namespace,
        refresh=refresh,
        refresh_at=refresh_at,
    )


def _user_of(config: Any, name: str) -> Any:
    if not name:
        return {}
    node = config["users"].get_with_name(name, safe=True)
    return node["user"] if node and node.safe_get("user") else {}


def _refresh_at(user: Any, expiry: dt.datetime | None) -> dt.datetime | None:
    if expiry is not None:
        return expiry - EXPIRY_MARGIN
    if "tokenFile" in user and "token" not in user:
        return dt.datetime.now(dt.UTC) + TOKEN_FILE_REREAD
    return None


# A context holds session caches and is part of a pooled connection's key: the same certificates give the same context.
_contexts: dict[str, ssl.SSLContext] = {}


def _tls_context(loaded: _Loaded) -> ssl.SSLContext:
    digest = hashlib.sha256(str(loaded.verify_ssl).encode())
    for path in (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file):
        digest.update(Path(path).read_bytes() if path else b"-")
    context = _contexts.get(digest.hexdigest())
    if context is None:
        context = ssl.create_default_context(cafile=loaded.ssl_ca_cert)
        if not loaded.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if loaded.cert_file:
            context.load_cert_chain(loaded.cert_file, loaded.key_file)
        if len(_contexts) >= 8:
            _contexts.clear()
        _contexts[digest.hexdigest()] = context
    return context


@contextlib.contextmanager
def _words_of_the_loader() -> Iterator[list[str]]:
    """The loader only logs why an exec plugin failed, on the root logger; collect that for our own message."""
    words: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words.append(record.getMessage())

    handler = Collect(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield words
    finally:
        logging.getLogger().removeHandler(handler)
