"""Actions that are more than one verb: what exists already is kept, and a token is seen by nobody."""

from __future__ import annotations

import base64

import pytest

from raybus.decide.actions import CreateAuthSecret, CreateServiceAccount
from raybus.decide.outcome import Result
from raybus.kube import errors
from raybus_cluster_ctrl.act import ACTIONS, handlers

METADATA = {"name": "demo", "namespace": "ns1"}


class Server:
    """Answers creations with what was given, or refuses them."""

    def __init__(self, refusal=None):
        self.refusal = refusal
        self.created = []

    async def create(self, kind, body, *, timeout_s=None):
        if self.refusal:
            raise self.refusal
        self.created.append((kind.kind, body))
        return body


def _action(kind):
    return kind(body={"metadata": METADATA}, reason="needed")


async def test_the_token_is_drawn_and_does_not_come_back():
    server = Server()
    drawn = handlers(server, random_bytes=lambda count: b"x" * count)[CreateAuthSecret]
    outcome = await drawn(_action(CreateAuthSecret))
    ((kind, body),) = server.created
    assert kind == "Secret"
    token = body["stringData"]["auth_token"]
    assert base64.b64decode(token) == b"x" * 32
    assert outcome.ok
    assert token not in repr(outcome)


async def test_two_tokens_differ():
    server = Server()
    create = handlers(server)[CreateAuthSecret]
    await create(_action(CreateAuthSecret))
    await create(_action(CreateAuthSecret))
    first, second = (body["stringData"]["auth_token"] for _, body in server.created)
    assert first != second


@pytest.mark.parametrize("kind", [CreateAuthSecret, CreateServiceAccount])
async def test_what_exists_already_is_kept_whoever_made_it(kind):
    server = Server(errors.AlreadyExists(409, "AlreadyExists", "exists"))
    outcome = await handlers(server)[kind](_action(kind))
    assert outcome.result is Result.ALREADY_SO


async def test_a_refusal_is_one():
    server = Server(errors.Forbidden(403, "Forbidden", "quota"))
    outcome = await handlers(server)[CreateServiceAccount](_action(CreateServiceAccount))
    assert outcome.result is Result.REFUSED
    assert outcome.message == "quota"


def test_handlers_are_for_allowed_actions():
    assert set(handlers(Server())) <= set(ACTIONS)
