from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus.domain import quantities, resources, versions
from raybus.domain.quantities import Notation, Quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"), ("1", "1"), ("0.5", "500m"), ("1500m", "1500m"), ("1000m", "1"), ("2000", "2k"), ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"), ("1024Mi", "1Gi"), ("5Gi", "5Gi"), ("1e3", "1e3"), ("100M", "100M"), ("1000Ki", "1000Ki"),
        ("0.5Ki", "512"), ("+3", "3"), ("-2", "-2"), (".5", "500m"), ("1u", "1u"), ("0.1n", "1n"), ("12E", "12E"),
    ],
)  # fmt: skip
def test_canonical_form(text, canonical):
    assert str(quantities.parse(text)) == canonical


@pytest.mark.parametrize("text", ["", "abc", "1X", "1 Gi", "--1", "1Gii", None])
def test_what_is_no_quantity(text):
    assert quantities.parse(text) is None


def test_a_number_in_json_is_a_quantity():
    assert str(quantities.parse(2)) == "2"
    assert str(quantities.parse(0.5)) == "500m"


def test_a_sum_keeps_the_notation_of_the_first_non_zero_addend():
    q = quantities.parse
    assert str(q("0") + q("1Gi")) == "1Gi"
    assert str(q("2Gi") + q("1Gi")) == "3Gi"
    assert str(q("1G") + q("1Gi")) == "2073741824"
    assert str(q("1Gi") + q("1G")) == "2073741824"
    assert str(q("1Gi") * 0 + q("1M")) == "1M"


@given(st.integers(-(10**18), 10**18), st.sampled_from(list(Notation)))
def test_printing_and_reading_gives_the_same_amount(nano, notation):
    quantity = Quantity(Fraction(nano, 10**9), notation)
    read = quantities.parse(str(quantity))
    if notation is Notation.BINARY and abs(quantity.amount) >= 1024:
        assert read.amount == quantity.rounded_up
    else:
        assert read.amount == quantity.amount


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.53", (2, 53, 0)), ("v2.53.0", (2, 53, 0)), (" 2.53.0rc1", (2, 53, 0)), ("2.53.0.dev0", (2, 53, 0)),
        ("2.9.3", (2, 9, 3)), ("nightly", None), ("2", None), ("", None), (None, None), ("02.5", None),
    ],
)  # fmt: skip
def test_versions(text, version):
    assert versions.parse(text) == version


def test_at_least():
    assert versions.at_least("2.53.0rc1", 2, 53)
    assert not versions.at_least("2.9", 2, 53)
    assert not versions.at_least("nightly", 2, 53)


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.20gb", "gpu"])
def test_gpu_names(name):
    assert resources.is_gpu(name)


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "nvidia.com/mig-1g.20gbx", "nvidia.com/mig-g.20gb", "google.com/tpu"]
)
def test_other_names(name):
    assert not resources.is_gpu(name)


def test_a_pod_asks_for_requests_or_limits_of_its_containers():
    template = {
        "spec": {
            "initContainers": [{"resources": {"requests": {"cpu": "100"}}}],
            "containers": [
                {"resources": {"limits": {"cpu": "4", "memory": "5Gi", "nvidia.com/gpu": 1}, "requests": {"cpu": 1}}},
                {"resources": {"requests": {"memory": "1Gi", "nvidia.com/mig-2g.32gb": "2", "google.com/tpu": "4"}}},
                {},
            ],
        }
    }
    assert resources.of_pod(template).printed() == {
        "desiredCPU": "1", "desiredMemory": "6Gi", "desiredGPU": "3", "desiredTPU": "4",
    }  # fmt: skip
