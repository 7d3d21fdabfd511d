"""``densehash encode``: codes of a file of vectors, of any size, at the speed of the disk."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, Key
from densehash.cli.text import facts
from densehash.errors import InputError
from densehash.progress import bar

__all__: list[str] = []

_BEFORE_A_ROW = {".bvecs": 4}  # bytes


@app.command(
    "encode",
    epilog=examples(
        "densehash encode vectors.npy --hasher model.dh -o codes.npy",
        "densehash encode base.fvecs --hasher photos.dh -o codes.u8bin --json",
    ),
)
def _encode(
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    hasher: Annotated[
        Path, typer.Option(help="The folder of a hasher, or of an index, whose hasher it is then.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", help="The file of codes: .npy, .u8bin, .bvecs, ..., by its suffix."
        ),
    ],
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Write the codes of a file of vectors: uint8, the bytes of a code a row.

    Rows are read, hashed and written a block at a time, so that memory stays small. The file
    appears when it is whole; one that is replaced stays as it is until then. The hasher of an index
    by cosine gets rows of length one, as in the index.
    """
    from densehash.bits import bytes_for
    from densehash.cli.encoding import Codes, check_out, open_hasher
    from densehash.datasets import open_vectors, write_vectors
    from densehash.disk import check_room
    from densehash.index.building import as_hashed

    check_out(out, vectors)
    learnt, metric = open_hasher(hasher)
    X = open_vectors(vectors, key=key)
    if X.shape[1] != learnt.n_features_in_:
        raise InputError(
            f"{vectors} has {X.shape[1]} features, but the hasher of {hasher} takes "
            f"{learnt.n_features_in_}"
        )
    begun = time.perf_counter()
    n_rows, n_bytes = len(X), bytes_for(learnt.n_bits_)
    needed = n_rows * (n_bytes + _BEFORE_A_ROW.get(out.suffix.lower(), 0))
    check_room(out.absolute().parent, needed)
    with (
        bar(f"encoding {vectors.name}", n_rows, shown=True) as advance,
        closing(Codes(learnt, as_hashed(X, metric), advance)) as codes,
    ):
        write_vectors(out, codes)
    seconds = time.perf_counter() - begun
    about = {
        "rows": n_rows,
        "bits": learnt.n_bits_,
        "bytes": out.stat().st_size,
        "seconds": seconds,
    }
    if as_json:
        typer.echo(json.dumps(about, indent=2))
        return
    facts(
        [
            ("codes", str(out)),
            ("rows", f"{n_rows:,}"),
            ("hasher", f"{type(learnt).__name__}, {learnt.n_bits_} bits"),
            ("bytes a row", f"{n_bytes}"),
            ("bytes on disk", f"{about['bytes']:,}"),
            ("seconds", f"{seconds:,.1f}"),
        ]
    )
