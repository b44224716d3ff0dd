"""Which pods a pass creates and deletes, in a small world where plans happen."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raybus.decide.actions import CreatePod, CreateService, DeletePod
from raybus_cluster_ctrl.decide.policy import Policy
from support.clusters import UNREADY, Kubernetes, actions, cluster, group, names_of


def _running(*groups, **spec):
    world = Kubernetes(cluster(*groups, **spec))
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_new_cluster_gets_service_head_and_workers_side_by_side():
    world = Kubernetes(cluster(group("a", 2), group("b", 1)))
    plan = world.decide()
    assert len(plan.steps) == 1
    assert not plan.confirm
    assert [type(action) for action in plan.actions] == [CreateService, *[CreatePod] * 4]
    slots = [(a.body["metadata"]["labels"]["ray.io/group"], a.body["metadata"]["annotations"]["raybus.io/slot"])
             for a in actions(plan, CreatePod)]  # fmt: skip
    assert slots == [("headgroup", "0"), ("a", "0"), ("a", "1"), ("b", "0")]


def test_names_are_the_same_after_a_crash_before_anything_was_seen():
    first, second = (Kubernetes(cluster(group(replicas=3))).decide() for _ in range(2))
    assert names_of(actions(first, CreatePod)) == names_of(actions(second, CreatePod))
    assert len(set(names_of(actions(first, CreatePod)))) == 4


def test_a_settled_cluster_writes_nothing_more():
    world = _running(group())
    assert world.settle() == 1


def test_replicas_within_their_bounds():
    world = Kubernetes(
        cluster(
            group("many", 5, maxReplicas=2),
            group("few", 0, minReplicas=1),
            group("unsaid", None),
            group("none", 2, numOfHosts=0),
        )
    )
    world.settle()
    assert [len(world.pods(name)) for name in ("many", "few", "unsaid", "none")] == [2, 1, 0, 0]


def test_nothing_is_done_before_everything_was_read():
    world = Kubernetes(cluster(group()))
    from raybus_cluster_ctrl.decide import pipeline

    half = world.observer(world.tree(complete=frozenset({"RayCluster", "Service"})))
    assert pipeline.decide(half, policy=world.policy, now=world.now).steps == ()
    assert pipeline.conclude(half, (), policy=world.policy, now=world.now).steps == ()


class TestHead:
    def test_a_terminating_head_is_not_replaced_until_it_is_gone(self):
        world = _running()
        (head,) = world.names("headgroup")
        world.delete(head, lingers=True)
        assert actions(world.reconcile(), CreatePod) == []
        world.delete(head)
        (new,) = actions(world.reconcile(), CreatePod)
        assert new.name != head

    @pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
    def test_an_ended_head_is_deleted_then_replaced_never_both_in_one_pass(self, phase):
        world = _running()
        world.deletion_lingers = True
        (head,) = world.names("headgroup")
        world.run(head, phase=phase, reason="Evicted", message="node was low on memory")
        plan = world.reconcile()
        assert names_of(actions(plan, DeletePod)) == [head]
        assert plan.confirm
        assert "Evicted" in actions(plan, DeletePod)[0].reason
        assert world.reconcile().steps == ()
        world.delete(head)
        assert len(actions(world.reconcile(), CreatePod)) == 1

    @pytest.mark.parametrize(
        ("policy", "state", "deleted"),
        [
            ("Never", "terminated", True),
            ("Always", "terminated", False),
            ("Never", "running", False),
            ("Never", None, False),
        ],
    )
    def test_an_ended_ray_container_counts_only_without_restarts(self, policy, state, deleted):
        template = {"spec": {"containers": [{"name": "ray-head"}, {"name": "side"}], "restartPolicy": policy}}
        world = _running(headGroupSpec={"template": template})
        statuses = [{"name": "side", "state": {"terminated": {}}}]
        statuses += [{"name": "ray-head", "state": {state: {}}}] if state else []
        world.run(containerStatuses=statuses)
        assert bool(actions(world.reconcile(), DeletePod)) is deleted

    def test_a_container_put_in_front_of_ray_is_not_taken_for_it(self):
        template = {"spec": {"containers": [{"name": "ray-head"}], "restartPolicy": "Never"}}
        world = _running(headGroupSpec={"template": template})
        (pod,) = world.pods()
        world.put({**pod, "spec": {**pod["spec"], "containers": [{"name": "mesh"}, {"name": "ray-head"}]}})
        world.run(containerStatuses=[{"name": "mesh", "state": {"terminated": {}}}])
        assert actions(world.reconcile(), DeletePod) == []

    def test_of_two_heads_one_stays(self):
        world = _running()
        (head,) = world.pods()
        twin = {**head["metadata"], "name": "twin", "uid": "uid-twin", "creationTimestamp": "2027-01-01T00:00:00Z"}
        world.put({**head, "metadata": twin})
        plan = world.reconcile()
        assert names_of(actions(plan, DeletePod)) == ["twin"]
        assert plan.confirm
        world.settle()
        assert world.names() == [head["metadata"]["name"]]

    def test_a_head_of_an_earlier_cluster_of_that_name_is_waited_for_and_not_deleted(self):
        world = Kubernetes(cluster())
        world.foreign_pod("old", "head", "headgroup")
        plan = world.reconcile()
        assert [type(action) for action in plan.actions] == [CreateService]
        assert any("old" in note for note in plan.notes)
        assert "Pod old has the labels of this cluster's head" in world.condition("HeadPodReady")["message"]
        world.delete("old")
        assert len(actions(world.reconcile(), CreatePod)) == 1

    def test_once_provisioned_it_is_not_restarted_where_that_is_asked_for(self):
        world = _running(group(replicas=1))
        world.annotate(**{"ray.io/disable-provisioned-head-restart": "true"})
        for name in world.names():
            world.delete(name)
        assert actions(world.reconcile(), CreatePod) == []

    def test_before_it_was_provisioned_it_is_restarted_all_the_same(self):
        world = Kubernetes(cluster())
        world.annotate(**{"ray.io/disable-provisioned-head-restart": "true"})
        world.settle()
        world.delete(*world.names())
        assert len(actions(world.reconcile(), CreatePod)) == 1

    def test_a_name_in_the_template_or_a_fixed_one_is_used(self):
        template = {"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "h"}]}}
        assert names_of(actions(Kubernetes(cluster(headGroupSpec={"template": template})).decide(), CreatePod)) == [
            "mine"
        ]
        fixed = Kubernetes(cluster(), Policy(fixed_head_name=True))
        assert names_of(actions(fixed.decide(), CreatePod)) == ["demo-head"]


class TestScaling:
    def test_one_less_removes_exactly_one_and_the_others_keep_their_uid(self):
        world = _running(group(replicas=10))
        for wanted in (9, 8, 7):
            before = {pod["metadata"]["uid"] for pod in world.pods("w")}
            world.spec(workerGroupSpecs=[group(replicas=wanted)])
            plan = world.reconcile()
            after = {pod["metadata"]["uid"] for pod in world.pods("w")}
            assert after < before
            assert len(after) == wanted
            assert plan.confirm
            assert actions(plan, CreatePod) == []
            assert world.settle() <= 3

    def test_unready_workers_go_first_then_the_last_slots(self):
        world = _running(group(replicas=4))
        by_slot = {pod["metadata"]["annotations"]["raybus.io/slot"]: pod["metadata"]["name"] for pod in world.pods("w")}
        world.run(by_slot["1"], conditions=[UNREADY])
        world.spec(workerGroupSpecs=[group(replicas=2)])
        assert set(names_of(actions(world.decide(), DeletePod))) == {by_slot["1"], by_slot["3"]}

    def test_named_workers_go_and_no_other(self):
        world = _running(group(replicas=4))
        named = world.names("w")[1:3]
        world.spec(workerGroupSpecs=[group(replicas=2, scaleStrategy={"workersToDelete": [*named, "unknown"]})])
        plan = world.reconcile()
        assert sorted(names_of(actions(plan, DeletePod))) == sorted(named)
        world.settle()
        assert len(world.names("w")) == 2
        assert not set(named) & set(world.names("w"))

    def test_a_worker_that_died_by_itself_does_not_take_a_healthy_one_along(self):
        world = _running(group(replicas=4))
        *named, dead, healthy = world.names("w")
        world.run(dead, phase="Failed")
        world.spec(workerGroupSpecs=[group(replicas=2, scaleStrategy={"workersToDelete": named})])
        world.settle()
        assert healthy in world.names("w")
        assert len(world.names("w")) == 2
        assert not {*named, dead} & set(world.names("w"))

    def test_a_name_in_workers_to_delete_is_never_given_again(self):
        names = names_of(actions(Kubernetes(cluster(group(replicas=1))).decide(), CreatePod))
        (worker,) = [name for name in names if "-w-worker-" in name]
        world = Kubernetes(cluster(group(replicas=1, scaleStrategy={"workersToDelete": [worker]})))
        world.settle()
        assert worker not in world.names("w")
        assert len(world.names("w")) == 1

    def test_names_of_other_groups_and_clusters_are_left_alone(self):
        world = _running(group("a", 1), group("b", 1))
        world.foreign_pod("stranger", "worker", "a")
        (other,) = world.names("b")
        world.spec(
            workerGroupSpecs=[group("a", 1, scaleStrategy={"workersToDelete": [other, "stranger"]}), group("b", 1)]
        )
        assert world.reconcile().steps == ()

    def test_with_autoscaling_only_named_workers_go(self):
        world = _running(group(replicas=5), enableInTreeAutoscaling=True)
        world.spec(workerGroupSpecs=[group(replicas=3)])
        assert world.reconcile().steps == ()
        named = world.names("w")[:1]
        world.spec(workerGroupSpecs=[group(replicas=3, scaleStrategy={"workersToDelete": [*named, "unknown"]})])
        assert names_of(actions(world.reconcile(), DeletePod)) == named

    def test_with_autoscaling_and_random_deletion_the_rest_is_trimmed(self):
        world = Kubernetes(cluster(group(replicas=5), enableInTreeAutoscaling=True), Policy(random_pod_delete=True))
        world.settle()
        world.run()
        named = world.names("w")[:1]
        world.spec(workerGroupSpecs=[group(replicas=3, scaleStrategy={"workersToDelete": [*named, "unknown"]})])
        gone = names_of(actions(world.reconcile(), DeletePod))
        assert len(gone) == 2
        assert set(named) < set(gone)

    def test_a_lost_worker_is_replaced_when_it_is_gone_and_takes_its_slot_under_another_name(self):
        world = _running(group(replicas=3))
        world.deletion_lingers = True
        lost = world.pods("w")[1]
        world.run(lost["metadata"]["name"], phase="Failed")
        assert actions(world.reconcile(), CreatePod) == []
        assert actions(world.reconcile(), CreatePod) == []
        world.delete(lost["metadata"]["name"])
        (new,) = actions(world.reconcile(), CreatePod)
        assert (
            new.body["metadata"]["annotations"]["raybus.io/slot"] == lost["metadata"]["annotations"]["raybus.io/slot"]
        )
        assert (
            new.body["metadata"]["labels"]["ray.io/worker-group-replica-index"]
            == (lost["metadata"]["labels"]["ray.io/worker-group-replica-index"])
        )
        assert new.name != lost["metadata"]["name"]

    def test_after_a_deletion_the_cluster_is_looked_at_again_at_once(self):
        world = _running(group(replicas=1))
        world.reconcile()
        assert not world.again
        world.run(*world.names("w"), phase="Failed")
        world.reconcile()
        assert world.again
        world.reconcile()
        assert not world.again
        assert len(world.names("w")) == 1

    def test_a_stuck_worker_does_not_hold_up_growth(self):
        world = _running(group(replicas=2))
        world.delete(world.names("w")[0], lingers=True)
        world.spec(workerGroupSpecs=[group(replicas=5)])
        created = actions(world.reconcile(), CreatePod)
        assert [action.body["metadata"]["annotations"]["raybus.io/slot"] for action in created] == ["2", "3", "4"]

    def test_pods_that_another_operator_made_keep_their_place(self):
        world = _running(group(replicas=2))
        for pod in world.pods():
            annotations = {k: v for k, v in pod["metadata"]["annotations"].items() if k != "raybus.io/slot"}
            world.put({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})
        world.spec(workerGroupSpecs=[group(replicas=3)])
        (new,) = actions(world.reconcile(), CreatePod)
        assert new.body["metadata"]["annotations"]["raybus.io/slot"] == "2"


STATES = st.sampled_from(["Pending", "Running", "Unready", "Failed", "Succeeded", "terminating", "gone"])


@st.composite
def _histories(draw):
    """Worlds in motion: a size, then for each round what becomes of some pods and which size comes next."""
    rounds = []
    for _ in range(draw(st.integers(1, 4))):
        fates = draw(st.lists(st.tuples(st.integers(0, 6), STATES), max_size=6))
        rounds.append((fates, draw(st.integers(0, 6)), draw(st.sets(st.integers(0, 6), max_size=2))))
    return draw(st.integers(0, 5)), rounds, draw(st.booleans())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_histories())
def test_invariants_of_pods_in_random_worlds(history):
    """C1 to C5: one head, never more workers than wanted, never fewer left than wanted, only named ones with autoscaling."""
    size, rounds, autoscaling = history
    world = Kubernetes(cluster(group(replicas=size), enableInTreeAutoscaling=autoscaling))
    wanted = {size}
    _checked_pass(world, wanted, set(), autoscaling)
    for fates, new_size, named_places in rounds:
        for index, fate in fates:
            _happen(world, index, fate)
        workers = world.names("w")
        named = {workers[place] for place in named_places if place < len(workers)}
        world.spec(workerGroupSpecs=[group(replicas=new_size, scaleStrategy={"workersToDelete": sorted(named)})])
        wanted = {new_size}
        for _ in range(2):
            _checked_pass(world, wanted, named, autoscaling)
    world.deletion_lingers = False
    for pod in world.pods():
        if "deletionTimestamp" in pod["metadata"]:
            world.delete(pod["metadata"]["name"])
    world.settle(passes=8)
    live = len(world.pods("w"))
    assert live >= new_size if autoscaling else live == new_size
    assert len(world.pods("headgroup")) == 1


def _happen(world, index, fate):
    names = world.names()
    if index >= len(names):
        return
    name = names[index]
    if fate == "gone":
        world.delete(name)
    elif fate == "terminating":
        world.delete(name, lingers=True)
    elif fate == "Unready":
        world.run(name, conditions=[UNREADY])
    else:
        world.run(name, phase=fate)


def _checked_pass(world, wanted, named, autoscaling):
    world.deletion_lingers = True
    before = {pod["metadata"]["uid"]: pod for pod in world.pods()}
    heads_before = len(world.pods("headgroup"))
    plan = world.reconcile()
    creations, deletions = actions(plan, CreatePod), actions(plan, DeletePod)
    heads = [a for a in creations if a.body["metadata"]["labels"]["ray.io/group"] == "headgroup"]
    assert not (heads and heads_before), "C1, C2"
    live = [pod for pod in world.pods("w") if "deletionTimestamp" not in pod["metadata"]]
    created = len(creations) - len(heads)
    assert not created or len(world.pods("w")) <= max(wanted), "C3"
    healthy_gone = []
    for deletion in deletions:
        pod = before[deletion.uid]
        assert "deletionTimestamp" not in pod["metadata"]
        lost = pod["status"]["phase"] in ("Failed", "Succeeded")
        if not lost and deletion.name not in named and deletion.group == "w":
            healthy_gone.append(deletion.name)
    assert not healthy_gone or len(live) >= min(wanted), "C4"
    assert not (autoscaling and healthy_gone), "C5"
    assert not deletions or plan.confirm


def test_the_lowest_free_slots_are_filled():
    world = _running(group(replicas=5))
    by_slot = {pod["metadata"]["annotations"]["raybus.io/slot"]: pod["metadata"]["name"] for pod in world.pods("w")}
    for slot in ("1", "3"):
        world.delete(by_slot[slot])
    world.spec(workerGroupSpecs=[group(replicas=6)])
    slots = [a.body["metadata"]["annotations"]["raybus.io/slot"] for a in actions(world.reconcile(), CreatePod)]
    assert slots == ["1", "3", "5"]


def test_many_workers_have_many_names():
    world = Kubernetes(cluster(group(replicas=3000, maxReplicas=3000)))
    names = names_of(actions(world.decide(), CreatePod))
    assert len(set(names)) == 3001
    assert all(len(name) <= 63 for name in itertools.islice(names, 10))
