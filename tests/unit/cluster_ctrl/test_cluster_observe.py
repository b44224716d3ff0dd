from __future__ import annotations

from raybus.domain.memory import Memory
from raybus_cluster_ctrl.observe import Observer
from support.clusters import Kubernetes, cluster, group


def _running():
    world = Kubernetes(cluster(group(replicas=1)))
    world.settle()
    world.run()
    return world


def test_a_pod_that_changed_is_read_anew_and_one_that_did_not_is_not():
    world = _running()
    before = {pod.name: pod for pod in world.world().pods}
    (worker,) = world.names("w")
    world.run(worker, phase="Failed")
    after = {pod.name: pod for pod in world.world().pods}
    assert after[worker].is_lost
    assert not before[worker].is_lost
    (head,) = world.names("headgroup")
    assert after[head] is before[head]


def test_another_name_of_the_ray_container_is_noticed():
    world = _running()
    template = {"spec": {"containers": [{"name": "other"}, {"name": "ray-worker"}]}}
    for pod in world.pods("w"):
        both = {**pod["spec"], "restartPolicy": "Never", "containers": [{"name": "ray-worker"}, {"name": "other"}]}
        status = {**pod["status"], "containerStatuses": [{"name": "other", "state": {"terminated": {}}}]}
        world.put({**pod, "spec": both, "status": status})
    assert not world.world().workers["w"][0].is_lost
    world.spec(workerGroupSpecs=[group(replicas=1, template=template)])
    assert world.world().workers["w"][0].is_lost


def test_only_pods_of_this_uid_are_the_clusters_own():
    world = _running()
    world.foreign_pod("old-head", "head", "headgroup")
    world.foreign_pod("old-worker", "worker", "w")
    seen = world.world()
    assert "old-head" in {pod.name for pod in seen.heads}
    assert {"old-head", "old-worker"} <= seen.names
    assert not {"old-head", "old-worker"} & {pod.name for pod in seen.pods}


def test_services_that_are_not_the_heads_are_passed_over():
    world = _running()
    other = {"metadata": {"name": "other", "uid": "u", "labels": {"ray.io/cluster": "demo"}}}
    world.put({"kind": "Service", **other})
    assert [service["metadata"]["name"] for service in world.world().head_services] == ["demo-head-svc"]


def test_the_newest_pod_of_a_place_is_remembered_after_it_has_gone():
    world = _running()
    (worker,) = world.pods("w")
    world.world()
    world.delete(worker["metadata"]["name"])
    assert world.world().last_seen["w", 0] == worker["metadata"]["uid"]


def test_of_pods_that_were_created_in_one_second_the_one_seen_last_is_the_newest():
    """Their uids are chance; else a name could come again."""
    world = _running()
    (first,) = world.pods("w")
    for uid in ("uid-9", "uid-0", "uid-5"):
        world.world()
        world.delete(world.names("w")[0])
        world.put({**first, "metadata": {**first["metadata"], "name": f"w-{uid}", "uid": uid}})
        assert world.world().last_seen["w", 0] == uid
    older = {**first["metadata"], "name": "w-old", "uid": "uid-99", "creationTimestamp": "2020-01-01T00:00:00Z"}
    world.put({**first, "metadata": older})
    assert world.world().last_seen["w", 0] == "uid-5"


def test_a_cluster_of_the_same_name_begins_anew_and_forgetting_is_bounded():
    world = _running()
    world.world()
    world.root = {**world.root, "metadata": {**world.root["metadata"], "uid": "another"}}
    assert world.world().last_seen == {}
    observer = Observer(remembered=2)
    for number in range(5):
        other = Kubernetes(cluster(name=f"c{number}"))
        observer(other.tree())
    assert len(observer._seen) == 2


def test_memory_keeps_the_last_answers():
    memory: Memory[int] = Memory(size=2)
    assert [memory.get(key, lambda key=key: key * 10) for key in (1, 2, 1, 3)] == [10, 20, 10, 30]
    assert memory.get(1, lambda: 0) == 10
    assert memory.get(2, lambda: 0) == 0
