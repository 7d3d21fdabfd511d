"""``densehash search``: finds the neighbours of a file of queries."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, IndexPath, Key, Metric, Threads, read_ids
from densehash.cli.cluster import LocalCluster, Scheduler, workers
from densehash.cli.text import say
from densehash.errors import InputError

if TYPE_CHECKING:
    from densehash.distributed import ShardedIndex
    from densehash.index import Index

__all__: list[str] = []


@app.command(
    "search",
    epilog=examples(
        "densehash search photos.dh queries.npy",
        "densehash search photos.dh queries.npy -k 100 --recall 0.99 -o found.npz",
        "densehash search photos.dh queries.fvecs --radius 0.5 --filter ids.txt --csv",
        "densehash search texts.dh queries.npy -k 3 --show title,year --where 'year >= 2020'",
    ),
)
def _search(
    index: IndexPath,
    queries: Annotated[Path, typer.Argument(help="A file of vectors.")],
    k: Annotated[
        int | None,
        typer.Option("-k", help="How many neighbours; default 10, or all within --radius."),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(help="With signs: the share of the nearest rows to find; default: as tuned."),
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
    radius: Annotated[float | None, typer.Option(help="Find no row farther away.")] = None,
    chosen: Annotated[
        Path | None, typer.Option("--filter", help="A file of ids: find only these rows.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help='What the payload of a row must be to be found, as \'lang = "en" and year >= '
            "2020': with and, or, not, in (..), is null, parentheses, = != < <= > >=."
        ),
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
    show: Annotated[
        str | None,
        typer.Option(
            help="Columns of the payload to print with what is found, separated by commas, or all."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Write arrays ids and distances to this .npz instead."),
    ] = None,
) -> None:
    """Find the neighbours of a file of queries.

    Queries are numbered from 0 on, ranks from 1 on. If a query has fewer than -k neighbours, JSON
    has null for the missing ones, an .npz has the id -1 or an empty string at an infinite distance
    (-1 for Hamming distances), and text has no line for them. With --radius but no -k, each query
    has all its neighbours within the radius, and the .npz has an array limits: those of query i
    begin at limits[i] and end before limits[i + 1].

    The workers of --scheduler or --local-cluster search an index in shards; without them, threads
    of this process do.
    """
    from densehash.cli.found import (
        as_lists,
        payload_shown,
        print_csv,
        print_table,
        search_blocks,
        search_shards,
        shown_columns,
        write_arrays,
    )
    from densehash.cli.opening import open_index
    from densehash.datasets import open_vectors
    from densehash.index import Index

    if as_json + as_csv + (out is not None) > 1:
        raise InputError("choose one of --json, --csv and -o")
    if out is not None:
        _check_out(out, show)
    opened = open_index(index)
    asked: dict[str, Any] = {
        "k": k,
        "candidates": candidates,
        "probes": probes,
        "rerank": None if rerank == "none" else rerank,
        "metric": metric,
        "filter": _filter(chosen, where, opened),
        # With Hamming distances, the radius must be an integer.
        "radius": int(radius) if radius is not None and radius.is_integer() else radius,
        "exclude_self": exclude_self,
        "recall": recall,
    }
    missing: set[str] = set()
    columns = shown_columns(opened, show)
    if isinstance(opened, Index):
        if allow_partial or scheduler is not None or local_cluster is not None:
            raise InputError(
                f"{index} has no shards, so this process searches it: leave out --scheduler, "
                "--local-cluster and --allow-partial"
            )
        search: Callable[..., Any] = partial(opened.search, **asked, n_threads=threads)
    else:
        if threads is not None:
            raise InputError("--threads cannot be given for an index in shards: leave it out")
        search = partial(search_shards, opened, missing, **asked, allow_partial=allow_partial)
    Q = open_vectors(queries, key=key)
    with workers(scheduler, local_cluster):
        found = search_blocks(search, Q, queries)
        beside = payload_shown(opened, found, columns)
    if missing:
        typer.echo(f"left out: {', '.join(sorted(missing))}", err=True)
    if out is not None:
        write_arrays(out, found)
        say(str(out))
    elif as_json:
        left_out = {"missing": sorted(missing)} if allow_partial else {}
        typer.echo(json.dumps({**as_lists(found, beside), **left_out}, allow_nan=False))
    elif as_csv:
        print_csv(found, beside)
    else:
        print_table(found, beside)


def _filter(chosen: Path | None, where: str | None, opened: Index | ShardedIndex) -> Any:
    if chosen is not None and where is not None:
        raise InputError("choose one of --filter and --where")
    about = opened.info()
    if where is not None and about["payload"] is None:
        raise InputError("--where: this index has no payload")
    return where if chosen is None else read_ids(chosen, about["ids"])


def _check_out(out: Path, show: str | None) -> None:
    """Refuse what could not be written, before any work is done."""
    from densehash.cli.places import check_file_place

    if show is not None:
        raise InputError("--show: an .npz has ids and distances only; --csv and --json show more")
    if out.suffix.lower() != ".npz":
        raise InputError(f"-o must end in .npz, got {str(out)!r}: --csv and --json can be piped")
    check_file_place(out)
