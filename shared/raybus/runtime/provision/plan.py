"""What the Secrets of an installation must hold, and what of that is missing. Pure: chance and clock are the shell's.

Keys that exist are never changed: pods and servers hold them. What is derived from them (a server's certificate, public keys, the
CA's certificate beside each key) is brought up to date.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from raybus.bus import permissions

Data = Mapping[str, bytes]

CA_CERTIFICATE = "ca.crt"
CA_KEY = "ca.key"
CERTIFICATE = "tls.crt"
KEY = "tls.key"
SEED = "seed"

RENEW_AT = 2 / 3  # of its life
_DNS_NAME = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a certificate says; `signed_by` tells CAs apart, `key` the key it belongs to."""

    names: frozenset[str]
    begins: datetime
    ends: datetime
    signed_by: bytes
    key: bytes


def kept() -> tuple[str, ...]:
    """The Secrets that are read and never changed, without the prefix. The provisioner's rights are made from these."""
    return ("ca",)


def derived() -> tuple[str, ...]:
    """The Secrets that are brought up to date, without the prefix."""
    return ("server", *(user.name for user in permissions.users()))


def ca_name(prefix: str) -> str:
    return f"{prefix}-ca"


def server_name(prefix: str) -> str:
    return f"{prefix}-server"


def user_name(prefix: str, user: str) -> str:
    return f"{prefix}-{user}"


def unusable_ca(found: Data) -> bool:
    """Whether the CA cannot sign: a part of it is gone, and only who removed it has it."""
    return not (found.get(CA_CERTIFICATE) and found.get(CA_KEY))


def needs_seed(found: Data) -> bool:
    return not found.get(SEED)


def renewal(
    certificate: Certificate | None, key: bytes | None, names: tuple[str, ...], ca: bytes, now: datetime
) -> str:
    """Why a server needs another certificate; empty if it does not. `key` and `ca` are public keys."""
    if certificate is None:
        return "there is none"
    if key != certificate.key:
        return "it is not of the server's key"
    if certificate.signed_by != ca:
        return "it is of another CA"
    if missing := [name for name in names if name not in certificate.names]:
        return f"it does not hold {', '.join(missing)}"
    life = certificate.ends - certificate.begins
    if now >= certificate.begins + life * RENEW_AT:
        return f"it ends on {certificate.ends:%Y-%m-%d}"
    return ""


def changes(found: Data, wanted: Data) -> dict[str, bytes]:
    """The keys of `wanted` that a Secret does not hold, or holds otherwise; those of others stay."""
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def bad_name(names: tuple[str, ...]) -> str:
    """The first that no certificate can hold; empty if all are good."""
    return next((name for name in names if not _DNS_NAME.fullmatch(name) and not is_address(name)), "")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def ca_ends_soon(ends: datetime, now: datetime) -> bool:
    return ends - now < timedelta(days=365)
