"""``densehash encode``: codes of a file of vectors, of any size, at the speed of the disk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from densehash.bits import bytes_for
from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, Key
from densehash.cli.places import check_file_place
from densehash.cli.text import facts
from densehash.datasets import open_vectors, write_vectors
from densehash.datasets.files import FORMATS
from densehash.datasets.reading import Vectors
from densehash.disk import check_room, is_there
from densehash.errors import InputError
from densehash.hashers import Hasher, load_hasher
from densehash.index import Index
from densehash.index.building import as_hashed
from densehash.progress import bar
from densehash.source import Source
from densehash.store import Store
from densehash.store.manifest import HASHER, INDEX

__all__: list[str] = []

_SUFFIXES = tuple(
    suffix
    for form in FORMATS
    if form.holds in ("uint8", "any real type")
    for suffix in form.suffixes
)
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
    _check_out(out, vectors)
    learnt, metric = _open_hasher(hasher)
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
        closing(_Codes(learnt, as_hashed(X, metric), advance)) as codes,
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


class _Codes(Source):
    """Codes of rows, which are hashed as they are read: once, from the first to the last.

    Parameters
    ----------
    hasher : fitted
    X : vectors
    advance : is told of rows that were hashed
    """

    def __init__(self, hasher: Hasher, X: Vectors, advance: Callable[[int], None]) -> None:
        self.shape, self.dtype = (len(X), bytes_for(hasher.n_bits_)), np.dtype(np.uint8)
        self._blocks = hasher.transform_blocks(X)
        self._advance = advance
        self._at = 0
        self._ahead = np.empty((0, self.shape[1]), np.uint8)  # hashed, and not asked for yet

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self)) if isinstance(rows, slice) else (-1, -1, 1)
        if start != self._at:
            raise InputError(f"codes come in their order, from row {self._at} on")
        parts, count = [self._ahead], len(self._ahead)
        while count < stop - start and (block := next(self._blocks, None)) is not None:
            parts.append(block[1])
            count += len(block[1])
            self._advance(len(block[1]))
        found = np.concatenate(parts)
        self._at, self._ahead = stop, found[stop - start :]
        return found[: stop - start]

    def close(self) -> None:
        """Hash no more."""
        self._blocks.close()


def _check_out(out: Path, vectors: Path) -> None:
    """Refuse, before any work is done, what could not be written."""
    if out.suffix.lower() not in _SUFFIXES:
        raise InputError(f"-o must end in one of {', '.join(_SUFFIXES)}, got {str(out)!r}")
    check_file_place(out)
    if is_there(out) and is_there(vectors) and out.samefile(vectors):
        raise InputError(f"{out} is the file of vectors: choose another one for the codes")


def _open_hasher(path: Path) -> tuple[Hasher, str]:
    """A hasher, and the metric of its index: by cosine, rows are scaled before they are hashed."""
    if Store.open(path, form=(HASHER, INDEX)).form == INDEX:
        index = Index.open(path)
        return index.hasher, index.metric
    learnt = load_hasher(path)
    # Rows of a file have no names, and scikit-learn would warn of that.
    learnt.__dict__.pop("feature_names_in_", None)
    return learnt, "l2"
