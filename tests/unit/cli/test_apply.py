"""What becomes of an object that exists already, and how a refusal is told."""

from __future__ import annotations

import pytest

from raybus.cli.apply import Existing, explain, on_existing
from raybus.kube import errors


def rayjob(state="", **meta):
    meta = {"name": "hello", "finalizers": ["ray.io/rayjob-finalizer"], **meta}
    return {"kind": "RayJob", "metadata": meta, "spec": {}, "status": {"jobDeploymentStatus": state}}


@pytest.mark.parametrize(
    ("found", "replace", "expected"),
    [
        ({"kind": "RayCluster", "metadata": {}}, False, Existing.UPDATE),
        ({"kind": "ConfigMap", "metadata": {}}, True, Existing.UPDATE),
        (rayjob("Running"), False, Existing.ATTACH),
        (rayjob(), False, Existing.ATTACH),
        (rayjob("Running"), True, Existing.ATTACH),
        (rayjob("Complete"), False, Existing.REFUSE),
        (rayjob("Failed"), True, Existing.REPLACE),
        (rayjob("ValidationFailed"), True, Existing.REPLACE),
        (rayjob("ValidationFailed"), False, Existing.REFUSE),
        (rayjob("ValidationFailed", finalizers=[]), False, Existing.REPLACE),
        (rayjob(finalizers=[]), False, Existing.REPLACE),
        (rayjob("Initializing"), False, Existing.ATTACH),
        (rayjob("Initializing"), True, Existing.REPLACE),
        ({**rayjob(finalizers=[]), "spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, False, Existing.ATTACH),
        (rayjob("Running", deletionTimestamp="2026-01-01T00:00:00Z"), False, Existing.REPLACE),
    ],
)
def test_a_rayjob_runs_once_and_other_objects_are_updated(found, replace, expected):
    assert on_existing(found, replace=replace) is expected


def test_what_the_server_did_not_look_at_any_more_is_not_told():
    causes = [{"field": "spec.a", "message": "wrong"}, {"field": "<nil>", "message": "some rules were not checked"}]
    told = explain(errors.Invalid(422, "Invalid", "long", details={"causes": causes}), OBJECT)
    assert told.message == "RayJob hello is not valid: spec.a: wrong"


OBJECT = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "hello"}}
CAUSES = {"name": "hello", "causes": [{"field": "spec.backoffLimit", "message": "must be an integer"}]}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.Invalid(422, "Invalid", "long text", details=CAUSES), "spec.backoffLimit: must be an integer"),
        (
            errors.KubeError(
                400, "BadRequest", 'RayJob in version "v1": strict decoding error: unknown field "spec.x"'
            ),
            'RayJob hello is refused: unknown field "spec.x"',
        ),
        (errors.NotFound(404, "NotFound", 'namespaces "team" not found', details={"name": "team"}), '"team" not found'),
        (errors.NotFound(404, "NotFound", "no such resource"), "does not know ray.io/v1 RayJob"),
        (errors.Forbidden(403, "Forbidden", "no"), "hello: no"),
        (errors.NoAnswer("connection refused"), "does not answer: connection refused"),
    ],
)
def test_a_refusal_names_the_field_and_the_remedy(error, words):
    told = explain(error, OBJECT)
    assert words in told.message
    assert told.hint
    assert told.code
