"""Names of children as a pure function of what is stored, so that a second create meets the first one.

Pure. A random name would give two children where a create was answered after a crash; a derived one gives "already exists".
"""

from __future__ import annotations

import hashlib

# Kubernetes' own alphabet for generated names: no vowels and nothing that can be misread.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5


def suffix(*parts: str | int) -> str:
    """Five characters that depend on all parts and on their order."""
    digest = hashlib.sha256("\x00".join(str(part) for part in parts).encode()).digest()
    number = int.from_bytes(digest[:8], "big")
    chars = []
    for _ in range(SUFFIX_LENGTH):
        number, index = divmod(number, len(ALPHABET))
        chars.append(ALPHABET[index])
    return "".join(chars)


def fnv1a32(text: str) -> int:
    """FNV-1a, 32 bits, of the UTF-8 bytes: the hash that NATS' own subject partitioning uses."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def partition(namespace: str, root: str, partitions: int) -> int:
    """The partition of a tree: fnv1a32(namespace + root) modulo the number of partitions."""
    return fnv1a32(namespace + root) % partitions
