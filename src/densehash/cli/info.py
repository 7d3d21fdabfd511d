"""``densehash info``: describes an index, or the installation and this machine."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import densehash
from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson
from densehash.cli.text import facts

if TYPE_CHECKING:
    from densehash.distributed import ShardedIndex
    from densehash.hashers import Hasher
    from densehash.index import Index

__all__ = ["describe", "in_words"]


@app.command(
    "info", epilog=examples("densehash info", "densehash info photos.dh", "densehash info --json")
)
def _info(
    index: Annotated[
        Path | None,
        typer.Argument(help="The folder of an index or of a hasher; default: this machine."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe an index or a hasher; without a folder, the installed version and this machine."""
    from densehash import hamming
    from densehash.checks import check_threads
    from densehash.cli.opening import open_any

    if index is not None:
        about = describe(open_any(index))
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


def describe(opened: Index | ShardedIndex | Hasher) -> dict[str, Any]:
    """Counts and sizes of what was saved, as plain values."""
    from densehash.index import Index

    if not hasattr(opened, "info"):  # a hasher; importing its class would load scikit-learn
        return _describe_hasher(cast("Hasher", opened))
    opened = cast("Index | ShardedIndex", opened)
    about = opened.info()
    if isinstance(opened, Index):
        whole = about["bytes_without_vectors"] + about["bytes_of_vectors"]
        about["bytes_a_row_with_vectors"] = whole / max(about["rows"], 1)
    return about


def _describe_hasher(hasher: Hasher) -> dict[str, Any]:
    from densehash.store.manifest import HASHER, VERSIONS

    return {
        "hasher": type(hasher).__name__,
        "bits": hasher.n_bits_,
        "features": hasher.n_features_in_,
        "parameters": {name: repr(value) for name, value in hasher.get_params().items()},
        "format_version": VERSIONS[HASHER][-1],  # there is only one version
    }


def in_words(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What :func:`describe` returned, in words."""
    every: dict[str, Callable[[], str]] = {
        "rows": lambda: f"{about['rows']:,}",
        "removed": lambda: f"{about['removed']:,}",
        "features": lambda: f"{about['features']:,}",
        "kind": lambda: about["kind"],
        "sketch": lambda: _sketch(about),
        "reason": lambda: about["reason"],
        "hasher": lambda: f"{about['hasher']}, {about['bits']} bits",
        "parameters": lambda: ", ".join(f"{n}={v}" for n, v in about["parameters"].items()),
        "metric": lambda: about["metric"],
        "ids": lambda: about["ids"] or "as the first rows have them",
        "vectors": lambda: about["vectors"] or ("not kept" if about["ids"] else "none yet"),
        "payload": lambda: _columns(about["payload"]),
        "bytes_a_row": lambda: _bytes_a_row(about),
        "bytes_on_disk": lambda: f"{about['bytes_on_disk']:,}",
        "segments": lambda: _counts(about["segments"]),
        "shards": lambda: _counts([shard["rows"] for shard in about["shards"]]),
        "lost": lambda: _lost(about["shards"]),
        "recall": lambda: "not measured" if about["recall"] is None else f"{about['recall']:.3f}",
        "candidates": lambda: _setting(about["candidates"]),
        "probes": lambda: _setting(about["probes"]),
        "generation": lambda: f"{about['generation']:,}",
        "format_version": lambda: f"{about['format_version']}",
    }
    there = {*about, *(["lost"] if "shards" in about else [])}
    return [(name.replace("_", " "), text()) for name, text in every.items() if name in there]


def _sketch(about: dict[str, Any]) -> str:
    if "learn_at" in about:
        return f"none: every row is compared until there are {about['learn_at']:,} to learn from"
    words = {"codes": "codes", "bits": f"{about['bits']} ready-made bits"}
    return words.get(about["sketch"], f"{about['sketch']} of {about['bits']} bits")


def _columns(payload: dict[str, str] | None) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in (payload or {}).items()) or "none"


def _bytes_a_row(about: dict[str, Any]) -> str:
    with_vectors = f", {about['bytes_a_row_with_vectors']:,.1f} with vectors"
    return f"{about['bytes_a_row']:,.1f}" + with_vectors * bool(about["vectors"])


def _counts(rows: list[int]) -> str:
    """How many parts there are, and the rows of the first ones."""
    listed = ", ".join(f"{n:,}" for n in rows[:8]) + (", ..." if len(rows) > 8 else "")
    return f"{len(rows)}" + (f", of {listed} rows" if rows else "")


def _lost(shards: list[dict[str, Any]]) -> str:
    return "; ".join(f"{one['name']}: {one['lost']}" for one in shards if one["lost"]) or "none"


def _setting(value: int | None) -> str:
    return "not tuned" if value is None else f"{value:,}"
