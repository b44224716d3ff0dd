"""Users of NATS: their rights cover the subjects that the code builds, and nothing that leads further."""

from __future__ import annotations

import pytest

from raybus.bus import api, permissions, streams, subjects
from raybus.bus.memory_server import subject_matches
from raybus.bus.streams import GATEWAY, bucket_stream, lease_bucket, object_stream
from raybus.decide.tree import RootKey

KEY = RootKey("RayJob", "ns", "a.b")


def may(user: str, subject: str) -> bool:
    return any(subject_matches(grant.subject, subject) for grant in permissions.user(user).publish)


@pytest.mark.parametrize("controller", permissions.controllers())
def test_what_is_built_is_covered(controller: str) -> None:
    stream, bucket = object_stream(controller), lease_bucket(controller)
    assert may(GATEWAY, subjects.object_subject(controller, 3, 7, KEY, "Pod", "p"))
    assert may(GATEWAY, subjects.marker_subject(controller, 3, "Pod"))
    assert may(controller, subjects.history_subject(controller, "ns", "RayJob", "a.b"))
    assert may(controller, subjects.lease_subject(bucket, "session.host-1"))
    assert may(controller, subjects.lease_subject(bucket, "part.7"))
    assert may(controller, api.consumer_next(stream, "abc"))
    assert may(controller, api.consumer_next(bucket_stream(bucket), "abc"))


@pytest.mark.parametrize("user", [user.name for user in permissions.users()])
def test_no_right_is_wider_than_what_it_names(user: str) -> None:
    found = permissions.user(user)
    for grant in found.publish:
        tokens = grant.subject.split(".")
        assert tokens[0] in {"ray", "$KV", "$JS"}
        assert tokens[1] not in {"*", ">"}
        assert "DIRECT" not in tokens, "its answer has the asker's headers, and goes where the asker likes"
        assert not {"DELETE", "SNAPSHOT", "RESTORE", "RESET", "DURABLE", "ACK"} & set(tokens)
        if grant.subject.startswith("$JS.API."):
            assert any(stream in tokens for stream in permissions.streams()), "each names its stream"
    assert found.subscribe == (f"_INBOX_{user}.>",)


def test_only_the_gateway_writes_objects_and_only_the_provisioner_changes_streams() -> None:
    for user in permissions.users():
        writes = [grant.subject for grant in user.publish if grant.subject.startswith("ray.")]
        objects = [subject for subject in writes if not subject.startswith("ray.hist.")]
        assert bool(objects) == (user.name == GATEWAY)
        changes = [grant for grant in user.publish if ".UPDATE." in grant.subject or ".PURGE." in grant.subject]
        assert bool(changes) == (user.name == permissions.PROVISIONER)
        makes = [grant for grant in user.publish if ".CREATE." in grant.subject and ".STREAM." in grant.subject]
        assert bool(makes) == (user.name in {GATEWAY, permissions.PROVISIONER})


def test_a_controller_has_nothing_of_another() -> None:
    for name in permissions.controllers():
        others = [other for other in permissions.controllers() if other != name]
        tokens = {token for grant in permissions.user(name).publish for token in grant.subject.split(".")}
        for other in others:
            assert not tokens & {other, object_stream(other), lease_bucket(other), bucket_stream(lease_bucket(other))}


def test_all_streams_are_known() -> None:
    assert set(permissions.streams()) == {
        streams.HISTORY_STREAM,
        *streams.OBJECT_STREAMS.values(),
        *(bucket_stream(lease_bucket(name)) for name in (GATEWAY, *permissions.controllers())),
    }


def test_every_user_has_a_variable_of_its_own_in_the_configuration() -> None:
    text = permissions.accounts_conf()
    assert len({user.variable for user in permissions.users()}) == len(permissions.users())
    assert all(f"nkey: ${user.variable}," in text for user in permissions.users())
