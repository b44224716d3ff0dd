"""Keys and certificates: a CA of an installation's own, servers' certificates, and NATS users' seeds."""

from __future__ import annotations

import ipaddress
import os
from datetime import datetime, timedelta

import nkeys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from raybus.runtime.provision.plan import CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY, Certificate, is_address

CA_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=730)
_SKEW = timedelta(hours=1)  # clocks that are behind must not find it too young
_NAME_MAX = 64  # of a common name


class UnreadableError(Exception):
    """What should be a key or a certificate is none."""


def new_ca(name: str, now: datetime) -> dict[str, bytes]:
    """ca.crt and ca.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_NAME_MAX])])
    usage = _usage(signs_certificates=True)
    certificate = (
        _builder(subject, subject, key.public_key(), now, now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return {CA_CERTIFICATE: _pem(certificate), CA_KEY: _private(key)}


def new_server(ca: dict[str, bytes], names: tuple[str, ...], now: datetime) -> dict[str, bytes]:
    """tls.crt and tls.key, signed by the CA, for these DNS names and addresses. Raises UnreadableError."""
    issuer, issuer_key = _certificate(ca[CA_CERTIFICATE]), _key(ca[CA_KEY])
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:_NAME_MAX])])
    alternatives = [
        x509.IPAddress(ipaddress.ip_address(name)) if is_address(name) else x509.DNSName(name) for name in names
    ]
    ends = min(now + SERVER_LIFE, issuer.not_valid_after_utc)
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), now, ends)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        # Servers of one group are each other's clients.
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return {CERTIFICATE: _pem(certificate), KEY: _private(key)}


def read(pem: bytes | None, ca: bytes) -> Certificate | None:
    """What a server's certificate says; None if there is none that can be read. `ca` is the CA's certificate.

    `signed_by` is the public key of the CA if it signed it, else empty.
    """
    try:
        certificate, issuer = _certificate(pem or b""), _certificate(ca)
    except UnreadableError:
        return None
    try:
        certificate.verify_directly_issued_by(issuer)
        signed_by = _public(issuer.public_key())
    except Exception:  # noqa: BLE001 - whatever does not fit: it is not of this CA
        signed_by = b""
    try:
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = {*held.get_values_for_type(x509.DNSName), *map(str, held.get_values_for_type(x509.IPAddress))}
    except x509.ExtensionNotFound:
        names = set()
    return Certificate(
        names=frozenset(names),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        signed_by=signed_by,
        key=_public(certificate.public_key()),
    )


def public_of_certificate(pem: bytes) -> bytes:
    """The public key in a certificate. Raises UnreadableError."""
    return _public(_certificate(pem).public_key())


def public_of_key(pem: bytes | None) -> bytes | None:
    """The public half of a private key; None if there is no key that can be read."""
    try:
        return _public(_key(pem or b"").public_key())
    except UnreadableError:
        return None


def ends(pem: bytes) -> datetime:
    """When a certificate ends. Raises UnreadableError."""
    return _certificate(pem).not_valid_after_utc


def new_seed() -> bytes:
    """The seed of a NATS user: the whole secret."""
    return bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))


def public_of_seed(seed: bytes) -> bytes:
    """What a server is told of a user. Raises UnreadableError."""
    try:
        return bytes(nkeys.from_seed(bytearray(seed.strip())).public_key)
    except Exception:  # noqa: BLE001 - the library raises what it comes across; the seed must not be shown
        raise UnreadableError("not the seed of a NATS user") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends_: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(begins - _SKEW).not_valid_after(ends_)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise UnreadableError("not a certificate in PEM") from error


PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def _key(pem: bytes) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        raise UnreadableError("not a private key in PEM without a password") from None
    if not isinstance(key, PrivateKey):
        raise UnreadableError("a key of a sort that is not used here: take one on an elliptic curve, or RSA")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
