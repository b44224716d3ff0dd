"""The command line before any command."""

from __future__ import annotations

from importlib import metadata

from typer.testing import CliRunner

from raybus.cli.main import app


def test_it_tells_its_version():
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.output.strip()) == (0, metadata.version("raybus"))
