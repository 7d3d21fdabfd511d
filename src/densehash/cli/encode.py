"""``densehash encode``: writes codes of a file of any size, at the speed of the disk."""

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
from densehash.cli.arguments import AsJson, IdsOfRows, Key
from densehash.cli.text import facts
from densehash.errors import InputError
from densehash.progress import bar

__all__: list[str] = []

_BEFORE_A_ROW = {".bvecs": 4}  # bytes before each row


@app.command(
    "encode",
    epilog=examples(
        "densehash encode vectors.npy --hasher model.dh -o codes.npy",
        "densehash encode base.fvecs --hasher photos.dh -o codes.u8bin --json",
        "densehash encode rows.parquet --hasher model.dh -o codes.parquet --ids id --keep title",
    ),
)
def _encode(
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    hasher: Annotated[
        Path, typer.Option(help="The folder of a hasher, or of an index that has a hasher.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            help="The file of codes: .npy, .u8bin, .bvecs, ..., by its suffix. In Parquet and "
            "Arrow files, codes are fixed-size binary, in a column 'codes'.",
        ),
    ],
    ids: IdsOfRows = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Columns of the file of vectors that go beside the codes, with commas between "
            "them; for Parquet and Arrow files."
        ),
    ] = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Write the codes of a file of vectors: uint8, one row of bytes for each code.

    Rows are read, hashed and written a block at a time, so memory stays small. The file appears
    only when it is complete; until then, a file that it replaces stays as it is. If --hasher names
    an index with the metric cosine or ip, rows are scaled to one length, as in the index.

    In Parquet and Arrow files, --ids and --keep write ids and other columns beside the codes.
    """
    from densehash.bits import bytes_for
    from densehash.cli.arguments import column_of_ids
    from densehash.cli.encoding import Codes, beside, check_out, open_hasher, write_codes
    from densehash.datasets import open_vectors
    from densehash.disk import check_room

    check_out(out, vectors, alone=ids is None and keep is None)
    learnt, scaled = open_hasher(hasher)
    X = open_vectors(vectors, key=key, ids=column_of_ids(ids, vectors))
    if X.shape[1] != learnt.n_features_in_:
        raise InputError(
            f"{vectors} has {X.shape[1]} features, but the hasher of {hasher} takes "
            f"{learnt.n_features_in_}"
        )
    columns = beside(vectors, ids, [] if keep is None else keep.split(","), len(X))
    begun = time.perf_counter()
    n_rows, n_bytes = len(X), bytes_for(learnt.n_bits_)
    needed = n_rows * (n_bytes + _BEFORE_A_ROW.get(out.suffix.lower(), 0))
    check_room(out.absolute().parent, needed)
    with (
        bar(f"encoding {vectors.name}", n_rows, shown=True) as advance,
        closing(Codes(learnt, scaled(X), advance)) as codes,
    ):
        write_codes(out, codes, columns)
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
