"""Which definitions an installation writes, and which it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from raybus.api.installed import VERSION, Mode, established, signed, verdict


def definition(installed_by: str | None = None, served: bool = True) -> dict[str, Any]:
    annotations = {"controller-gen.kubebuilder.io/version": "v0.16.5"}
    if installed_by is not None:
        annotations[VERSION] = installed_by
    return {"metadata": {"annotations": annotations}, "spec": {"versions": [{"name": "v1", "served": served}]}}


def test_a_missing_one_is_made() -> None:
    assert verdict(None, "0.2.0", Mode.INSTALL).write


@pytest.mark.parametrize("before", ["0.1.0", "0.1.0.dev3", "odd"])
def test_one_that_an_older_raybus_made_is_brought_up_to_date(before: str) -> None:
    said = verdict(definition(before), "0.2.0", Mode.INSTALL)
    assert said.write
    assert not said.force


def test_one_of_this_version_is_written_again_only_on_demand() -> None:
    assert not verdict(definition("0.2.0"), "0.2.0", Mode.INSTALL).write
    assert verdict(definition("0.2.0"), "0.2.0", Mode.REPLACE).force


@pytest.mark.parametrize("mode", list(Mode))
def test_one_that_a_newer_raybus_made_is_never_made_older(mode: Mode) -> None:
    assert not verdict(definition("0.10.0"), "0.9.0", mode).write


def test_one_of_somebody_else_is_left_alone_unless_it_is_to_be_replaced() -> None:
    said = verdict(definition(), "0.2.0", Mode.INSTALL)
    assert (said.write, said.unusable) == (False, False)
    said = verdict(definition(), "0.2.0", Mode.REPLACE)
    assert (said.write, said.force) == (True, True)


def test_one_of_somebody_else_that_does_not_serve_our_version_cannot_be_used() -> None:
    assert verdict(definition(served=False), "0.2.0", Mode.INSTALL).unusable


def test_with_skip_nothing_is_written_and_a_missing_one_is_told() -> None:
    assert not verdict(definition("0.1.0"), "0.2.0", Mode.SKIP).write
    assert verdict(None, "0.2.0", Mode.SKIP).unusable


def test_signing_keeps_what_is_there() -> None:
    before = definition()
    after = signed(before, "0.2.0")
    assert after["metadata"]["annotations"] == {"controller-gen.kubebuilder.io/version": "v0.16.5", VERSION: "0.2.0"}
    assert VERSION not in before["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, False),
        ({"conditions": [{"type": "Established", "status": "False"}]}, False),
        ({"conditions": [{"type": "Established", "status": "True"}]}, True),
    ],
)
def test_established(status: dict[str, Any], expected: bool) -> None:
    assert established({"status": status}) is expected
    assert not established(None)
