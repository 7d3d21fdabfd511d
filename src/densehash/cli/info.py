"""``densehash info``: what is installed, and what this machine can do."""

from __future__ import annotations

import typer

import densehash
from densehash import hamming
from densehash.checks import check_threads
from densehash.cli.app import app, examples

__all__: list[str] = []


@app.command("info", epilog=examples("densehash info"))
def _info() -> None:
    """Say the version, the instruction sets, and the number of threads."""
    typer.echo(f"version               {densehash.__version__}")
    typer.echo(f"instruction set       {hamming.instruction_set()}")
    typer.echo(f"instruction sets here {', '.join(hamming.instruction_sets())}")
    typer.echo(f"threads               {check_threads(None)}")
