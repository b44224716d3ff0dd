"""Label and field selectors."""

from __future__ import annotations

import pytest

from raybus_localkube.store.selectors import SelectorError, parse_fields, parse_labels

LABELS = {"app": "x", "tier": "2", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True), ("app=x", True), ("app==x", True), ("app!=x", False), ("app", True), ("!app", False), ("!none", True),
        ("none!=x", True), ("app in (x,y)", True), ("app in (y)", False), ("app notin (y)", True), ("none notin (y)", True),
        ("empty=", True), ("app in ()", False), ("tier>1", True), ("tier<2", False), ("app>1", False), ("app=x,tier=2", True),
        ("app=x,tier=3", False), (" app = x , tier ", True),
    ],
)  # fmt: skip
def test_label_selectors(text: str, matches: bool) -> None:
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["=x", "app in (x", "app x", "app=x=y", "app=x,", "-bad=x", "app>a", "a=(", "app=" + "v" * 64]
)
def test_malformed_label_selectors(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_labels(text)


def test_field_selectors() -> None:
    fields = {"spec.nodeName": "n1", "metadata.name": "a=b"}
    assert parse_fields("spec.nodeName=n1").matches(fields.__getitem__)
    assert not parse_fields("spec.nodeName!=n1").matches(fields.__getitem__)
    assert parse_fields(r"metadata.name=a\=b,spec.nodeName==n1").matches(fields.__getitem__)
    assert parse_fields("metadata.name=z").name == "z"
    with pytest.raises(SelectorError, match="can't understand 'nonsense'"):
        parse_fields("nonsense")
