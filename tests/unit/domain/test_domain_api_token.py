from __future__ import annotations

import pytest

from raybus.domain.api_token import without_token


@pytest.mark.parametrize(
    "pod", [{}, {"containers": []}, {"serviceAccountName": ""}, {"automountServiceAccountToken": None}]
)
def test_a_template_that_says_nothing_gets_no_token(pod: dict) -> None:
    assert without_token(pod) == {"automountServiceAccountToken": False}


@pytest.mark.parametrize(
    "pod",
    [
        {"automountServiceAccountToken": True},
        {"automountServiceAccountToken": False},
        {"serviceAccountName": "mine"},
        {"serviceAccountName": "default"},
        {"serviceAccount": "mine"},
    ],
)
def test_a_template_that_says_something_is_left_alone(pod: dict) -> None:
    assert without_token(pod) == {}
