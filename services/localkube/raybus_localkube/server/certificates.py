"""The server's own certificate authority and what it signs, kept in the state folder."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS_10 = dt.timedelta(days=3650)
SERVICE_ADDRESS = "10.96.0.1"
NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step; nobody else may read it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    fresh.replace(path)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Certificates of one state folder: `ca`, `server`, `admin`, and whatever else is asked for. Made once, then read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ca = self._pair("ca")
        if not self.ca.certificate.exists():
            self._make_authority()

    def _pair(self, name: str) -> Pair:
        return Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localkube-ca")])
        builder = self._builder(name, name, key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = builder.add_extension(usage, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())
        self._save(self.ca, certificate, key)

    @staticmethod
    def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + YEARS_10)
        )

    @staticmethod
    def _save(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        encoded = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # The key first: where the certificate is, its key is too.
        write_private(pair.key, encoded)
        write_private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, common_name: str, groups: tuple[str, ...] = (), *, server: bool = False) -> Pair:
        """The certificate of this name: of a user with groups, or of the server. Kept from the first call on."""
        pair = self._pair(name)
        if pair.certificate.exists():
            return pair
        ca_key = serialization.load_pem_private_key(self.ca.key.read_bytes(), None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        ca = x509.load_pem_x509_certificate(self.ca.certificate.read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(subject, ca.subject, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        builder = builder.add_extension(authority, critical=False)
        if server:
            addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1", SERVICE_ADDRESS)]
            alternative = x509.SubjectAlternativeName([*(x509.DNSName(text) for text in NAMES), *addresses])
            builder = builder.add_extension(alternative, critical=False)
        self._save(pair, builder.sign(ca_key, hashes.SHA256()), key)
        return pair

    def server_context(self) -> ssl.SSLContext:
        """TLS for the server: own certificate; a client certificate is welcome but not asked for."""
        pair = self.issue("server", "localkube", server=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def secret(self, name: str) -> str:
        """A random token, kept in a file of its own from the first call on."""
        path = self._folder / f"{name}.secret"
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode())
        return path.read_text()


def kubeconfig(authority: Authority, url: str) -> bytes:
    """A kubeconfig with contexts `localkube` (all rights) and `nobody` (none)."""
    data = base64.b64encode(authority.ca.certificate.read_bytes()).decode()
    admin = authority.issue("admin", "admin", ("system:masters",))
    users = [
        {"name": "admin", "user": {
            "token": authority.secret("admin-token"),
            "client-certificate-data": base64.b64encode(admin.certificate.read_bytes()).decode(),
            "client-key-data": base64.b64encode(admin.key.read_bytes()).decode(),
        }},
        {"name": "nobody", "user": {"token": authority.secret("nobody-token")}},
    ]  # fmt: skip
    contexts = [
        {"name": name, "context": {"cluster": "localkube", "user": user, "namespace": "default"}}
        for name, user in (("localkube", "admin"), ("nobody", "nobody"))
    ]
    cluster = {"server": url, "certificate-authority-data": data}
    document = {
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "localkube",
        "clusters": [{"name": "localkube", "cluster": cluster}], "users": users, "contexts": contexts,
    }  # fmt: skip
    # JSON is YAML; every reader of kubeconfigs takes it.
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
