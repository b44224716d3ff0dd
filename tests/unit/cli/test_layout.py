"""The folder of a local Raybus: usable or refused with words, ports kept, records of dead processes not believed."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from raybus.cli import background, folder, layout, local
from raybus.cli.errors import UserError


def drawn(place: layout.Layout, **named: int) -> dict[str, int]:
    return folder.drawn_ports(place.ports, layout.PORT_NAMES, named)


def test_ports_are_drawn_once(tmp_path: Path):
    place = layout.open_layout(tmp_path)
    first = drawn(place)
    assert drawn(place) == first
    assert len(set(first.values())) == len(first)


def test_a_port_that_somebody_else_has_now_is_drawn_again_and_a_named_one_is_refused(tmp_path: Path):
    place = layout.open_layout(tmp_path)
    first = drawn(place)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first["nats"]))
        taken.listen()
        second = drawn(place)
        assert second["nats"] != first["nats"]
        assert {**second, "nats": 0} == {**first, "nats": 0}
        with pytest.raises(UserError, match="is in use"):
            drawn(place, kube=first["nats"])


def test_the_folder_is_private(tmp_path: Path):
    place = layout.open_layout(tmp_path / "new")
    assert place.root.stat().st_mode & 0o077 == 0
    assert local.nats_seed_file(place).stat().st_mode & 0o077 == 0


def test_a_path_too_long_for_sockets_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="too long"):
        layout.open_layout(tmp_path / ("x" * 90))


def test_a_file_in_the_way_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot use the folder"):
        layout.open_layout(tmp_path / "file")


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} .* is in use"):
            folder.require_free(port, "--port")


def test_only_the_very_process_that_wrote_the_record_counts_as_running(tmp_path: Path):
    place = layout.open_layout(tmp_path)
    assert not place.place.running()
    record = {"pid": os.getpid(), "start_ticks": background.start_ticks(os.getpid()), "kubeconfig": "k"}
    place.place.record.write_text(json.dumps(record))
    assert place.place.running()
    assert local.kubeconfig_of(place) == "k"
    place.place.record.write_text(json.dumps({**record, "start_ticks": "1"}))  # the pid was given to somebody else
    assert not place.place.running()
    with pytest.raises(UserError, match="no Raybus runs"):
        local.kubeconfig_of(place)


def test_the_private_key_is_in_no_argument_and_not_in_the_servers_configuration(tmp_path: Path):
    place = layout.open_layout(tmp_path)
    known = drawn(place)
    secret = local.nats_seed_file(place).read_text()
    options = local.UpOptions()
    for process in (*local.base_processes(place, known, options), *local.services(place, known, options)):
        assert not any(secret in part for part in process.argv), process.name
    assert secret not in local.nats_config(place, known)
    assert local.nats_user(place) in local.nats_config(place, known)


def test_with_a_kubeconfig_only_nats_gateway_and_controllers_are_started(tmp_path: Path):
    place = layout.open_layout(tmp_path)
    known = drawn(place)
    options = local.UpOptions(kubeconfig="/k", controller_flags={"--feature-gates": "A=true", "--config": None})
    names = [each.name for each in local.base_processes(place, known, options)]
    assert names == ["nats"]
    services = local.services(place, known, options)
    assert [each.name for each in services] == ["gateway", "cluster_ctrl", "job_ctrl"]
    for each in services:
        assert "HTTP_PROXY" not in each.env
        assert each.argv[-2:] == ("--feature-gates", "A=true")
