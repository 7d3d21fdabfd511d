"""``densehash search``: the neighbours of a file of queries."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, IndexPath, Key, Metric, Threads, read_ids
from densehash.cli.cluster import LocalCluster, Scheduler, workers
from densehash.cli.opening import open_index
from densehash.cli.places import check_file_place
from densehash.cli.text import aligned, say
from densehash.datasets import open_vectors
from densehash.datasets.reading import Vectors
from densehash.disk import replacing
from densehash.errors import InputError
from densehash.index import Hits, Index, Ranges
from densehash.progress import bar

if TYPE_CHECKING:
    from densehash.distributed import ShardedIndex

__all__: list[str] = []

_BLOCK = 2**14  # queries at a time, so that a bar can move
_LINES = 2**12  # printed at a time

_COLUMNS = ("query", "rank", "id", "distance")


@app.command(
    "search",
    epilog=examples(
        "densehash search photos.dh queries.npy",
        "densehash search photos.dh queries.npy -k 100 --recall 0.99 -o found.npz",
        "densehash search photos.dh queries.fvecs --radius 0.5 --filter ids.txt --csv",
    ),
)
def _search(
    index: IndexPath,
    queries: Annotated[Path, typer.Argument(help="A file of vectors.")],
    k: Annotated[
        int | None,
        typer.Option("-k", help="How many neighbours; 10, or all within --radius, without it."),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(help="Of signs: the share of the nearest rows to be found; as tuned without."),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(help="How many rows, the nearest by their sketches, are re-ranked."),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option(help="How many groups, or buckets of each table, a query visits."),
    ] = None,
    rerank: Annotated[
        str,
        typer.Option(
            help="exact, by the kept vectors; asymmetric, by codes and the query's margins; none, "
            "by sketches alone; auto is the first of these that can be."
        ),
    ] = "auto",
    metric: Metric = None,
    radius: Annotated[float | None, typer.Option(help="Nothing farther away is found.")] = None,
    chosen: Annotated[
        Path | None, typer.Option("--filter", help="A file of ids that may be found, no others.")
    ] = None,
    exclude_self: Annotated[
        bool, typer.Option("--exclude-self", help="Leave out the first row that equals the query.")
    ] = False,
    threads: Threads = None,
    scheduler: Scheduler = None,
    local_cluster: LocalCluster = None,
    allow_partial: Annotated[
        bool,
        typer.Option("--allow-partial", help="Leave out shards that cannot be read, and say so."),
    ] = False,
    key: Key = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print lines of query,rank,id,distance, nothing else.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Write arrays ids and distances to this .npz instead."),
    ] = None,
) -> None:
    """Find the neighbours of a file of queries.

    Queries count from 0 on, ranks from 1 on. Where fewer than -k are found, JSON has null, an .npz
    has the id -1 or an empty string at an infinite distance (-1 of Hamming distances), and lines
    are left out. With --radius but no -k, queries have as many as there are, and the .npz has an
    array limits: those of query i begin at limits[i] and end before limits[i + 1].

    An index in shards is searched by the workers of --scheduler or --local-cluster, or by threads.
    """
    if as_json + as_csv + (out is not None) > 1:
        raise InputError("choose one of --json, --csv and -o")
    if out is not None:
        _check_out(out)
    opened = open_index(index)
    asked: dict[str, Any] = {
        "k": k,
        "candidates": candidates,
        "probes": probes,
        "rerank": None if rerank == "none" else rerank,
        "metric": metric,
        "filter": None if chosen is None else read_ids(chosen, opened.info()["ids"]),
        # Hamming distances are compared with a whole number.
        "radius": int(radius) if radius is not None and radius.is_integer() else radius,
        "exclude_self": exclude_self,
        "recall": recall,
    }
    missing: set[str] = set()
    if isinstance(opened, Index):
        if allow_partial or scheduler is not None or local_cluster is not None:
            raise InputError(f"{index} has no shards: it is searched as a whole, by this process")
        search: Callable[..., Any] = partial(opened.search, **asked, n_threads=threads)
    else:
        if threads is not None:
            raise InputError("--threads: not of an index in shards")
        search = partial(_search_shards, opened, missing, **asked, allow_partial=allow_partial)
    Q = open_vectors(queries, key=key)
    with workers(scheduler, local_cluster):
        found = _search_blocks(search, Q, queries)
    if missing:
        typer.echo(f"left out: {', '.join(sorted(missing))}", err=True)
    if out is not None:
        _write_arrays(out, found)
        say(str(out))
    elif as_json:
        left_out = {"missing": sorted(missing)} if allow_partial else {}
        typer.echo(json.dumps({**_as_lists(found), **left_out}, allow_nan=False))
    elif as_csv:
        _print_csv(found)
    else:
        _print_table(found)


def _check_out(out: Path) -> None:
    """Refuse, before any work is done, what could not be written."""
    if out.suffix.lower() != ".npz":
        raise InputError(f"-o must end in .npz, got {str(out)!r}: --csv and --json can be piped")
    check_file_place(out)


def _search_shards(
    index: ShardedIndex, missing: set[str], block: NDArray[Any], **asked: Any
) -> Hits | Ranges:
    *found, left_out = index.search(block, **asked)
    missing.update(left_out)
    return Hits(*found) if len(found) == 2 else Ranges(*found)


def _search_blocks(search: Callable[..., Any], Q: Vectors, path: Path) -> Hits | Ranges:
    parts = []
    with bar(f"searching for {len(Q):,} queries", len(Q), shown=True) as advance:
        for start in range(0, len(Q), _BLOCK):
            block = np.asarray(Q[start : start + _BLOCK])
            bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
            if len(bad):
                raise InputError(f"{path}: row {start + bad[0]} has a number that is not finite")
            parts.append(search(block))
            advance(len(block))
    if isinstance(parts[0], Hits):
        return Hits(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    counts = np.concatenate([np.diff(part.limits) for part in parts])
    return Ranges(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.distances for part in parts]),
    )


# --- what was found, in four forms --------------------------------------------------------


def _numbers(distances: NDArray[Any]) -> NDArray[Any]:
    """Distances as Python's numbers, in an array of objects; None where they are infinite.

    float32 has few digits: 0.1 and not 0.10000000149.
    """
    if distances.dtype.kind != "f":
        return distances.astype(object)
    numbers = distances.astype(str).astype(np.float64).astype(object)
    numbers[~np.isfinite(distances)] = None
    return numbers


def _missing(ids: NDArray[Any]) -> NDArray[np.bool_]:
    nothing: Any = None if ids.dtype == object else -1
    return np.asarray(ids == nothing)


def _as_lists(found: Hits | Ranges) -> dict[str, Any]:
    ids, distances = found.ids.astype(object), _numbers(found.distances)
    missing = _missing(found.ids)
    ids[missing] = distances[missing] = None
    if isinstance(found, Hits):
        return {"ids": ids.tolist(), "distances": distances.tolist()}
    return {
        name: [array[start:stop].tolist() for start, stop in pairwise(found.limits.tolist())]
        for name, array in (("ids", ids), ("distances", distances))
    }


def _rows(found: Hits | Ranges) -> Iterator[tuple[object, ...]]:
    answer = _as_lists(found)
    for query, pair in enumerate(zip(answer["ids"], answer["distances"], strict=True)):
        for rank, (name, distance) in enumerate(zip(*pair, strict=True), start=1):
            if name is not None:
                yield query, rank, name, "inf" if distance is None else distance


def _print_table(found: Hits | Ranges) -> None:
    rows = [[str(cell) for cell in row] for row in _rows(found)]
    left = [2] if found.ids.dtype == object else []
    lines = aligned(_COLUMNS, rows, left=left)
    while some := list(islice(lines, _LINES)):
        say("\n".join(some))


def _print_csv(found: Hits | Ranges) -> None:
    rows = chain([_COLUMNS], _rows(found))
    while some := list(islice(rows, _LINES)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(some)
        typer.echo(text.getvalue().encode(), nl=False)  # in UTF-8, whatever the terminal is


def _write_arrays(out: Path, found: Hits | Ranges) -> None:
    arrays = found._asdict()
    if found.ids.dtype == object:  # numpy would pickle them
        ids = found.ids.copy()
        ids[_missing(ids)] = ""
        arrays["ids"] = ids.astype(np.str_)
    with replacing(out) as part, part.open("wb") as file:
        np.savez(file, **arrays)
