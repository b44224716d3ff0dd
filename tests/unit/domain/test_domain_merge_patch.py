"""What is sent so that one object becomes another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus.domain.merge_patch import difference
from support.patches import applied


class TestDifference:
    @pytest.mark.parametrize(
        ("previous", "status", "diff"),
        [
            ({}, {}, {}),
            ({"a": 1}, {"a": 1}, {}),
            ({"a": 1}, {"a": 2}, {"a": 2}),
            ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
            ({"a": {"x": 1, "y": 1}}, {"a": {"x": 1, "y": 2}}, {"a": {"y": 2}}),
            ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
            ({}, {"a": None}, {}),
            ({"a": {"x": 1}}, {"a": 5}, {"a": 5}),
            ({"a": {"x": 1}}, {"a": {}}, {"a": {"x": None}}),
        ],
    )
    def test_only_what_differs_is_sent(self, previous: Any, status: Any, diff: Any) -> None:
        assert difference(previous, status) == diff

    trees = st.recursive(
        st.integers(0, 3) | st.text(max_size=2) | st.lists(st.integers(0, 2), max_size=2),
        lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
        max_leaves=8,
    )
    objects = st.dictionaries(st.sampled_from("abcd"), trees, max_size=4)

    @given(previous=objects, status=objects)
    def testapplied_to_what_was_it_gives_what_is_wanted(self, previous: Any, status: Any) -> None:
        assert applied(previous, difference(previous, status)) == status

    @given(status=objects)
    def test_nothing_is_sent_for_what_is_so_already(self, status: Any) -> None:
        assert difference(status, status) == {}
