"""How the command line looks: news and errors on stderr, what was asked for on stdout."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from raybus.cli.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, UserError
from raybus.kube.errors import KubeError

PIPE_WIDTH = 240  # of what is read by a program or kept in a file: a line of a table stays one line

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True)
_STARTED = time.monotonic()


def tell(line: str) -> None:
    """One line of news, with the seconds since the command began."""
    style = "yellow" if line.startswith("warning") else "cyan"
    err.print(f"[dim]{time.monotonic() - _STARTED:6.1f} s[/dim] [{style}]{escape(line)}[/{style}]")


def show(line: str) -> None:
    """A line of somebody else's output, as it is."""
    out.print(line, markup=False)


def fail(error: UserError) -> NoReturn:
    """Say what is wrong and what to do, and end with the error's exit code."""
    err.print(f"[bold red]error:[/bold red] {escape(error.message)}")
    if error.hint:
        err.print(f"       {escape(error.hint)}")
    raise typer.Exit(error.code)


def end(work: Callable[[], int]) -> NoReturn:
    """Do the work and end with its exit code. A user's mistake, a silent API server and Ctrl-C end it with one message."""
    try:
        code = work()
    except UserError as error:
        fail(error)
    except KubeError as error:
        fail(UserError(error.message, "`raybus status` shows what runs", EXIT_ENVIRONMENT))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    raise typer.Exit(code)


def run(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command that awaits to its exit code."""
    end(lambda: asyncio.run(work))
