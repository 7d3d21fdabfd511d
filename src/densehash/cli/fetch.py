"""``densehash fetch``: downloads one of the paper's data sets."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densehash.cli.app import app, examples
from densehash.errors import FileError
from densehash.progress import shows_bars

if TYPE_CHECKING:
    from densehash.datasets import catalog

__all__: list[str] = []


@app.command("fetch", epilog=examples("densehash fetch", "densehash fetch sift1m --to data"))
def _fetch(
    name: Annotated[
        str | None, typer.Argument(help="The name of a set; default: list all sets.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="The folder to put it into; default: DENSEHASH_DATA or the cache."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Download a data set, check it and unpack it; say where it is.

    If a download is interrupted, run the command again: it goes on where it stopped. A set that is
    there already is left as it is.
    """
    from densehash.datasets import catalog

    if name is None:
        sets = [_listed(entry, to) for entry in catalog.PUBLISHED.values()]
        typer.echo(json.dumps(sets, indent=2) if as_json else "\n".join(map(_line, sets)))
        return
    fetched = catalog.fetch(name, to=to, verbose=True)
    if not fetched.downloaded and shows_bars(1):
        typer.echo(f"{fetched.name} is already there", err=True)
    if not as_json:
        typer.echo(str(fetched.folder))
        return
    paths = {"folder": fetched.folder, "base": fetched.base, "queries": fetched.queries}
    answer = {
        "name": fetched.name,
        **{what: str(path) if path else None for what, path in paths.items()},
        "downloaded": fetched.downloaded,
    }
    typer.echo(json.dumps(answer, indent=2))


def _listed(entry: catalog.Published, to: Path | None) -> dict[str, Any]:
    from densehash.datasets import catalog

    try:
        there = catalog.find(entry.name, to=to)
    except FileError:  # several files instead of one: fetching has a better error
        there = None
    return {
        "name": entry.name,
        "n_rows": entry.n_rows,
        "n_features": entry.n_features,
        "n_queries": entry.n_queries,
        "bytes_to_download": entry.size,
        "bytes_on_disk": sum(entry.sizes.values()) or None,
        "folder": str(there.folder) if there else None,
        "page": entry.page,
    }


def _line(listed: dict[str, Any]) -> str:
    rows = f"{listed['n_rows']:,}" if listed["n_rows"] else "?"
    shape = f"{rows} x {listed['n_features']}"
    size, on_disk = listed["bytes_to_download"], listed["bytes_on_disk"]
    cost = f"{_megabytes(size)}, unpacked {_megabytes(on_disk)}" if size else "by hand only"
    where = listed["folder"] or f"not here; see {listed['page']}"
    return f"{listed['name']:<9} {shape:>15}   {cost:<28}  {where}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
