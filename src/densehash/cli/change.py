"""``densehash add``, ``update``, ``upsert``, ``remove``, ``compact``: change an index.

Each change is on the disk as a whole, or not at all.
"""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import (
    AsJson,
    IdsOfRows,
    IndexPath,
    Key,
    column_of_ids,
    columns_said,
    ids_of_rows,
    parse_ids,
    read_ids,
)
from densehash.cli.text import aligned, say
from densehash.errors import InputError

if TYPE_CHECKING:
    from densehash.index import Index

__all__: list[str] = []

FirstPayload = Annotated[
    str | None,
    typer.Option(
        "--payload",
        help="For the first rows of an index that was created empty: columns of the file to keep "
        "beside its vectors, separated by commas, or all.",
    ),
]


@app.command(
    "add",
    epilog=examples(
        "densehash add photos.dh more.npy",
        "densehash add photos.dh more.npy --ids ids.txt --json",
        "densehash add texts.dh first.parquet --column embedding --ids id --payload title,year",
    ),
)
def _add(
    index: IndexPath,
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    ids: IdsOfRows = None,
    key: Key = None,
    payload: FirstPayload = None,
    as_json: AsJson = False,
) -> None:
    """Add the vectors of a file to an index; an id that the index already has is an error.

    If ids are numbers, --ids may be left out: new ids follow the largest that there ever was. If
    the index has a payload, its columns are read from the file, too.
    """
    from densehash.datasets import open_vectors
    from densehash.index import Index

    opened = Index.open(index)
    names = ids_of_rows(ids, vectors, opened.info()["ids"])
    X = open_vectors(vectors, key=key, ids=column_of_ids(ids, vectors))
    beside = _payload_of(opened, vectors, key, payload, ids)
    added = opened.add(X, ids=names, payload=beside, verbose=1)
    if as_json:
        answer = {"added": len(added), "ids": added.tolist(), "rows": len(opened)}
        typer.echo(json.dumps(answer))
        return
    named = f", with ids {added[0]} to {added[-1]}" if names is None else ""
    say(f"added {_rows(len(added))}{named}; there are {len(opened):,} now{_until(opened)}")


@app.command("update", epilog=examples("densehash update photos.dh new.npy --ids ids.txt"))
def _update(
    index: IndexPath,
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    ids: IdsOfRows = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Replace vectors of an index by those of a file; an id that the index lacks is an error.

    If the index has a payload and the file has its columns, they are replaced, too. If the file has
    none of them, the payload stays as it is.
    """
    from densehash.datasets import column_names
    from densehash.index import Index

    opened = Index.open(index)
    names, X = _named_rows(opened, ids, vectors, key)
    columns = set(opened.info()["payload"] or ())
    payload = None  # stays as it is
    if columns & set(column_names(vectors)):
        payload = _payload_of(opened, vectors, key)
    opened.update(names, X, payload=payload, verbose=1)
    if as_json:
        typer.echo(json.dumps({"updated": len(names), "rows": len(opened)}))
    else:
        say(f"updated {_rows(len(names))} of {len(opened):,}")


@app.command(
    "upsert",
    epilog=examples(
        "densehash upsert photos.dh rows.npy --ids ids.txt --json",
        "densehash upsert photos.dh rows.csv --ids id --column embedding",
    ),
)
def _upsert(
    index: IndexPath,
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    ids: IdsOfRows = None,
    key: Key = None,
    payload: FirstPayload = None,
    as_json: AsJson = False,
) -> None:
    """Replace the vectors of ids that an index has, and add the others, in one change."""
    from densehash.index import Index

    opened = Index.open(index)
    names, X = _named_rows(opened, ids, vectors, key)
    beside = _payload_of(opened, vectors, key, payload, ids)
    added, updated = opened.upsert(names, X, payload=beside, verbose=1)
    if as_json:
        typer.echo(json.dumps({"added": added, "updated": updated, "rows": len(opened)}))
    else:
        now = f"there are {len(opened):,} now{_until(opened)}"
        say(f"added {_rows(added)}, updated {_rows(updated)}; {now}")


@app.command(
    "remove",
    epilog=examples("densehash remove photos.dh 17 23", "densehash remove photos.dh --ids old.txt"),
)
def _remove(
    index: IndexPath,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of rows.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--ids", help="A file of ids instead: text, one a line, or .npy."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove rows from an index and say how many; ids that the index lacks are ignored.

    Searches no longer find these rows. Their disk space is freed by densehash compact.
    """
    from densehash.index import Index

    if bool(ids) == (file is not None):
        raise InputError("give ids, or a file of them by --ids" + ", not both" * bool(ids))
    opened = Index.open(index)
    id_type = opened.info()["ids"]
    wanted = parse_ids(ids or [], id_type) if file is None else read_ids(file, id_type)
    count = opened.remove(wanted)
    if as_json:
        typer.echo(json.dumps({"removed": count, "rows": len(opened)}))
    else:
        say(f"removed {_rows(count)}; there are {len(opened):,} now")


@app.command("compact", epilog=examples("densehash compact photos.dh"))
def _compact(index: IndexPath, as_json: AsJson = False) -> None:
    """Merge all segments of an index into one, without the rows that were removed."""
    from densehash.index import Index

    opened = Index.open(index)
    before = _sizes(opened)
    opened.compact()
    after = _sizes(opened)
    if as_json:
        typer.echo(json.dumps({"before": before, "after": after}, indent=2))
        return
    rows = [(name.replace("_", " "), f"{before[name]:,}", f"{after[name]:,}") for name in before]
    say("\n".join(aligned(("", "before", "after"), rows, left=[0])))


def _named_rows(index: Index, ids: str | None, vectors: Path, key: str | None) -> tuple[Any, Any]:
    """Ids and vectors of a file of rows that must have ids."""
    from densehash.datasets import open_vectors

    names = ids_of_rows(ids, vectors, index.info()["ids"])
    if names is None:
        raise InputError(
            "--ids must name the ids of the vectors: a column of their file, or a file"
        )
    return names, open_vectors(vectors, key=key, ids=column_of_ids(ids, vectors))


def _payload_of(
    index: Index,
    vectors: Path,
    key: str | None,
    said: str | None = None,
    ids: str | None = None,
) -> Any:
    """The columns of a file that the index keeps; None if it keeps none."""
    from densehash.datasets.beside import read_table

    about = index.info()
    if said is not None:
        if about["ids"] is not None:
            there = ", ".join(about["payload"] or ()) or "none"
            raise InputError(
                f"--payload is for the first rows of an index: this one has rows, with {there}"
            )
        wanted = columns_said(said, "--payload")
        return read_table(vectors, wanted, key=key, ids=column_of_ids(ids, vectors))
    columns = about["payload"]
    if columns is None:
        return None
    texts = [name for name, kind in columns.items() if kind == "string"]
    return read_table(vectors, list(columns), key=key, texts=texts)


def _until(index: Index) -> str:
    """When the index will learn, if it has not learnt yet."""
    learn_at = index.info().get("learn_at")
    return "" if learn_at is None else f", all of them compared until there are {learn_at:,}"


def _sizes(index: Index) -> dict[str, int]:
    about: dict[str, Any] = index.info()
    return {
        "rows": about["rows"],
        "removed": about["removed"],
        "segments": len(about["segments"]),
        "bytes_on_disk": about["bytes_on_disk"],
    }


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
