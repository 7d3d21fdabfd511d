"""``densehash info``: what an index holds; or what is installed, and what this machine can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import densehash
from densehash import hamming
from densehash.checks import check_threads
from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson
from densehash.cli.text import facts
from densehash.index import Index
from densehash.store.manifest import VERSION

__all__ = ["describe", "in_words"]


@app.command(
    "info", epilog=examples("densehash info", "densehash info photos.dh", "densehash info --json")
)
def _info(
    index: Annotated[
        Path | None, typer.Argument(help="The folder of an index; without it, of this machine.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what an index holds; without one, the version, the instruction sets and the threads."""
    if index is not None:
        about = describe(Index.open(index))
        if as_json:
            typer.echo(json.dumps(about, indent=2))
        else:
            facts(in_words(about))
        return
    here = {
        "version": densehash.__version__,
        "instruction_set": hamming.instruction_set(),
        "instruction_sets": list(hamming.instruction_sets()),
        "threads": check_threads(None),
    }
    if as_json:
        typer.echo(json.dumps(here, indent=2))
        return
    facts(
        [
            ("version", densehash.__version__),
            ("instruction set", hamming.instruction_set()),
            ("instruction sets here", ", ".join(hamming.instruction_sets())),
            ("threads", f"{check_threads(None)}"),
        ]
    )


def describe(index: Index) -> dict[str, Any]:
    """Counts and sizes of a saved index, as plain values."""
    about = index.info()
    whole = about["bytes_without_vectors"] + about["bytes_of_vectors"]
    return {
        **about,
        "bytes_a_row_with_vectors": whole / max(about["rows"], 1),
        "format_version": VERSION,  # no other one is opened
    }


def in_words(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What :func:`describe` found, for people."""
    segments = [f"{rows:,}" for rows in about["segments"]]
    listed = ", ".join(segments[:8]) + (", ..." if len(segments) > 8 else "")
    with_vectors = f", {about['bytes_a_row_with_vectors']:,.1f} with vectors"
    return [
        ("rows", f"{about['rows']:,}"),
        ("removed", f"{about['removed']:,}"),
        ("features", f"{about['features']:,}"),
        ("kind", about["kind"]),
        ("reason", about["reason"]),
        ("hasher", f"{about['hasher']}, {about['bits']} bits"),
        ("metric", about["metric"]),
        ("ids", about["ids"]),
        ("vectors", about["vectors"] or "not kept"),
        ("bytes a row", f"{about['bytes_a_row']:,.1f}" + with_vectors * bool(about["vectors"])),
        ("bytes on disk", f"{about['bytes_on_disk']:,}"),
        ("segments", f"{len(segments)}" + (f", of {listed} rows" if segments else "")),
        ("candidates", _setting(about["candidates"])),
        ("probes", _setting(about["probes"])),
        ("generation", f"{about['generation']:,}"),
        ("format version", f"{about['format_version']}"),
    ]


def _setting(value: int | None) -> str:
    return "not tuned" if value is None else f"{value:,}"
