"""``densehash build``: an index of a file of vectors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from densehash.checks import check_choice
from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, Key, read_ids
from densehash.cli.info import describe, in_words
from densehash.cli.text import facts
from densehash.datasets import open_vectors
from densehash.errors import FileError
from densehash.index import Index
from densehash.store import Store
from densehash.store.manifest import MANIFEST

__all__: list[str] = []

_KEEP: dict[str, bool | str] = {
    "own": True,
    **{name: name for name in ("float32", "float16", "uint8", "int8")},
    "no": False,
}

# Whoever was killed may have left files of an index that has no manifest yet.
_LEFT = {".npy", ".part", ".lock"}


@app.command(
    "build",
    epilog=examples(
        "densehash build vectors.npy -o photos.dh",
        "densehash build base.fvecs -o photos.dh --hasher dsh --bits 128 --ids ids.txt",
        "densehash build vectors.npy -o photos.dh --kind grouped --keep-vectors float16 --force",
    ),
)
def _build(
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder of the index.")],
    hasher: Annotated[
        str, typer.Option(help="The method: dsh, itq, lsh, ...; auto is one that suits most rows.")
    ] = "auto",
    bits: Annotated[
        int | None, typer.Option(help="Bits of a code, 1 to 4096; 256 without it.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="flat, grouped or multi; auto chooses by the number of rows.")
    ] = "auto",
    metric: Annotated[str, typer.Option(help="l2, cosine or ip (inner product).")] = "l2",
    ids: Annotated[
        Path | None,
        typer.Option(
            help="A file of ids: text, one a line, or .npy. They are numbers where all lines are, "
            "and strings otherwise; without it, they count rows from 0 on."
        ),
    ] = None,
    key: Key = None,
    keep_vectors: Annotated[
        str,
        typer.Option(
            help="For exact re-ranking: in their own type, as float32, float16, uint8 or int8, "
            "or not at all: no."
        ),
    ] = "own",
    groups: Annotated[
        int | None, typer.Option(help="How many groups, of the kind grouped.")
    ] = None,
    tables: Annotated[int | None, typer.Option(help="How many tables, of the kind multi.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the planes and the groups.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an index that is there already.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make an index of a file of vectors.

    It appears when it is whole. One that is replaced stays as it is until then: whoever searches
    it sees the old one or the new one.
    """
    check_choice(keep_vectors, "--keep-vectors", tuple(_KEEP))
    _check_place(out, force=force)
    X = open_vectors(vectors, key=key)
    names = None if ids is None else read_ids(ids)
    begun = time.perf_counter()
    index = Index.build(
        X,
        ids=names,
        hasher=hasher,
        n_bits=bits,
        kind=kind,
        metric=metric,
        keep_vectors=_KEEP[keep_vectors],
        n_groups=groups,
        n_tables=tables,
        random_state=seed,
        verbose=1,
    )
    index.save(out, verbose=1)
    seconds = time.perf_counter() - begun
    about = describe(Index.open(out))
    if as_json:
        typer.echo(json.dumps({**about, "seconds": seconds}, indent=2))
        return
    said = ("rows", "kind", "reason", "hasher", "ids", "vectors", "bytes a row", "bytes on disk")
    built = [(name, value) for name, value in in_words(about) if name in said]
    facts([("index", str(out)), *built, ("seconds", f"{seconds:,.1f}")])


def _check_place(out: Path, *, force: bool) -> None:
    """Refuse, before any work is done, a place at which the index could not be saved."""
    if not out.absolute().parent.is_dir():
        raise FileError(f"{out.absolute().parent} is no folder, so {out} cannot be made in it")
    if (out / MANIFEST).exists():
        if not force:
            raise FileError(f"{out} is an index already: --force replaces it")
        Store.open(out)  # one that is damaged is not replaced
    elif out.exists():
        if not out.is_dir():
            raise FileError(f"{out} is no folder, expected an index or nothing")
        others = [path.name for path in out.iterdir() if path.suffix not in _LEFT]
        if others:
            raise FileError(f"{out} is no index, and not empty: it has {min(others)!r}")
