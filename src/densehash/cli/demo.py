"""``densehash demo``: shows neighbours of handwritten digits in the terminal."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from typing import Annotated

import typer

from densehash.cli.app import app, examples

__all__: list[str] = []


@app.command("demo", epilog=examples("densehash demo", "densehash demo --bits 32 --json"))
def _demo(
    bits: Annotated[int, typer.Option(help="Bits of a code, 1 to 4096.")] = 64,
    seed: Annotated[int, typer.Option(help="The seed of the planes and the queries.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Hash handwritten digits by every method and show the neighbours found."""
    from densehash import demo
    from densehash.cli import digits

    found = demo.run(n_bits=bits, seed=seed)
    if as_json:
        typer.echo(json.dumps(digits.plain(found), indent=2))
    else:
        digits.show(found)
