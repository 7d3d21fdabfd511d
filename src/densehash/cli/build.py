"""``densehash build``: makes an index from a file of vectors."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import (
    AsJson,
    Force,
    Groups,
    GroupsARow,
    IdsOfRows,
    KeepVectors,
    Key,
    Kind,
    Method,
    OwnMetric,
    PayloadOf,
    Seed,
    Sketch,
    SketchBits,
    Tables,
    column_of_ids,
    columns_said,
    ids_of_rows,
    vectors_kept,
)
from densehash.cli.cluster import LocalCluster, Scheduler, workers
from densehash.cli.info import describe, in_words
from densehash.cli.text import facts
from densehash.errors import InputError

if TYPE_CHECKING:
    from densehash.hashers import Hasher

__all__: list[str] = []

_SHARD_BYTES, _SHARDS_A_THREAD = 2**27, 2


@app.command(
    "build",
    epilog=examples(
        "densehash build vectors.npy -o photos.dh",
        "densehash build base.fvecs -o photos.dh --hasher dsh --bits 128 --ids ids.txt",
        "densehash build rows.parquet -o photos.dh --column embedding --ids id",
        "densehash build vectors.npy -o photos.dh --keep-vectors no",
        "densehash build texts.parquet -o texts.dh --key embedding --payload title,year",
        "densehash build rows.csv -o rows.dh --column vec --ids id --payload lang,year",
        "densehash build vectors.npy -o photos.dh --kind grouped --keep-vectors float16 --force",
        "densehash build codes.npy -o codes.dh --codes --kind grouped",
        "densehash build big.npy -o /shared/photos --scheduler tcp://10.0.0.1:8786",
    ),
)
def _build(
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder of the index.")],
    sketch: Sketch = "auto",
    hasher: Method = "auto",
    bits: SketchBits = None,
    kind: Kind = "auto",
    metric: OwnMetric = "l2",
    ids: IdsOfRows = None,
    key: Key = None,
    payload: PayloadOf = None,
    keep_vectors: KeepVectors = "own",
    groups: Groups = None,
    groups_a_row: GroupsARow = None,
    tables: Tables = None,
    seed: Seed = 0,
    codes: Annotated[
        bool,
        typer.Option(
            "--codes",
            help="The file has ready-made codes, packed bits as uint8 or fixed-size binary; "
            "--hasher may name the folder of the hasher that made them.",
        ),
    ] = False,
    force: Force = False,
    scheduler: Scheduler = None,
    local_cluster: LocalCluster = None,
    shard_rows: Annotated[
        int | None,
        typer.Option(help="Rows of a shard, if workers make shards; default: 128 MB or less."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an index of a file of vectors. Ids are row numbers from 0 on, or those of --ids.

    Rows go through memory piece by piece, so there may be more than memory holds. The index
    appears only when it is complete. If it replaces an index, others can search the old one until
    then.

    With --codes, the file has codes, made elsewhere or by densehash encode. The index searches them
    by Hamming distance, and densehash add adds codes, too. Queries are codes; or vectors, if
    --hasher names the folder of a hasher. Give --bits if codes end in padding.

    With --scheduler or --local-cluster, workers make an index in shards. Each shard is an index
    folder in -o. All workers must reach this folder, and the file, under the same path.
    """
    from densehash import distributed
    from densehash.cli.places import check_folder_place
    from densehash.datasets import open_vectors
    from densehash.datasets.beside import read_table
    from densehash.index import Index
    from densehash.store.manifest import INDEX, SHARDS

    kept = vectors_kept(keep_vectors)
    alone = scheduler is None and local_cluster is None
    if alone and shard_rows is not None:
        raise InputError("--shard-rows is for --scheduler and --local-cluster")
    check_folder_place(out, INDEX if alone else SHARDS, force=force)
    column = column_of_ids(ids, vectors)
    opened = open_vectors(vectors, key=key, ids=column)
    names = ids_of_rows(ids, vectors)
    beside = {}
    if payload is not None:
        wanted = columns_said(payload, "--payload")
        beside["payload"] = read_table(vectors, wanted, key=key, ids=column)
    begun = time.perf_counter()
    if codes:
        options = (scheduler, local_cluster, payload, sketch, metric, keep_vectors)
        if options != (None, None, None, "auto", "l2", "own"):
            raise InputError(
                "--codes goes with --hasher, --bits, --kind, --groups, --tables, --ids and --seed "
                "alone: codes have no vectors, and are compared by Hamming distance"
            )
        chosen: Any = kind  # the index checks it
        index = Index.from_codes(
            opened,
            ids=names,
            hasher=None if hasher == "auto" else _hasher_in(hasher),
            n_bits=bits,
            kind=chosen,
            n_groups=groups,
            n_tables=tables,
            random_state=seed,
            path=out,
            verbose=1,
        )
        _say_built(describe(index), out, time.perf_counter() - begun, as_json=as_json)
        return
    with workers(scheduler, local_cluster) as told:
        build: Callable[..., Any] = Index.build
        X: Any = opened
        if told is not None:
            build = distributed.ShardedIndex.build
            # Enough that each worker has some, but no more, because a search asks every shard.
            each = opened.shape[0] * opened.shape[1] * opened.dtype.itemsize
            each //= _SHARDS_A_THREAD * max(told.n_threads, 1)
            X = distributed.open_dask(
                vectors,
                key=key,
                ids=column,
                chunk_rows=shard_rows,
                chunk_bytes=max(min(each, _SHARD_BYTES), 1),
            )
        index = build(
            X,
            path=out,
            ids=names,
            **beside,
            sketch=sketch,
            hasher=hasher,
            n_bits=bits,
            kind=kind,
            metric=metric,
            keep_vectors=kept,
            n_groups=groups,
            groups_a_row=groups_a_row,
            n_tables=tables,
            random_state=seed,
            verbose=1 if told is None else told.verbose,
        )
        seconds = time.perf_counter() - begun
        about = describe(index)
    _say_built(about, out, seconds, as_json=as_json)


def _hasher_in(folder: str) -> Hasher:
    """The hasher that made codes."""
    from densehash.cli.encoding import open_hasher

    if not Path(folder).is_dir():
        raise InputError(f"--hasher must be the folder of a hasher with --codes, got {folder!r}")
    return open_hasher(Path(folder))[0]


def _say_built(about: dict[str, Any], out: Path, seconds: float, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**about, "seconds": seconds}, indent=2))
        return
    said = {"rows", "kind", "sketch", "reason", "hasher", "ids", "vectors"}
    said |= {"payload"} if about["payload"] is not None else set()
    said |= {"recall", "bytes a row", "bytes on disk"}
    built = [(name, value) for name, value in in_words(about) if name in said]
    facts([("index", str(out)), *built, ("seconds", f"{seconds:,.1f}")])
