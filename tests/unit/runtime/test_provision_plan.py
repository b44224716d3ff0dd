"""What Secrets of an installation need, and the certificates that are made for it."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from raybus.runtime.provision import pki, plan
from raybus.runtime.provision.plan import Certificate

NOW = datetime(2026, 11, 30, tzinfo=UTC)
GOOD = Certificate(
    names=frozenset({"nats", "nats.ns.svc"}),
    begins=NOW - timedelta(days=30),
    ends=NOW + timedelta(days=60),
    signed_by=b"ca",
    key=b"key",
)


def renewal(certificate: Certificate | None, key: bytes | None = b"key", now: datetime = NOW) -> str:
    return plan.renewal(certificate, key, ("nats", "nats.ns.svc"), b"ca", now)


def test_a_good_certificate_is_kept_until_two_thirds_of_its_life() -> None:
    assert renewal(GOOD) == ""
    assert renewal(GOOD, now=NOW + timedelta(days=29)) == ""
    assert renewal(GOOD, now=NOW + timedelta(days=31)) == "it ends on 2027-01-29"


@pytest.mark.parametrize(
    ("certificate", "key", "why"),
    [
        (None, b"key", "there is none"),
        (GOOD, b"other", "not of the server's key"),
        (GOOD, None, "not of the server's key"),
        (replace(GOOD, signed_by=b"other"), b"key", "of another CA"),
        (replace(GOOD, names=frozenset({"nats"})), b"key", "does not hold nats.ns.svc"),
    ],
)
def test_why_a_server_needs_another_certificate(certificate: Certificate | None, key: bytes | None, why: str) -> None:
    assert why in renewal(certificate, key)


def test_keys_that_exist_are_kept_and_what_is_derived_follows() -> None:
    found = {"seed": b"old", "ca.crt": b"before", "note": b"of somebody"}
    assert plan.changes(found, {"ca.crt": b"now"}) == {"ca.crt": b"now"}
    assert plan.changes(found, {"ca.crt": b"before"}) == {}, "what is as it should be is not written"
    assert not plan.needs_seed(found)
    assert plan.needs_seed({"ca.crt": b"now"})
    assert plan.unusable_ca({"ca.crt": b"x"})
    assert plan.unusable_ca({"ca.crt": b"x", "ca.key": b""})


@pytest.mark.parametrize("names", [("a.b.svc", "*.a.b", "10.0.0.1", "::1"), ()])
def test_good_names(names: tuple[str, ...]) -> None:
    assert plan.bad_name(names) == ""


@pytest.mark.parametrize("name", ["a b", "a..b", "-a", "*.*.a", "a/b", "tls://a"])
def test_bad_names(name: str) -> None:
    assert plan.bad_name(("good", name, "good.too")) == name


def test_a_certificate_says_what_it_was_made_for() -> None:
    ca = pki.new_ca("test", NOW)
    server = pki.new_server(ca, ("nats", "*.nats", "10.0.0.1"), NOW)
    said = pki.read(server["tls.crt"], ca["ca.crt"])

    assert said is not None
    assert said.names == {"nats", "*.nats", "10.0.0.1"}
    assert said.signed_by == pki.public_of_certificate(ca["ca.crt"])
    assert said.key == pki.public_of_key(server["tls.key"])
    assert said.begins < NOW < said.ends
    assert said.ends - NOW == pki.SERVER_LIFE
    made = x509.load_pem_x509_certificate(server["tls.crt"])
    alternatives = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.1")]
    ssl.create_default_context(cadata=ca["ca.crt"].decode())


def test_a_servers_certificate_does_not_outlive_its_ca() -> None:
    ca = pki.new_ca("test", NOW)
    later = NOW + pki.CA_LIFE - timedelta(days=10)
    said = pki.read(pki.new_server(ca, ("nats",), later)["tls.crt"], ca["ca.crt"])

    assert said is not None
    assert said.ends == pki.ends(ca["ca.crt"])
    assert plan.ca_ends_soon(said.ends, later)
    assert not plan.ca_ends_soon(said.ends, NOW)


def test_another_cas_certificate_is_none_of_ours() -> None:
    server = pki.new_server(pki.new_ca("one", NOW), ("nats",), NOW)
    said = pki.read(server["tls.crt"], pki.new_ca("two", NOW)["ca.crt"])

    assert said is not None
    assert said.signed_by == b""


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", b"\x00\xff"])
def test_what_cannot_be_read_is_no_certificate_and_no_key(text: bytes) -> None:
    ca = pki.new_ca("test", NOW)
    assert pki.read(text, ca["ca.crt"]) is None
    assert pki.public_of_key(text) is None
    with pytest.raises(pki.UnreadableError):
        pki.new_server({**ca, "ca.key": text}, ("nats",), NOW)
    with pytest.raises(pki.UnreadableError):
        pki.public_of_seed(text)


def test_seeds_are_all_different_and_say_nothing_in_errors() -> None:
    seeds = {pki.new_seed() for _ in range(20)}
    assert len(seeds) == 20
    assert all(seed.startswith(b"SU") for seed in seeds)
    assert all(pki.public_of_seed(seed).startswith(b"U") for seed in seeds)
    broken = min(seeds)[:-1] + b"1"
    with pytest.raises(pki.UnreadableError) as told:
        pki.public_of_seed(broken)
    assert broken.decode() not in str(told.value)
