from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from raybus_job_ctrl.build.runtime_env import RuntimeEnvError, parse

ROWS = [
    ("", {}),
    ("{}", {}),
    ("# nothing", {}),
    ("pip: [requests==2.26.0]", {"pip": ["requests==2.26.0"]}),
    ('env_vars: {A: "1"}', {"env_vars": {"A": "1"}}),
    (
        "a: {b: yes, c: No, d: on, e: OFF, f: y, g: n, h: true}",
        {"a": {"b": True, "c": False, "d": True, "e": False, "f": True, "g": False, "h": True}},
    ),
    ("N: 3", {"false": 3}),
    ("on: x", {"true": "x"}),
    ("1: x", {"1": "x"}),
    ("t: 12:30:45", {"t": "12:30:45"}),
    ("d: 2026-03-01", {"d": "2026-03-01"}),
    ("d: 2026-03-01T12:00:00Z", {"d": "2026-03-01T12:00:00Z"}),
    ("i: [010, 0x1F, 0b11, 1_000, -5, +7, 0o17]", {"i": [8, 31, 3, 1000, -5, 7, 15]}),
    ("f: [1.5, 1e3, 08, .5]", {"f": [1.5, 1000, 8, 0.5]}),
    ("z: [~, null, '']", {"z": [None, None, ""]}),
    ("v: 1.2.3", {"v": "1.2.3"}),
    ("a: &x {k: 1}\nb: {<<: *x, l: 2}", {"a": {"k": 1}, "b": {"k": 1, "l": 2}}),
    ("k: 1\nk: 2", {"k": 2}),
    ("s: |\n  two\n  lines\n", {"s": "two\nlines\n"}),
]


@pytest.mark.parametrize(("text", "value"), ROWS)
def test_yaml_is_read_as_kubernetes_reads_it(text: str, value: dict) -> None:
    assert parse(text) == value


BAD = [
    "some_text",
    "[a, b]",
    "42",
    "{a: ",
    "a: b: c",
    "a: .inf",
    "a: .nan",
    "a: !!python/object/apply:os.system [id]",
    "a: 99999999999999999999999999",
    '"\\uD800": 1',
    'a: "\\uD800"',
    "? [a, b]\n: 1",
    "a: !!binary aGk=",
    "a: &a [*a]",
    "a: " + "[" * 150 + "]" * 150,
    "a: \x01",
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_mapping_for_ray_is_refused_in_words(text: str) -> None:
    with pytest.raises(RuntimeEnvError) as caught:
        parse(text)
    assert str(caught.value)


def test_a_few_aliases_cannot_stand_for_billions_of_values() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(RuntimeEnvError, match="more than"):
        parse("\n".join(lines))


def test_the_words_do_not_repeat_the_text() -> None:
    with pytest.raises(RuntimeEnvError) as caught:
        parse("env_vars: {TOKEN: hunter2")
    assert "hunter2" not in str(caught.value)
    assert "line" in str(caught.value)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(alphabet="abcXYZ 0123.:-_#'\"", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(alphabet="abcyn01", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(alphabet="abcyn01", min_size=1, max_size=4), PLAIN, max_size=4))
def test_what_is_quoted_comes_back(value: dict) -> None:
    assert parse(yaml.safe_dump(value, default_style='"')) == value
