"""What `raybus doctor` prints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from rich.markup import escape

from raybus.cli import console
from raybus.cli.doctor.facts import Finding, Level

MARKS: dict[Level, str] = {
    "ok": "[green]ok     [/green]",
    "warning": "[yellow]warning[/yellow]",
    "failed": "[bold red]failed [/bold red]",
}


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if anything failed; warnings are no failure."""
    return int(any(each.level == "failed" for each in findings))


def show(findings: Sequence[Finding], output: str) -> None:
    if output == "json":
        print(
            json.dumps(
                {"ok": not exit_code(findings), "checks": [dataclasses.asdict(each) for each in findings]}, indent=2
            )
        )
        return
    for each in findings:
        console.out.print(f"{MARKS[each.level]} [bold]{escape(each.check)}[/bold]: {escape(each.what)}")
        if each.remedy:
            console.out.print(f"        -> {escape(each.remedy)}")
    counts = {level: sum(each.level == level for each in findings) for level in MARKS}
    console.out.print(f"\n{counts['ok']} ok, {counts['warning']} warnings, {counts['failed']} failed")
