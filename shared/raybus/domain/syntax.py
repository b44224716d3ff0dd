"""The grammar of Kubernetes names and labels. Pure; each check gives the problem in words, or nothing."""

from __future__ import annotations

import re

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PART = 63
_PREFIX = 253


def is_dns_label(name: str) -> bool:
    """RFC 1035: lower case, digits and "-", a letter in front, at most 63 characters."""
    return len(name) <= _PART and _DNS_1035.fullmatch(name) is not None


def is_dns_subdomain(name: str) -> bool:
    """RFC 1123: labels of lower case, digits and "-", joined by dots."""
    return len(name) <= _PREFIX and _DNS_1123_SUBDOMAIN.fullmatch(name) is not None


def label_key_problem(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return f"label key {key!r}: the part before '/' must be a DNS name of at most {_PREFIX} characters"
    if len(name) > _PART or not _NAME_PART.fullmatch(name):
        return (
            f"label key {key!r}: the name must be 1 to {_PART} letters, digits, '-', '_' or '.', "
            "with a letter or digit at either end"
        )
    return ""


def label_value_problem(key: str, value: str) -> str:
    if len(value) > _PART or (value and not _NAME_PART.fullmatch(value)):
        return (
            f"label {key!r}: the value {value!r} must be at most {_PART} letters, digits, '-', '_' or '.', "
            "with a letter or digit at either end"
        )
    return ""
