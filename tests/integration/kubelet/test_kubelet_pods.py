"""The life of pods as the API server and the programs in them see it, with real processes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from raybus.domain import kinds
from raybus.kube.client import KubeClient
from raybus_localkube.kubelet.resources import SERVICE_ACCOUNT
from support.localnode import (
    LocalNode,
    condition,
    event_with,
    events_of,
    log_text,
    main_status,
    phase,
    ready,
    until,
    until_gone,
)

pytestmark = pytest.mark.timeout(120)


def shell(script: str) -> list[str]:
    return ["bash", "-c", script]


async def test_a_pod_runs_to_its_end(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    pod = local_node.pod(
        ns, "p", shell("echo hello; echo oops >&2; echo bye > /dev/termination-log"), restartPolicy="Never"
    )
    pod["spec"]["initContainers"] = [
        {"name": "first", "image": "x", "command": shell("echo one > /shared/one"), "volumeMounts": []}
    ]
    mount = {"name": "shared", "mountPath": "/shared"}
    pod["spec"]["volumes"] = [{"name": "shared", "emptyDir": {}}]
    pod["spec"]["initContainers"][0]["volumeMounts"] = [mount]
    pod["spec"]["containers"][0]["volumeMounts"] = [mount]
    pod["spec"]["containers"][0]["command"] = shell("cat /shared/one; echo oops >&2; echo bye > /dev/termination-log")
    await kube.create(kinds.POD, pod)
    done = await until(kube, ns, "p", lambda p: phase(p) == "Succeeded", "the pod succeeds")
    status = main_status(done)
    assert status["state"]["terminated"]["reason"] == "Completed"
    assert status["state"]["terminated"]["message"] == "bye\n"
    assert done["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert condition(done, "Ready")["reason"] == "PodCompleted"
    assert log_text(local_node, done).split() == ["one", "oops"]
    assert [event["reason"] async for event in events_of(kube, ns, "p")].count("Started") <= 2
    await kube.delete(kinds.POD, ns, "p")
    await until_gone(kube, ns, "p")
    assert not (local_node.folder / "pods" / done["metadata"]["uid"]).exists()


async def test_a_failing_pod_fails_with_its_code(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await kube.create(kinds.POD, local_node.pod(ns, "p", shell("exit 7"), restartPolicy="Never"))
    done = await until(kube, ns, "p", lambda p: phase(p) == "Failed", "the pod fails")
    assert main_status(done)["state"]["terminated"]["exitCode"] == 7
    assert condition(done, "ContainersReady")["reason"] == "PodFailed"


async def test_a_killed_program_gives_128_and_the_signal(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await kube.create(kinds.POD, local_node.pod(ns, "p", shell("kill -TERM $BASHPID"), restartPolicy="Never"))
    done = await until(kube, ns, "p", lambda p: phase(p) == "Failed", "the pod fails")
    assert main_status(done)["state"]["terminated"]["exitCode"] == 143


async def test_a_crash_loop_backs_off(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await kube.create(kinds.POD, local_node.pod(ns, "p", shell("echo attempt; exit 3")))
    looping = await until(
        kube,
        ns,
        "p",
        lambda p: main_status(p).get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff",
        "back-off",
    )
    status = main_status(looping)
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert "back-off 10s restarting failed container=main" in status["state"]["waiting"]["message"]
    assert phase(looping) == "Running"
    assert condition(looping, "Ready")["reason"] == "ContainersNotReady"
    assert "container main" in (await event_with(kube, ns, "p", "BackOff"))["note"]


async def test_on_failure_restarts_until_success(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    script = "if [ -e /state/seen ]; then exit 0; fi; touch /state/seen; exit 1"
    pod = local_node.pod(ns, "p", shell(script), restartPolicy="OnFailure", volumes=[{"name": "s", "emptyDir": {}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "s", "mountPath": "/state"}]
    await kube.create(kinds.POD, pod)
    done = await until(kube, ns, "p", lambda p: phase(p) == "Succeeded", "the second run succeeds")
    assert main_status(done)["restartCount"] == 1


async def test_a_command_that_is_not_there(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await kube.create(kinds.POD, local_node.pod(ns, "p", ["no-such-program"], restartPolicy="Never"))
    done = await until(kube, ns, "p", lambda p: phase(p) == "Failed", "the pod fails")
    ended = main_status(done)["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert "no-such-program" in ended["message"]
    event = await event_with(kube, ns, "p", "Failed")
    assert "executable file not found in $PATH" in event["note"]


async def test_deletion_gives_the_program_its_grace(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    marks = local_node.folder / f"marks-{ns}"
    script = "trap 'echo got >> /marks/log; sleep 0.5; echo saved >> /marks/log; exit 0' TERM; touch /marks/up; while true; do sleep 0.1; done"
    hook = {"preStop": {"exec": {"command": shell("echo hook >> /marks/log")}}}
    pod = local_node.pod(ns, "p", shell(script), container={"lifecycle": hook})
    pod["spec"]["volumes"] = [{"name": "m", "hostPath": {"path": str(marks), "type": "DirectoryOrCreate"}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "m", "mountPath": "/marks"}]
    await kube.create(kinds.POD, pod)
    await until(kube, ns, "p", lambda p: ready(p) and (marks / "up").exists(), "the trap is set")
    await kube.delete(kinds.POD, ns, "p")
    await until_gone(kube, ns, "p")
    assert (marks / "log").read_text().split() == ["hook", "got", "saved"]


async def test_a_program_that_ignores_sigterm_is_killed(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    script = "trap '' TERM; while true; do sleep 0.1; done"
    await kube.create(kinds.POD, local_node.pod(ns, "p", shell(script), terminationGracePeriodSeconds=1))
    await until(kube, ns, "p", ready, "it runs")
    assert local_node.processes_of(ns, "p")
    await kube.delete(kinds.POD, ns, "p")
    await until_gone(kube, ns, "p", within_s=10)
    assert local_node.processes_of(ns, "p") == []


async def test_liveness_restarts_and_readiness_hides(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    script = "touch /tmp/alive /tmp/ready; sleep 2; rm /tmp/alive; sleep 100"
    probes = {
        "livenessProbe": {
            "exec": {"command": ["cat", "/tmp/alive"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
            "initialDelaySeconds": 1,
        },
        "readinessProbe": {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1, "initialDelaySeconds": 60},
    }
    await kube.create(
        kinds.POD, local_node.pod(ns, "p", shell(script), container=probes, terminationGracePeriodSeconds=1)
    )
    await until(kube, ns, "p", ready, "ready long before initialDelaySeconds", within_s=40)
    again = await until(kube, ns, "p", lambda p: main_status(p)["restartCount"] == 1, "liveness restarts it")
    assert main_status(again)["lastState"]["terminated"]["exitCode"] == 143
    assert "Liveness probe failed" in (await event_with(kube, ns, "p", "Unhealthy"))["note"]
    await event_with(kube, ns, "p", "Killing")


async def test_startup_gates_readiness(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    script = "sleep 1; touch /tmp/up; exec python -m http.server 8123 --bind 0.0.0.0"
    probes = {
        "startupProbe": {"exec": {"command": ["cat", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 30},
        "readinessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1},
        "livenessProbe": {"tcpSocket": {"port": 8123}, "periodSeconds": 1, "failureThreshold": 30},
        "ports": [{"name": "web", "containerPort": 8123}],
    }
    await kube.create(kinds.POD, local_node.pod(ns, "p", shell(script), container=probes))
    started = await until(kube, ns, "p", ready, "the pod gets ready")
    assert main_status(started)["started"] is True
    assert main_status(started)["restartCount"] == 0


async def test_environment_volumes_and_isolation(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    await kube.create(
        kinds.CONFIG_MAP, {"metadata": {"name": "cm", "namespace": ns}, "data": {"a": "from cm", "file.txt": "text"}}
    )
    await kube.create(kinds.SECRET, {"metadata": {"name": "s", "namespace": ns}, "stringData": {"password": "hunter2"}})
    env = [
        {"name": "PLAIN", "value": "x-$(CM)"},
        {"name": "CM", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "a"}}},
        {"name": "AFTER", "value": "$(CM) $$(CM) $(NOPE)"},
        {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]
    script = (
        "import json, os, pathlib, socket\n"
        "def read(p): return pathlib.Path(p).read_text()\n"
        "def writes(p):\n"
        "    try: pathlib.Path(p).write_text('x'); return True\n"
        "    except OSError: return False\n"
        "print(json.dumps({'env': dict(os.environ), 'cm': read('/usr/share/cm/file.txt'), 'sub': read('/opt/one/pw'),"
        " 'down': read('/pod/labels'), 'host': socket.gethostname(), 'ip': socket.gethostbyname(socket.gethostname()),"
        " 'cwd': os.getcwd(), 'home': writes('/home/ray/f'), 'tmp': os.listdir('/tmp'), 'usr': writes('/usr/f'), 'cmw': writes('/usr/share/cm/x'),"
        " 'pids': [int(p) for p in os.listdir('/proc') if p.isdigit()], 'memory': read('/sys/fs/cgroup/memory.max'),"
        " 'cpu': read('/sys/fs/cgroup/cpu.max'), 'shm': writes('/dev/shm/x'), 'resolv': read('/etc/resolv.conf')}))"
    )
    mounts = [
        {"name": "cm", "mountPath": "/usr/share/cm"},
        {"name": "s", "mountPath": "/opt/one/pw", "subPath": "password"},
        {"name": "d", "mountPath": "/pod"},
    ]
    container = {
        "env": env,
        "resources": {"limits": {"memory": "300Mi", "cpu": "1500m"}},
        "volumeMounts": mounts,
        "workingDir": "/work/dir",
    }
    volumes = [
        {"name": "cm", "configMap": {"name": "cm"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "d", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    pod = local_node.pod(ns, "p", ["python", "-c", script], container=container, volumes=volumes, restartPolicy="Never")
    await kube.create(kinds.POD, pod)
    done = await until(kube, ns, "p", lambda p: phase(p) in ("Succeeded", "Failed"), "it ends")
    text = log_text(local_node, done)
    assert phase(done) == "Succeeded", text
    seen: dict[str, Any] = json.loads(text)
    assert {name: seen["env"][name] for name in ("PLAIN", "CM", "AFTER", "PW", "NAME", "MEM")} == {
        "PLAIN": "x-$(CM)", "CM": "from cm", "AFTER": "from cm $(CM) $(NOPE)", "PW": "hunter2", "NAME": "p", "MEM": "300",
    }  # fmt: skip
    assert seen["env"]["IP"] == seen["ip"] == done["status"]["podIP"]
    assert seen["env"]["RAY_USAGE_STATS_ENABLED"] == "0"
    assert (seen["cm"], seen["sub"], seen["down"]) == ("text", "hunter2", 'app="p"')
    assert (seen["host"], seen["cwd"], seen["home"], seen["usr"], seen["cmw"], seen["shm"]) == (
        "p",
        "/work/dir",
        True,
        False,
        False,
        True,
    )
    assert "ray" in seen["tmp"]
    assert len(seen["pids"]) == 2
    assert seen["memory"].strip() == str(300 << 20)
    assert seen["cpu"].split()[0] == "150000"
    assert f"search {ns}.svc.cluster.local svc.cluster.local cluster.local" in seen["resolv"]
    assert done["status"]["qosClass"] == "Guaranteed"


async def test_containers_of_a_pod_share_network_and_volumes(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    pod = local_node.pod(
        ns, "p", shell("echo from-main > /shared/f; exec python -m http.server 8000"), restartPolicy="Never"
    )
    mount = {"name": "m", "mountPath": "/shared"}
    pod["spec"]["volumes"] = [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [mount]
    script = (
        "until wget -q -O- http://localhost:8000/ > /dev/null; do sleep 0.1; done; cat /shared/f; df /shared | tail -1"
    )
    pod["spec"]["containers"].append({"name": "side", "image": "x", "command": shell(script), "volumeMounts": [mount]})
    await kube.create(kinds.POD, pod)
    done = await until(
        kube,
        ns,
        "p",
        lambda p: "terminated" in (p.get("status", {}).get("containerStatuses") or [{}, {}])[1].get("state", {}),
        "side ends",
    )
    assert done["status"]["containerStatuses"][1]["state"]["terminated"]["exitCode"] == 0
    text = log_text(local_node, done, "side")
    assert text.startswith("from-main")
    assert " 16384 " in text


async def test_a_missing_config_map_is_said_and_waited_for(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    container = {"envFrom": [{"configMapRef": {"name": "late"}}]}
    await kube.create(
        kinds.POD, local_node.pod(ns, "p", shell("test $X = 1"), container=container, restartPolicy="Never")
    )
    waiting = await until(
        kube,
        ns,
        "p",
        lambda p: main_status(p).get("state", {}).get("waiting", {}).get("reason") == "CreateContainerConfigError",
        "it says so",
    )
    assert 'configmap "late" not found' in main_status(waiting)["state"]["waiting"]["message"]
    await kube.create(kinds.CONFIG_MAP, {"metadata": {"name": "late", "namespace": ns}, "data": {"X": "1"}})
    await until(kube, ns, "p", lambda p: phase(p) == "Succeeded", "it runs once the ConfigMap is there")


async def test_what_cannot_be_done_is_refused(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    pod = local_node.pod(ns, "p", shell("true"), volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    await kube.create(kinds.POD, pod)
    event = await event_with(kube, ns, "p", "Failed")
    assert "spec.volumes[0].persistentVolumeClaim" in event["note"]
    stuck = await until(kube, ns, "p", lambda p: "waiting" in main_status(p).get("state", {}), "the status says it")
    assert phase(stuck) == "Pending"
    await kube.delete(kinds.POD, ns, "p")
    await until_gone(kube, ns, "p")


async def test_services_are_names_and_addresses(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    server = local_node.pod(ns, "server", shell("echo hi > index.html; exec python -m http.server 8000"))
    server["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    await kube.create(kinds.POD, server)
    ports = [{"port": 80, "targetPort": 8000}]
    for name, more in (("vip", {}), ("headless", {"clusterIP": "None"})):
        spec = {"selector": {"app": "server"}, "ports": ports, **more}
        await kube.create(kinds.SERVICE, {"metadata": {"name": name, "namespace": ns}, "spec": spec})
    await until(kube, ns, "server", ready, "the server is ready")
    script = f"for u in vip vip.{ns} vip.{ns}.svc.cluster.local headless:8000; do until wget -q -T 2 -O- http://$u/; do sleep 0.1; done; done; ! getent hosts nope"
    await kube.create(kinds.POD, local_node.pod(ns, "client", shell(script), restartPolicy="Never"))
    done = await until(kube, ns, "client", lambda p: phase(p) in ("Succeeded", "Failed"), "the client ends")
    assert log_text(local_node, done).split() == ["hi"] * 4
    assert phase(done) == "Succeeded"
    for host in (f"vip.{ns}.svc.cluster.local", f"headless.{ns}.svc.cluster.local:8000", f"vip.{ns}"):
        assert await fetch(local_node, f"http://{host}/") == (200, "hi\n")
    status, text = await fetch(local_node, f"http://nope.{ns}.svc.cluster.local/")
    assert status == 502
    assert "no such Service" in text


async def fetch(node: LocalNode, url: str) -> tuple[int, str]:
    """Status and text, through the node's proxy."""
    proxy = f"http://127.0.0.1:{node.proxy_port}"
    async with aiohttp.ClientSession() as session, session.get(url, proxy=proxy) as response:
        return response.status, await response.text()


