"""``densehash export``: writes codes, ids and payload for other systems."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, IndexPath
from densehash.cli.text import either, facts, say
from densehash.export import TARGETS

__all__: list[str] = []

_CODES_ALONE = [name for name, target in TARGETS.items() if not target.takes_vectors]


@app.command(
    "export",
    epilog=examples(
        "densehash export photos.dh --to faiss -o photos.faiss",
        "densehash export photos.dh --to duckdb -o photos.duckdb --vectors",
        "densehash export photos.dh --to pgvector -o photos.sql --force",
    ),
)
def _export(
    index: IndexPath,
    to: Annotated[str, typer.Option(help=f"{either(TARGETS)}.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file or folder to write.")],
    vectors: Annotated[
        bool,
        typer.Option("--vectors", help=f"Export vectors, too; not to {either(_CODES_ALONE)}."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the codes, ids and payload of an index for another system, in the order of ids.

    The index must have codes (build --sketch codes); it may be in shards. The command prints what
    it wrote, and a query for the other system. docs/export.md has an example of each.
    """
    from densehash.cli.opening import open_index
    from densehash.export import export

    done = export(open_index(index), to, out, vectors=vectors, force=force)
    if as_json:
        paths = [str(path) for path in done.paths]
        typer.echo(json.dumps({"rows": done.n_rows, "paths": paths, "query": done.query}, indent=2))
        return
    places = [("written", str(path)) for path in done.paths]
    facts([("what", TARGETS[to].about), ("rows", f"{done.n_rows:,}"), *places])
    say(f"\n{done.query}".rstrip())