async def test_a_pod_talks_to_the_api_server(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    for _ in range(200):
        if await kube.list_all(SERVICE_ACCOUNT, ns):
            break
        await asyncio.sleep(0.05)
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = (
        "import os, ssl, urllib.request\n"
        f"token = open('{where}/token').read()\n"
        f"context = ssl.create_default_context(cafile='{where}/ca.crt')\n"
        "url = 'https://%s:%s/api' % (os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT'])\n"
        "request = urllib.request.Request(url, headers={'Authorization': 'Bearer ' + token})\n"
        "print(urllib.request.urlopen(request, context=context, timeout=10).status, open('"
        + where
        + "/namespace').read())"
    )
    pod = local_node.pod(
        ns,
        "p",
        ["python", "-c", script],
        restartPolicy="Never",
        automountServiceAccountToken=False,
        serviceAccountName="default",
    )
    pod["spec"]["volumes"] = [{"name": "sa", "projected": {"sources": sources}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "sa", "mountPath": where, "readOnly": True}]
    await kube.create(kinds.POD, pod)
    done = await until(kube, ns, "p", lambda p: phase(p) in ("Succeeded", "Failed"), "it ends")
    assert log_text(local_node, done).split() == ["200", ns]


async def test_pods_without_a_node_are_bound(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    pod = local_node.pod(ns, "free", shell("true"), restartPolicy="Never")
    gpu = local_node.pod(ns, "gpu", shell("true"), container={"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    for each in (pod, gpu):
        del each["spec"]["nodeName"]
        await kube.create(kinds.POD, each)
    await until(kube, ns, "free", lambda p: phase(p) == "Succeeded", "it is bound and runs")
    await event_with(kube, ns, "free", "Scheduled")
    refused = await until(
        kube, ns, "gpu", lambda p: condition(p, "PodScheduled").get("status") == "False", "it is refused"
    )
    assert condition(refused, "PodScheduled")["reason"] == "Unschedulable"
    assert "nvidia.com/gpu" in (await event_with(kube, ns, "gpu", "FailedScheduling"))["note"]


async def test_a_steady_pod_costs_no_write(local_node: LocalNode, kube: KubeClient, ns: str) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    await kube.create(
        kinds.POD,
        local_node.pod(ns, "p", ["sleep", "100"], container={"readinessProbe": probe, "livenessProbe": probe}),
    )
    before = await until(kube, ns, "p", ready, "ready")
    await asyncio.sleep(4)
    after = await kube.get(kinds.POD, ns, "p")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
